package httplimit

import (
	"net/http"

	"github.com/stint-go/stint"
)

// Fields is a set of header fields. The zero value is none of them.
type Fields uint8

// The header fields that a response can carry.
const (
	// XRateLimit is X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset
	// of the deciding limit; the last is the time, in Unix seconds, at which its client will be as
	// new. Where Remaining is 0 there may be permits again long before; RateLimit and
	// Retry-After tell when.
	XRateLimit Fields = 1 << iota
	// IETF is RateLimit and RateLimit-Policy of the IETF's httpapi draft, revision
	// 11, with one item per limit.
	IETF
	// RetryAfter is Retry-After, in whole seconds, on a denial.
	RetryAfter

	// AllFields is all of them.
	AllFields = XRateLimit | IETF | RetryAfter

	// NoFields says none where the zero value means all, as in a [Config].
	NoFields Fields = 1 << 7
)

// validate reports a set that a configuration can't mean.
func (f Fields) validate() error {
	if f&^AllFields != 0 && f != NoFields {
		return stint.Invalid("fields", uint8(f), "XRateLimit, IETF and RetryAfter together, or NoFields")
	}
	return nil
}

// fieldNames are the names of the header fields in each set.
var fieldNames = [...]struct {
	set   Fields
	names []string
}{
	{XRateLimit, []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}},
	{IETF, []string{"Ratelimit", "Ratelimit-Policy"}},
	{RetryAfter, []string{"Retry-After"}},
}

// copy copies the fields of the set from one header to another.
func (f Fields) copy(to, from http.Header) {
	for _, fields := range fieldNames {
		for _, name := range fields.names {
			if values, there := from[name]; there && f&fields.set != 0 {
				to[name] = values
			}
		}
	}
}
