package httplimit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/answered"
	"github.com/stint-go/stint/internal/ends"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/running"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/rules"
)

// A Middleware puts limits before handlers. It is safe for concurrent use; make it with [New] once and wrap as many
// handlers as are to share the limits.
type Middleware struct {
	config  Config
	server  adapt.Server
	address func(*http.Request) string
	plain   adapt.Plain[*http.Request]
	// decide describes a request and decides it: byPlain or byRules. cost holds what it costs; nil: it takes.
	decide      func(*http.Request, *adapt.Evaluation, *running.Cost) error
	evaluations adapt.Evaluations
	ends        ends.Queue // of holds, which failed
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
//
// With [Config.Reserve] it holds what a request costs while next runs: see there.
func (m *Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		held, cost, admitted := m.begin(w, r)
		switch {
		case cost == nil && admitted:
			next.ServeHTTP(w, held)
		case cost == nil:
		default:
			defer m.end(r, cost)
			if admitted && cost.Counts() {
				answer := &answered.Writer{ResponseWriter: w}
				cost.Answer(r.Context(), func() { next.ServeHTTP(answer, held) }, func() int { return answer.Begun })
			} else if admitted {
				next.ServeHTTP(w, held)
			}
		}
	})
}

// An unfitError is one of Key, Cost or Describe.
type unfitError struct{ error }

// unfit is such an error, if there is one.
func unfit(err error) error {
	if err != nil {
		err = unfitError{err}
	}
	return err
}

// admit decides a request, and answers it unless it is admitted. Evaluations are reused, as one has room for a verdict
// and the outcomes of all limits.
//
// A request that a rule marks is another one then, whose context says so.
func (m *Middleware) admit(w http.ResponseWriter, r *http.Request, cost *running.Cost) (*http.Request, bool) {
	e := m.evaluations.Get()
	defer m.evaluations.Put(e)
	v := &e.Verdict
	switch err := m.carryOut(w.Header(), r, e, cost); {
	case err != nil:
		m.fail(w, r, err)
		return r, false
	case v.Allowed && len(v.Exceeded) > 0:
		adapt.WriteExceeded(w.Header(), v.Exceeded)
		return r.WithContext(context.WithValue(r.Context(), exceededKey{}, slices.Clone(v.Exceeded))), true
	case v.Allowed:
		return r, true
	case m.config.Denied != nil:
		m.config.Denied(w, r, v)
	case v.Unauthenticated():
		w.Header()["Www-Authenticate"] = noCredentials
		unknown(w, r)
	default:
		exceeded(w, r)
	}
	return r, false
}

// fail tells of a request that was not decided, and answers it.
func (m *Middleware) fail(w http.ResponseWriter, r *http.Request, err error) {
	fault, isUnfit := errors.AsType[unfitError](err)
	if isUnfit {
		err = fault.error
	}
	if m.config.Failed != nil {
		m.config.Failed(r, err)
	}
	if errors.Is(err, stint.ErrOverloaded) {
		w.Header().Set("Retry-After", "1")
	}
	switch {
	case m.config.Undecided != nil:
		m.config.Undecided(w, r, err)
	case errors.Is(err, stint.ErrInvalid):
		problem(http.StatusBadRequest, prefix.Trim(err.Error()))(w, r)
	case isUnfit: // the text of an error that is not about the input stays inside
		problem(http.StatusBadRequest, "the request does not say what its rate limit needs to know")(w, r)
	default:
		unavailable(w, r)
	}
}

// carryOut decides a request, holds one that has a turn to wait for, and writes the fields. A
// verdict of a service has its header fields with it, of which those of the set are copied. Other
// fields are those of the policy that decided, which carries them.
func (m *Middleware) carryOut(
	header http.Header, r *http.Request, e *adapt.Evaluation, cost *running.Cost,
) error {
	v := &e.Verdict
	if err := m.decide(r, e, cost); err != nil {
		return err
	}
	if m.config.Decided != nil {
		m.config.Decided(r, v)
	}
	if v.Decision.Delay > 0 && v.Allowed {
		if err := sleep.For(r.Context(), v.Decision.Delay); err != nil {
			return err
		}
	}
	switch {
	case v.Remote != nil:
		m.config.Fields.copy(header, v.Remote.Header)
	case v.Claim.Policy == nil, m.config.Fields == NoFields:
	default:
		HeadersOf(v.Claim.Policy, m.config.Fields).Write(header, v.Decision, v.Each)
	}
	return nil
}

