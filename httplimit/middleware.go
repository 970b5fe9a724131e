package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/sleep"
)

// A Middleware puts a limit before handlers. It is safe for concurrent use; make it
// with [New] or [NewRules] once and wrap as many handlers as are to share the limit.
type Middleware struct{ gate gate }

// A gate decides about requests, and answers those that it does not admit.
type gate interface {
	admit(w http.ResponseWriter, r *http.Request) bool
}

// Wrap returns a handler that calls next, which must not be nil, for the requests
// that are admitted, and holds them before for as long as a leaky bucket says. The
// rate limit fields are in the response's header when next is called; those that it
// sets itself replace them. They tell of the decision, which came before the holding.
// A decision that a failure policy made in the store's stead has no fields.
//
// The holding is bounded by the leaky bucket's capacity, by what rules that wait say, and by the
// deadline of the request's context. An http.Server whose WriteTimeout is shorter runs the
// handler and drops its answer, so give requests a deadline within it. In HTTP/1 net/http
// does not notice that the client of a request is gone whose body has not been read: one that is held is
// handled all the same when its turn has come.
//
// The method is what routers take as a middleware, such as chi's Use and, by
// echo.WrapMiddleware, echo's.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.gate.admit(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// Admit is Wrap for who calls the next handler in a way of its own, such as a framework: it
// reports whether the request is admitted, and has answered it otherwise.
func (m *Middleware) Admit(w http.ResponseWriter, r *http.Request) bool { return m.gate.admit(w, r) }

// A plain gate decides by the limits of one policy.
type plain struct {
	config  Config
	headers *Headers
	each    sync.Pool // of *[]stint.Outcome, as long as the policy
}

// New makes a middleware of plain limits, or reports everything that is wrong with the
// configuration.
func New(config Config) (*Middleware, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	policy := config.Limiter.Policy()
	p := &plain{config: config, headers: HeadersOf(policy, config.Fields)}
	p.each.New = func() any {
		each := make([]stint.Outcome, policy.Len())
		return &each
	}
	return &Middleware{gate: p}, nil
}

func (p *plain) admit(w http.ResponseWriter, r *http.Request) bool {
	key, cost, err := p.claim(r)
	if err != nil {
		tell(p.config.Failed, r, err)
		p.config.Unfit(w, r, err)
		return false
	}
	if cost == 0 {
		return true
	}
	d, err := p.decide(r.Context(), w.Header(), key, cost)
	tell(p.config.Failed, r, err)
	switch {
	case err == nil && d.Allowed:
		return true
	case err == nil:
		p.config.Denied.ServeHTTP(w, r)
	case errors.Is(err, stint.ErrInvalid):
		p.config.Unfit(w, r, err)
	default:
		adviseRetry(w, err)
		p.config.Unavailable.ServeHTTP(w, r)
	}
	return false
}

// adviseRetry tells when to come back to a server that is too busy.
func adviseRetry(w http.ResponseWriter, err error) {
	if errors.Is(err, stint.ErrOverloaded) {
		w.Header().Set("Retry-After", "1")
	}
}

// tell tells who wants to know of it that a request could not be decided.
func tell(failed func(*http.Request, error), r *http.Request, err error) {
	if err != nil && failed != nil {
		failed(r, err)
	}
}

// claim is whom the request counts for, and for how much: nobody when that is nothing.
func (p *plain) claim(r *http.Request) (key string, cost int64, err error) {
	cost = 1
	if p.config.Cost != nil {
		if cost, err = p.config.Cost(r); err != nil || cost == 0 {
			return "", 0, err
		}
	}
	if p.config.Key == nil {
		return p.config.Clients.Key(r.RemoteAddr, r.Header), cost, nil
	}
	key, err = p.config.Key(r)
	return key, cost, err
}

// decide asks the limiter, holds who has a turn to wait for, and writes the fields.
func (p *plain) decide(ctx context.Context, header http.Header, key string, cost int64) (d stint.Decision, err error) {
	var outcomes []stint.Outcome
	if p.headers.NeedsEach() {
		each := p.each.Get().(*[]stint.Outcome)
		defer p.each.Put(each)
		outcomes = *each
	}
	deadline, _ := ctx.Deadline()
	d, err = p.config.Limiter.AllowBefore(ctx, deadline, key, cost, outcomes)
	if errors.Is(err, stint.ErrDeadline) {
		d.Allowed, d.RetryAfter, err = false, d.Delay, nil // a turn that the request does not last for
	}
	if err == nil && d.Allowed && d.Delay > 0 {
		err = sleep.For(ctx, d.Delay)
	}
	if err == nil {
		p.headers.Write(header, d, outcomes)
	}
	return d, err
}

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

// problem answers with a problem document (RFC 9457), which nobody may cache.
func problem(status int, detail string) http.Handler {
	// Texts and a number always marshal.
	document, _ := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, detail})
	mediaType, noStore := []string{"application/problem+json"}, []string{"no-store"}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header["Content-Type"] = mediaType
		header["Cache-Control"] = noStore
		w.WriteHeader(status)
		// A client that is gone by now has no use for the error.
		_, _ = w.Write(document)
	})
}

// unfit answers a request without a key or a cost. The text of an error that is not
// about the input stays inside.
func unfit(w http.ResponseWriter, r *http.Request, err error) {
	detail := "the request does not say what its rate limit needs to know"
	if errors.Is(err, stint.ErrInvalid) {
		detail = err.Error()
	}
	problem(http.StatusBadRequest, detail).ServeHTTP(w, r)
}
