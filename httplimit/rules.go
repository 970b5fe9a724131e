package httplimit

import (
	"errors"
	"net/http"
	"sync"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/rules"
)

// A RulesConfig says what a [Middleware] by rules is made of. Only Limiter has no default. Its
// functions and handlers must be safe for concurrent use, and must not keep the verdicts and
// descriptions that they are given.
type RulesConfig struct {
	// Limiter decides by all rules that match a request: an enforce.Limiter, whose rules may be
	// swapped while requests come, or client.Rules, which are those of a service. It must not be nil.
	Limiter enforce.Decider

	// Describe completes what rules know of a request: its user and API key, as far as they are
	// known for certain, and its attributes, for which it makes a map. Method, host, path, header and address are
	// there, the latter as Clients finds it; it may change them. Its errors are as those of
	// Unfit. Default: nil, requests have no user, API key and attributes.
	Describe func(*http.Request, *rules.Request) error
	// Clients finds the client's address. Default: nil, one that trusts no proxy: a client
	// is its peer.
	Clients *clientip.Resolver

	// Fields are the header fields that responses get, those of the rule that decided. Default: 0,
	// which is AllFields; NoFields is none.
	Fields Fields

	// Decided is told each verdict, before the request is answered or handled: for logs and
	// metrics. An admitting verdict has no Rule when no limit was asked. One whose Decision.Delay is
	// not 0 is held after that, for its turn of a leaky bucket: should its client go away meanwhile, it does
	// not reach the handler, and Failed is told too. Default: nil.
	Decided func(*http.Request, *enforce.Verdict)
	// Failed is told the error of each request that Unavailable or Unfit answers, before that: for logs
	// and metrics. It is Describe's, wraps stint.ErrUnavailable when the store could not decide, or is
	// the context's of a request that ended while it was held. Denials are none. Default: nil.
	Failed func(*http.Request, error)

	// Denied answers a request that the verdict denies, whose Reason says why; one too that will have ended before its turn
	// of a leaky bucket; the fields are written by then. Default: nil, a problem document of status 429.
	Denied func(http.ResponseWriter, *http.Request, *enforce.Verdict)
	// Unavailable answers a request that could not be decided, or whose context ended
	// while it was held. Default: nil, a problem document of status 503.
	Unavailable http.Handler
	// Unfit answers a request that could not be described: the error is that of Describe, or
	// wraps stint.ErrInvalid for a cost that is none, or a path that is too long for all that it
	// can be read as (rules.MaxOddPathBytes, rules.MaxOddPathCuts). Default: nil, a problem
	// document of status 400, which shows the text of an error that wraps
	// stint.ErrInvalid and of no other.
	Unfit func(http.ResponseWriter, *http.Request, error)
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c RulesConfig) Validate() error {
	var faults []error
	if c.Limiter == nil {
		faults = append(faults, stint.Invalid("limiter", "nil", "a limiter made by enforce.New, or a client's Rules"))
	}
	return errors.Join(append(faults, c.Fields.validate())...)
}

// withDefaults returns the configuration with its defaults filled in.
func (c RulesConfig) withDefaults() (RulesConfig, error) {
	rest, err := Config{Clients: c.Clients, Fields: c.Fields, Unavailable: c.Unavailable, Unfit: c.Unfit}.withDefaults()
	if err != nil {
		return c, err
	}
	c.Clients, c.Fields, c.Unavailable, c.Unfit = rest.Clients, rest.Fields, rest.Unavailable, rest.Unfit
	if c.Denied == nil {
		c.Denied = func(w http.ResponseWriter, r *http.Request, _ *enforce.Verdict) { rest.Denied.ServeHTTP(w, r) }
	}
	return c, nil
}

// NewRules makes a middleware by rules, or reports everything that is wrong with the
// configuration. A request is decided by all rules that match it; one that matches none is
// admitted, unless the limiter denies by default. It is held before its handler as long as rules that wait hold it, and until a leaky bucket's turn
// whether its rule waits or not.
// The response gets the fields of the rule that decided. A request that is denied by no limit, since
// a rule bans it or it lacks what a rule asks for, gets none of them, Retry-After neither.
func NewRules(config RulesConfig) (*Middleware, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Middleware{gate: &ruled{config: config}}, nil
}

// A ruled gate decides by rules.
type ruled struct {
	config      RulesConfig
	evaluations evaluations
}

func (g *ruled) admit(w http.ResponseWriter, r *http.Request) bool {
	e := g.evaluations.get()
	err := g.decide(w.Header(), r, e)
	tell(g.config.Failed, r, err)
	admitted := err == nil && e.verdict.Allowed
	switch {
	case admitted:
	case err == nil:
		g.config.Denied(w, r, &e.verdict)
	case e.undescribed || errors.Is(err, stint.ErrInvalid):
		g.config.Unfit(w, r, err)
	default:
		adviseRetry(w, err)
		g.config.Unavailable.ServeHTTP(w, r)
	}
	g.evaluations.put(e)
	return admitted
}

// decide describes the request to the rules, holds who has a turn to wait for, and writes the
// fields.
func (g *ruled) decide(header http.Header, r *http.Request, e *evaluation) error {
	q, v, ctx := &e.request, &e.verdict, r.Context()
	*q = rules.FromHTTP(r)
	q.Address = g.config.Clients.Key(r.RemoteAddr, r.Header)
	if err := e.describe(g.config.Describe, r); err != nil {
		return err
	}
	if err := g.config.Limiter.Decide(ctx, q, v); err != nil {
		return err
	}
	if g.config.Decided != nil {
		g.config.Decided(r, v)
	}
	if v.Decision.Delay > 0 {
		if err := sleep.For(ctx, v.Decision.Delay); err != nil {
			return err
		}
	}
	switch {
	case v.Remote != nil:
		g.config.Fields.copy(header, v.Remote.Header)
	case v.Claim.Policy != nil:
		HeadersOf(v.Claim.Policy, g.config.Fields).Write(header, v.Decision, v.Each)
	}
	return nil
}

// An evaluation is what deciding one request by rules needs for a moment. The zero value is
// ready to use, and one that is used again saves its allocations.
type evaluation struct {
	request     rules.Request
	verdict     enforce.Verdict
	undescribed bool // whether the program could not describe the request
}

// describe has the program complete the description, if it wants to.
func (e *evaluation) describe(complete func(*http.Request, *rules.Request) error, r *http.Request) error {
	if complete == nil {
		return nil
	}
	err := complete(r, &e.request)
	e.undescribed = err != nil
	return err
}

// fewRules is how many rules an evaluation may have met whose room is kept.
const fewRules = 256

// evaluations keeps them to be used again. The zero value is ready.
type evaluations struct{ pool sync.Pool }

func (p *evaluations) get() *evaluation {
	if e, ok := p.pool.Get().(*evaluation); ok {
		return e
	}
	return new(evaluation)
}

// put forgets the request.
func (p *evaluations) put(e *evaluation) {
	e.request, e.undescribed = rules.Request{}, false
	if len(e.verdict.Matched) <= fewRules {
		p.pool.Put(e)
	}
}