// PerAddress makes a middleware that limits each client's address, as [New] does by default.
// Without a limiter every request gets status 500. Behind a proxy use New: it is told by
// Config.Clients whose forwarded fields to believe.
func PerAddress(limiter *stint.Limiter) *Middleware {
	m, err := New(Config{Limiter: limiter})
	if err != nil { // the limiter is nil
		answer := problem(http.StatusInternalServerError, prefix.Trim(err.Error()))
		m = &Middleware{
			config: Config{Undecided: func(w http.ResponseWriter, r *http.Request, _ error) { answer(w, r) }},
			decide: func(*http.Request, *adapt.Evaluation, *running.Cost) error { return err },
		}
	}
	return m
}

// New makes a middleware, or reports everything that is wrong with the configuration.
//
// By rules, a request is decided by all that match it; one that matches none is admitted, unless the
// limiter denies by default. It is held before its handler as long as rules that wait hold it, and
// until a leaky bucket's turn whether its rule waits or not. The response gets the fields of the
// rule that decided. A request that is denied by no limit, since a rule bans it or it lacks what a
// rule asks for, gets none of them, Retry-After neither.
func New(config Config) (*Middleware, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	clients := config.Clients
	if clients == nil { // one that trusts nobody
		var err error
		if clients, err = clientip.New(clientip.Config{}); err != nil {
			return nil, err
		}
	}
	m := &Middleware{config: config, server: config.server(), address: addresses(clients, config.Clients == nil)}
	m.config.Fields = cmp.Or(config.Fields, AllFields)
	m.plain = m.config.plain(m.address)
	m.decide = m.byPlain
	if config.Rules != nil {
		m.decide = m.byRules
	}
	return m, nil
}

// byPlain decides by plain limits.
func (m *Middleware) byPlain(r *http.Request, e *adapt.Evaluation, cost *running.Cost) error {
	return m.plain.Decide(r.Context(), &m.server, r, cost, e)
}

// plain is what plain limits have to know of a request, whose client's address counts by default.
func (c *Config) plain(address func(*http.Request) string) (p adapt.Plain[*http.Request]) {
	p.Cost, p.LimiterOf, p.Key = fitting(c.Cost), c.LimiterOf, fitting(c.Key)
	if c.Key == nil {
		p.Key = func(r *http.Request) (string, error) { return address(r), nil }
	}
	p.NeedsEach = func(policy *stint.Policy) bool { return HeadersOf(policy, c.Fields).NeedsEach() }
	return p
}

// fitting marks the errors of a function of the configuration, if it has one.
func fitting[T any](find func(*http.Request) (T, error)) func(*http.Request) (T, error) {
	if find == nil {
		return nil
	}
	return func(r *http.Request) (T, error) {
		found, err := find(r)
		return found, unfit(err)
	}
}

// byRules decides by rules.
func (m *Middleware) byRules(r *http.Request, e *adapt.Evaluation, cost *running.Cost) error {
	e.Request = rules.FromHTTP(r)
	e.Request.Address = m.address(r)
	if m.config.Describe != nil {
		if err := m.config.Describe(r, &e.Request); err != nil {
			return unfit(err)
		}
	}
	return m.server.DecideByRules(r.Context(), true, cost, e)
}

// The answers by default.
var (
	exceeded    = problem(http.StatusTooManyRequests, "the rate limit is exceeded")
	unknown     = problem(http.StatusUnauthorized, "the request does not say who sends it")
	unavailable = problem(http.StatusServiceUnavailable, "the rate limit could not be decided")
)

// noCredentials is the challenge that RFC 9110, section 15.5.2, demands of a 401, by a scheme that no
// client knows: which credentials the program takes is not known here.
var noCredentials = []string{"Stint-RateLimit"}

