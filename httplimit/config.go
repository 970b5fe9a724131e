package httplimit

import (
	"errors"
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
)

// A Config says what a [Middleware] of plain limits is made of. Only Limiter has no default. Its
// functions and handlers must be safe for concurrent use.
type Config struct {
	// Limiter decides. It must not be nil. Wrap a store that may be unreachable in one of
	// package failover, which says what happens then.
	Limiter *stint.Limiter

	// Key is whom a request counts for, 1 to stint.MaxKeyBytes bytes. Default: nil, the
	// client's address as Clients finds it.
	Key func(*http.Request) (string, error)
	// Clients finds the client's address. It must be nil when there is a Key. Default:
	// nil, one that trusts no proxy: a client is its peer.
	Clients *clientip.Resolver
	// Cost is how many permits a request takes. At 0, such as for health checks, it is admitted without
	// asking for the key or the limiter, and the response gets no fields. Default: nil, 1.
	Cost func(*http.Request) (int64, error)

	// Fields are the header fields that responses get. Default: 0, which is AllFields;
	// NoFields is none. Without IETF a decision costs less.
	Fields Fields

	// Denied answers a request that is over the limit, or that will have ended before its turn of
	// a leaky bucket, which is then left to others; the fields are written by then.
	// Default: nil, a problem document of status 429.
	Denied http.Handler
	// Unavailable answers a request that could not be decided, or whose context ended
	// while it was held. Default: nil, a problem document of status 503.
	Unavailable http.Handler
	// Unfit answers a request without a key or a cost: the error is that of Key or Cost,
	// or wraps stint.ErrInvalid for a value that no limit takes. Default: nil, a problem
	// document of status 400, which shows the text of an error that wraps
	// stint.ErrInvalid and of no other.
	Unfit func(http.ResponseWriter, *http.Request, error)

	// Failed is told the error of each request that Unavailable or Unfit answers, before that: for logs
	// and metrics. It wraps stint.ErrUnavailable when the store could not decide, and is the context's
	// of a request that ended while it was held. Denials are none. Default: nil.
	Failed func(*http.Request, error)
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c Config) Validate() error {
	var faults []error
	if c.Limiter == nil {
		faults = append(faults, stint.Invalid("limiter", "nil", "a limiter made by stint.New"))
	}
	if c.Key != nil && c.Clients != nil {
		faults = append(faults, stint.Invalid("clients", "set", "nil when there is a key function, which is asked instead"))
	}
	return errors.Join(append(faults, c.Fields.validate())...)
}

// withDefaults returns the configuration with its defaults filled in.
func (c Config) withDefaults() (Config, error) {
	if c.Clients == nil {
		trustingNobody, err := clientip.New(clientip.Config{})
		if err != nil {
			return c, err
		}
		c.Clients = trustingNobody
	}
	if c.Fields == 0 {
		c.Fields = AllFields
	}
	if c.Denied == nil {
		c.Denied = problem(http.StatusTooManyRequests, "the rate limit is exceeded")
	}
	if c.Unavailable == nil {
		c.Unavailable = problem(http.StatusServiceUnavailable, "the rate limit could not be decided")
	}
	if c.Unfit == nil {
		c.Unfit = unfit
	}
	return c, nil
}
