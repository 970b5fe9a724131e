package httplimit

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/ends"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
)

// A Middleware puts a limit before handlers. It is safe for concurrent use; make it with [New] or
// [NewRules] once and wrap as many handlers as are to share the limit. The functions are what plain
// limits and rules differ in: New fills them for a limiter, NewRules for rules; admit is common to
// both.
type Middleware struct {
	// describe tells whom a request counts for, or what rules know of it; decide decides it.
	describe, decide func(*http.Request, *enforce.Evaluation) error
	// reserve decides in the place of decide, and holds what the request costs; nil: nothing is held
	reserve func(*http.Request, *enforce.Evaluation, *enforce.RunningCost) error
	decided func(*http.Request, *enforce.Verdict) // nil: nobody is told
	fields  Fields
	// of the one policy; nil: of that which decided
	headers     *Headers
	failed      func(*http.Request, error) // nil: nobody is told
	denied      func(http.ResponseWriter, *http.Request, *enforce.Verdict)
	unavailable http.Handler
	unfit       func(http.ResponseWriter, *http.Request, error)
	evaluations enforce.Evaluations
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
	if m.reserve != nil {
		return m.wrapHolding(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.Admit(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// Admit is Wrap for a framework that calls the next handler in a way of its own: it
// reports whether the request is admitted, and has answered it otherwise. It takes what
// the request costs, also with [Config.Reserve].
func (m *Middleware) Admit(w http.ResponseWriter, r *http.Request) bool {
	return m.admit(w, r, m.decide)
}

// admit is Admit, by a decision of any kind. Evaluations are reused, as one has room for a verdict
// and the outcomes of all limits. What ends with an error is answered by unfit if the request is at
// fault, and by unavailable if the store is.
func (m *Middleware) admit(
	w http.ResponseWriter, r *http.Request, decide func(*http.Request, *enforce.Evaluation) error,
) bool {
	e := m.evaluations.Get()
	v := &e.Verdict
	err := m.describe(r, e)
	unfit := err != nil
	if err == nil {
		err = m.carryOut(w.Header(), r, e, decide)
		unfit = errors.Is(err, stint.ErrInvalid)
	}
	if err != nil && m.failed != nil {
		m.failed(r, err)
	}
	admitted := err == nil && v.Allowed
	switch {
	case admitted:
	case err == nil:
		m.denied(w, r, v)
	case unfit:
		m.unfit(w, r, err)
	default:
		if errors.Is(err, stint.ErrOverloaded) {
			w.Header().Set("Retry-After", "1")
		}
		m.unavailable.ServeHTTP(w, r)
	}
	m.evaluations.Put(e)
	return admitted
}

// carryOut decides a request, holds one that has a turn to wait for, and writes the fields. A
// verdict of a service has its header fields with it, of which those of the set are copied. The
// fields of rules are those of the policy that decided, which carries them.
func (m *Middleware) carryOut(
	header http.Header,
	r *http.Request,
	e *enforce.Evaluation,
	decide func(*http.Request, *enforce.Evaluation) error,
) error {
	v := &e.Verdict
	if err := decide(r, e); err != nil {
		return err
	}
	if m.decided != nil {
		m.decided(r, v)
	}
	if v.Decision.Delay > 0 && v.Allowed {
		if err := sleep.For(r.Context(), v.Decision.Delay); err != nil {
			return err
		}
	}
	switch {
	case v.Remote != nil:
		m.fields.copy(header, v.Remote.Header)
	case v.Claim.Policy == nil, m.fields == NoFields:
	case m.headers != nil:
		m.headers.Write(header, v.Decision, v.Each)
	default:
		HeadersOf(v.Claim.Policy, m.fields).Write(header, v.Decision, v.Each)
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
			describe: func(*http.Request, *enforce.Evaluation) error { return err },
			unfit:    func(w http.ResponseWriter, r *http.Request, _ error) { answer(w, r) },
		}
	}
	return m
}

// New makes a middleware of plain limits, or reports everything that is wrong with the
// configuration.
func New(config Config) (*Middleware, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	m := &Middleware{fields: config.Fields, failed: config.Failed, unavailable: config.Unavailable, unfit: config.Unfit}
	if config.Denied != nil {
		m.denied = func(w http.ResponseWriter, r *http.Request, v *enforce.Verdict) { config.Denied(w, r, v.Decision) }
	}
	clients, err := m.complete(config.Clients)
	if err != nil {
		return nil, err
	}
	m.headers = HeadersOf(config.Limiter.Policy(), m.fields)
	address := addresses(clients, config.Clients == nil)
	m.describe = func(r *http.Request, e *enforce.Evaluation) (err error) {
		claim := &e.Verdict.Claim
		claim.Permits = 1
		if config.Cost != nil {
			if claim.Permits, err = config.Cost(r); err != nil || claim.Permits == 0 {
				return err
			}
		}
		if config.Key == nil {
			claim.Key = address(r)
			return nil
		}
		claim.Key, err = config.Key(r)
		return err
	}
	m.decide = func(r *http.Request, e *enforce.Evaluation) error {
		ctx, claim := r.Context(), e.Verdict.Claim
		deadline, _ := ctx.Deadline()
		return e.Verdict.DecidePlain(ctx, config.Limiter, claim.Key, claim.Permits, m.headers.NeedsEach(), deadline)
	}
	if config.Reserve != nil {
		hold := *config.Reserve
		m.reserve = func(r *http.Request, e *enforce.Evaluation, cost *enforce.RunningCost) error {
			claim, each := e.Verdict.Claim, m.headers.NeedsEach()
			return e.Verdict.ReservePlain(r.Context(), config.Limiter, claim.Key, claim.Permits, each, hold, cost)
		}
	}
	return m, nil
}

// complete fills in defaults, and returns what finds the clients' addresses.
func (m *Middleware) complete(clients *clientip.Resolver) (_ *clientip.Resolver, err error) {
	if m.fields == 0 {
		m.fields = AllFields
	}
	if m.denied == nil {
		denied := problem(http.StatusTooManyRequests, "the rate limit is exceeded")
		unknown := problem(http.StatusUnauthorized, "the request does not say who sends it")
		m.denied = func(w http.ResponseWriter, r *http.Request, v *enforce.Verdict) {
			if v.Unauthenticated() {
				w.Header()["Www-Authenticate"] = noCredentials
				unknown(w, r)
				return
			}
			denied(w, r)
		}
	}
	if m.unavailable == nil {
		m.unavailable = problem(http.StatusServiceUnavailable, "the rate limit could not be decided")
	}
	if m.unfit == nil {
		m.unfit = unfit
	}
	if clients == nil { // one that trusts nobody
		clients, err = clientip.New(clientip.Config{})
	}
	return clients, err
}

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
	// Reserve holds what a request costs while its handler runs, in the place of taking it, and renews
	// the hold: so a request takes a place of stint.Concurrency, or what it may cost at most. When the
	// handler returns, panics or is left by its client, the hold is committed with the cost that the
	// handler has said by [Cost], or with what is held. The handler's context ends, with stint.ErrLost
	// as its cause, when the hold is lost. Only Wrap and Begin hold. It must have no ID. Default: nil,
	// requests take.
	//
	// A commit that fails is sent again in the background until the store forgets the hold: max(2 x TTL,
	// 60 s) after it expires. A middleware repeats 10,000 at most; further ones are given up. Failed is
	// told of each, and Drain waits for them.
	Reserve *stint.Hold

	// Fields are the header fields that responses get. Default: 0, which is AllFields;
	// NoFields is none. Without IETF a decision costs less.
	Fields Fields

	// Denied answers a request that is over the limit, or that will have ended before its turn of
	// a leaky bucket, which is then left to others; the fields are written by then. The decision
	// says how much is left, and when to come again. Default: nil, a problem document of status 429.
	Denied func(http.ResponseWriter, *http.Request, stint.Decision)
	// Unavailable answers a request that could not be decided, or whose context ended
	// while it was held. Default: nil, a problem document of status 503.
	Unavailable http.Handler
	// Unfit answers a request without a key or a cost: the error is that of Key or Cost, or wraps
	// stint.ErrInvalid for a value that no limit takes. Default: nil, a problem document of status
	// 400, which shows the text of an error that wraps stint.ErrInvalid and of no other.
	Unfit func(http.ResponseWriter, *http.Request, error)

	// Failed is told the error of each request that Unavailable or Unfit answers, before that: for logs
	// and metrics. It wraps stint.ErrUnavailable when the store could not decide, and is the context's
	// of a request that ended while it was held. Denials are none.
	//
	// It is told, too, when a request's hold could not be committed: an enforce.EndError, which carries the
	// hold. Where that is Repeated and given up in the end, it is told again, in another goroutine: by a
	// copy of the request without body and values of the context. Default: nil.
	Failed func(*http.Request, error)
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c Config) Validate() error {
	var faults []error
	if c.Limiter == nil {
		faults = append(faults, stint.Invalid("limiter", "nil", "a limiter made by stint.New"))
	}
	if c.Limiter != nil && c.Reserve == nil && slices.ContainsFunc(c.Limiter.Policy().Limits(), isConcurrency) {
		faults = append(faults, stint.Invalid("reserve", "nil", "a hold, since the limiter has a concurrency limit"))
	}
	if c.Reserve != nil && c.Reserve.ID != "" {
		faults = append(faults, stint.Invalid("reserve.id", c.Reserve.ID, "none: each request has a hold of its own"))
	}
	if c.Key != nil && c.Clients != nil {
		faults = append(faults, stint.Invalid("clients", "set", "nil when there is a key function, which is asked instead"))
	}
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

// unfit answers a request without a key or a cost. The text of an error that is not
// about the input stays inside.
func unfit(w http.ResponseWriter, r *http.Request, err error) {
	detail := "the request does not say what its rate limit needs to know"
	if errors.Is(err, stint.ErrInvalid) {
		detail = prefix.Trim(err.Error())
	}
	problem(http.StatusBadRequest, detail)(w, r)
}