// watchedRequests is among how many requests of a middleware one with a forwarded field is looked
// for. After so many requests a proxy would have shown itself, and looking costs nothing any more.
const watchedRequests = 1000

// addresses finds the addresses of clients. If no proxy is trusted, and one of the first requests
// has a field in which proxies name the client, it says so once, by the default logger: behind a
// proxy all clients count as one. It warns about the commonest mistake in a deployment, whose
// effect, everybody denied at once, looks like an attack.
func addresses(clients *clientip.Resolver, trustsNobody bool) func(*http.Request) string {
	if !trustsNobody {
		return func(r *http.Request) string { return clients.Key(r.RemoteAddr, r.Header) }
	}
	var seen atomic.Int64
	headers := clientip.DefaultHeaders()
	return func(r *http.Request) string {
		if seen.Load() < watchedRequests {
			for _, name := range headers {
				if len(r.Header[name]) > 0 && seen.Swap(watchedRequests) < watchedRequests {
					slog.WarnContext(r.Context(), "httplimit: a forwarded header is ignored, as no proxy is trusted. "+
						"If the peer is your proxy, all of its clients count as one: name it in Config.Clients",
						"header", name, "peer", r.RemoteAddr)
				}
			}
			seen.Add(1)
		}
		return clients.Key(r.RemoteAddr, r.Header)
	}
}

