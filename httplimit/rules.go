package httplimit

import (
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/prefix"
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

	// Reserve holds what a request costs while its handler runs, in the place of taking it, as
	// [Config.Reserve] says: by rules, the handler says the cost of the limits whose cost requests may
	// name, or of all if there is none. Rules with a concurrency limit hold only so. Rules that wait deny
	// at once. Only an enforce.Limiter holds. Default: nil, requests take.
	Reserve *stint.Hold

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
	// the context's of a request that ended while it was held. Denials are none. Of a hold that could not
	// be committed it is told as Config.Failed is. Default: nil.
	Failed func(*http.Request, error)

	// Denied answers a request that the verdict denies, whose Reason says why; one too that will have ended before its
	// turn of a leaky bucket; the fields are written by then. Default: nil, a problem document of status 429, or of 401
	// where the verdict is Unauthenticated.
	Denied func(http.ResponseWriter, *http.Request, *enforce.Verdict)
	// Unavailable answers a request that could not be decided, or whose context ended
	// while it was held. Default: nil, a problem document of status 503.
	Unavailable http.Handler
	// Unfit answers a request that could not be described: the error is that of Describe, or wraps
	// stint.ErrInvalid for a cost that is none, or a path that is too long for all that it can be read
	// as (rules.MaxOddPathBytes, rules.MaxOddPathCuts). Default: nil, a problem document of status
	// 400, which shows the text of an error that wraps stint.ErrInvalid and of no other.
	Unfit func(http.ResponseWriter, *http.Request, error)
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c RulesConfig) Validate() error {
	var faults []error
	if c.Limiter == nil {
		faults = append(faults, stint.Invalid("limiter", "nil", "a limiter made by enforce.New, or a client's Rules"))
	}
	if _, holds := c.Limiter.(enforce.Holder); c.Reserve != nil && !holds {
		faults = append(faults, stint.Invalid("reserve", "set",
			"nil, as the limiter holds nothing, or a limiter made by enforce.New"))
	}
	if c.Reserve != nil && c.Reserve.ID != "" {
		faults = append(faults, stint.Invalid("reserve.id", c.Reserve.ID, "none: each request has a hold of its own"))
	}
	return prefix.Join(append(faults, c.Fields.validate())...)
}

// NewRules makes a middleware by rules, or reports everything that is wrong with the configuration.
// A request is decided by all rules that match it; one that matches none is admitted, unless the
// limiter denies by default. It is held before its handler as long as rules that wait hold it, and
// until a leaky bucket's turn whether its rule waits or not. The response gets the fields of the
// rule that decided. A request that is denied by no limit, since a rule bans it or it lacks what a
// rule asks for, gets none of them, Retry-After neither. It needs no policy beforehand: the fields
// of each rule's policy are prepared when it first decides (see HeadersOf).
func NewRules(config RulesConfig) (*Middleware, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	m := &Middleware{
		decided: config.Decided, fields: config.Fields, failed: config.Failed,
		denied: config.Denied, unavailable: config.Unavailable, unfit: config.Unfit,
	}
	clients, err := m.complete(config.Clients)
	if err != nil {
		return nil, err
	}
	address := addresses(clients, config.Clients == nil)
	m.describe = func(r *http.Request, e *enforce.Evaluation) error {
		e.Request = rules.FromHTTP(r)
		e.Request.Address = address(r)
		if config.Describe == nil {
			return nil
		}
		return config.Describe(r, &e.Request)
	}
	m.decide = func(r *http.Request, e *enforce.Evaluation) error {
		return config.Limiter.Decide(r.Context(), &e.Request, &e.Verdict)
	}
	if holder, holds := config.Limiter.(enforce.Holder); holds && config.Reserve != nil {
		hold := *config.Reserve
		m.reserve = func(r *http.Request, e *enforce.Evaluation, cost *enforce.RunningCost) error {
			return cost.Reserve(r.Context(), holder, &e.Request, hold, &e.Verdict)
		}
	}
	return m, nil
}
