package grpclimit

import (
	"net/http"

	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint/httplimit"
)

// names are the metadata that a call can carry.
var names = [...]string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"}

// told are the header fields that are told as metadata.
const told = httplimit.XRateLimit | httplimit.RetryAfter

// rate writes the metadata of decisions: the header fields that HTTP has for them.
type rate struct {
	fields [len(names)]string // names as HTTP spells them
}

func newRate() *rate {
	r := new(rate)
	for i, name := range names {
		r.fields[i] = http.CanonicalHeaderKey(name)
	}
	return r
}

// of is the metadata of a call, nil when there is nothing to say.
func (r *rate) of(c *call) metadata.MD {
	if r == nil || c.policy == nil && c.header == nil || c.decision.Degraded {
		return nil
	}
	header := c.header
	if header == nil {
		header = make(http.Header, len(names))
		httplimit.HeadersOf(c.policy, told).Write(header, c.decision, nil)
	}
	md := make(metadata.MD, len(names))
	for i, name := range names {
		if values := header[r.fields[i]]; values != nil {
			md[name] = values
		}
	}
	if len(md) == 0 {
		return nil
	}
	return md
}