// A Config says what a [Middleware] is made of: one of Limiter, LimiterOf and Rules; the rest has defaults. Its
// functions must be safe for concurrent use, and must not keep the verdicts and descriptions that they are given.
type Config struct {
	// Limiter decides by plain limits. Wrap a store that may be unreachable in one of package failover, which says what
	// happens then. Default: nil, LimiterOf or Rules do.
	Limiter *stint.Limiter
	// LimiterOf finds the limiter of a request, for limits that depend on who asks, as those of a plan do:
	// stint.Limiter.With makes them quickly. A request whose limiter is nil, without an error, is not limited, and gets no
	// fields. An error is answered as the store's: it wraps stint.ErrInvalid, or is made to wrap
	// stint.ErrUnavailable. Default: nil, Limiter or Rules decide.
	LimiterOf func(*http.Request) (*stint.Limiter, error)
	// Rules decide by all that match a request: an enforce.Limiter, whose rules may be swapped while requests come,
	// or Rules of package client, which are those of a service. Default: nil, plain limits do.
	Rules enforce.Decider

	// Key is whom a request counts for by plain limits, 1 to 256 bytes. Default: nil, the
	// client's address as Clients finds it.
	Key func(*http.Request) (string, error)
	// Cost is how many permits a request takes by plain limits. At 0, such as for health checks, it is admitted without
	// asking for the limiter or the key, and the response gets no fields. Default: nil, 1.
	Cost func(*http.Request) (int64, error)
	// Describe completes what Rules know of a request: its user and API key, as far as they are
	// known for certain, and its attributes, for which it makes a map. Method, host, path, header and address are
	// there, the latter as Clients finds it; it may change them. Default: nil, requests have no user, API key and
	// attributes.
	Describe func(*http.Request, *rules.Request) error
	// Clients finds the client's address. It must be nil when there is a Key. Default:
	// nil, one that trusts no proxy: a client is its peer.
	Clients *clientip.Resolver

	// SkipPreflights admits preflight requests of CORS without asking for anything, as if they took nothing; they get no
	// fields, and nobody is told of them. Anybody can send such requests. It is for limits outside of what answers them;
	// CORS belongs outside of the limits, so that denials have its fields, too. Default: false.
	SkipPreflights bool

	// Reserve holds what a request costs while its handler runs, in the place of taking it, and renews
	// the hold: so a request takes a place of stint.Concurrency, or what it may cost at most. When the
	// handler returns, panics or is left by its client, the hold is committed with the cost that the
	// handler has said by [Cost], or with what is held. The handler's context ends, with stint.ErrLost
	// as its cause, when the hold is lost. It must have no ID. Default: nil, requests take.
	//
	// By rules, the handler says the cost of the limits whose cost requests may name, or of all if there is none.
	// Rules with a concurrency limit hold only so, and a rule's own reserve says how long and what expiry charges.
	// Rules that wait deny at once. Only an enforce.Limiter holds.
	//
	// Rules that count by answers hold only so as well; which answer it was the middleware sees.
	//
	// A commit that fails is sent again in the background until the store forgets the hold: max(2 x TTL,
	// 60 s) after it expires. A middleware repeats 10,000 at most; further ones are given up. Failed is
	// told of each, and Drain waits for them.
	Reserve *stint.Hold
	// Count says which requests plain limits count, by the status of their answers: five failed logins, say. A request
	// holds what it costs while its handler runs, by Reserve or, without one, by a hold of a minute that is renewed. It
	// gets it back if Count says false, but for limits with a cost of their own. One that has no answer since its process
	// died is counted. A panic is 500, a client that has gone before its answer began is 499, an upgrade is 101. Denied
	// only by what requests under way hold, a request is told to come again after a second. Leaky buckets, CountDenied and
	// Lease can't give back, and are faults. Default: nil, all are counted. Not with Rules, whose rules say it by Count.
	Count func(status int) bool

	// Fields are the header fields that responses get. Default: 0, which is AllFields;
	// NoFields is none. Without IETF a decision costs less.
	Fields Fields

	// Decided is told each verdict, before the request is answered or handled: for logs and
	// metrics. An admitting verdict whose Claim has no policy asked no limit, and one by plain limits has no Rule. One
	// whose Decision.Delay is not 0 is held after that, for its turn of a leaky bucket: should its client go away
	// meanwhile, it does not reach the handler, and Failed is told too. Default: nil.
	Decided func(*http.Request, *enforce.Verdict)
	// Denied answers a request that the verdict denies, whose Reason says why; one too that will have ended before its
	// turn of a leaky bucket, which is then left to others. The fields are written by then. Default: nil, a problem
	// document of status 429, or of 401 where the verdict is Unauthenticated.
	Denied func(http.ResponseWriter, *http.Request, *enforce.Verdict)
	// Failed is told the error of each request that is not decided, before it is answered: for logs and metrics. It is
	// that of Key, Cost, Describe or LimiterOf, wraps stint.ErrInvalid for a value that no limit takes, wraps
	// stint.ErrUnavailable when the store could not decide, or is the context's of a request that ended while it was
	// held. Denials are none.
	//
	// It is told an enforce.EndError, too, when a request's hold could not be ended; if that is given up later, by a copy
	// of the request without body and values of the context. Default: nil.
	Failed func(*http.Request, error)
	// Undecided answers a request that Failed is told of. Default: nil, a problem document: of status 400 for an error
	// that wraps stint.ErrInvalid, whose text it shows, and for any other of Key, Cost and Describe; of status 503 for
	// the rest.
	Undecided func(http.ResponseWriter, *http.Request, error)
}

// server is by what the middleware decides.
func (c *Config) server() adapt.Server {
	s := adapt.Server{Limiter: c.Limiter, Rules: c.Rules, Reserve: c.Reserve, Count: c.Count}
	if c.Count != nil {
		s.Reserve = adapt.Holding(c.Reserve)
	}
	return s
}

// validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c *Config) validate() error {
	server := c.server()
	faults := server.Faults(adapt.Functions{
		LimiterOf: c.LimiterOf != nil, Key: c.Key != nil, Cost: c.Cost != nil, Describe: c.Describe != nil,
		Count: c.Count != nil,
	}, c.Clients != nil)
	return prefix.Join(append(faults, c.Fields.validate())...)
}

// problem answers with a problem document (RFC 9457), which nobody may cache.
func problem(status int, detail string) http.HandlerFunc {
	// Texts and a number always marshal.
	document, _ := json.Marshal(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, detail})
	mediaType, noStore := []string{"application/problem+json"}, []string{"no-store"}
	return func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header["Content-Type"] = mediaType
		header["Cache-Control"] = noStore
		w.WriteHeader(status)
		// A client that is gone by now has no use for the error.
		_, _ = w.Write(document)
	}
}
