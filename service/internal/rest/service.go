// Package rest is the REST API: checks by a key and a limit, evaluation by rules, holds, resets, settlements, health
// and metrics, and the same decisions for the Redis protocol and Envoy's rate limit service.
//
// [Service] routes requests (service.go) to endpoints: check.go and hold.go (a key and a limit), evaluate.go and
// forward.go (rules), state.go (reset, settle, remaining), health.go. request.go reads queries and bodies,
// package api has what is answered, package problem the errors; observe.go makes one event of each decision. A
// request's way: its turn ([capacity.Admission]), reading, authority (may it name a key), the store or the rules,
// observers, answer. The work under way ends before the answer is written, since a client may read it slowly.
//
// Rules and limits are swapped whole: a request is decided by those that it began with.
package rest

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/decisionlog"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/holdcount"
	"github.com/stint-go/stint/service/internal/listen"
	"github.com/stint-go/stint/service/internal/requestid"
	"github.com/stint-go/stint/service/internal/scrape"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/rls"
)

//go:embed openapi.yaml
var openAPI []byte

// Values of header fields that never change. They are only read.
var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// A Service is the handler of the REST API, metrics and health. Fields are set by New and
// not changed, but for what is atomic or a pool. It is safe for concurrent use.
type Service struct {
	config    *Config
	parts     Parts
	targets   atomic.Pointer[targets]
	authority *authority
	admission *capacity.Admission
	clients   *clientip.Resolver
	rules     *enforce.Limiter
	fields    httplimit.Fields // of answers
	// swapping is held while rules are swapped, so that metrics, warnings and the limiter see the same
	// order.
	swapping sync.Mutex
	// rulesLoaded is when rules were last put in force; guarded by swapping.
	rulesLoaded time.Time
	metrics     *promlimit.Metrics
	// observers are those of the configuration, and the service's own: metrics first.
	observers  []stint.Observer
	scrapes    *scrape.Pages
	logger     *slog.Logger
	requestIDs *requestid.IDs

	routes     map[string]*route
	noRoute    *route // of the requests to other paths
	answers    *promlimit.Answers
	answerPool sync.Pool // of *problem.CountedAnswer

	evaluations sync.Pool // of *evaluation, what one request needs for a moment: a check allocates next to nothing
	ruleMetrics *promlimit.Rules

	events    *events
	rateLimit *rls.Service // nil without a gRPC listener
}

// ReadRequest reads a body that describes a request, as an evaluation's does.
func (s *Service) ReadRequest(text string) (*rules.Request, error) {
	e := newEvaluation()
	_, err := e.read(text, evaluationMembers, s.clients)
	return &e.request, err
}

// Parts are what a service shares with the listeners. All are needed.
type Parts struct {
	// Clients are as whom requests count.
	Clients *clientip.Resolver
	// Bodies have the memory for the bodies of requests.
	Bodies *capacity.Bodies
	// Draining says that the service is about to stop.
	Draining func() bool
	// Trace is the ID of the trace in which this process records a request, "" if it does not. Default: nil, it records
	// none.
	Trace func(context.Context) string
	// Certificates are where those of the listeners stand, by service.
	Certificates func() map[string]follow.State
	// Gatherer has the metrics that are served, which are registered at Registerer.
	Gatherer   prometheus.Gatherer
	Registerer prometheus.Registerer
}

// New makes the service in the order of what its parts need. Metrics that can't be registered, such as under a label
// that is one of their own, are faults of the configuration, which was validated. The configuration is kept.
func New(config *Config, parts Parts) (*Service, error) {
	ts, err := newTargets(config, Limits{config.Defaults, config.Policies})
	if err != nil {
		return nil, err
	}
	metrics, err := promlimit.NewUnnamed(parts.Registerer)
	if err != nil {
		return nil, err
	}
	ruleMetrics, err := promlimit.NewRules(parts.Registerer)
	if err != nil {
		return nil, err
	}
	if config.Store, err = holdcount.New(config.Store, parts.Registerer); err != nil {
		return nil, err
	}
	limiter, err := enforce.New(enforce.Config{
		Store: config.Store, MaxWait: config.HTTP.LongestWait(), RejectAmbiguousPaths: config.RejectAmbiguousPaths,
		DenyByDefault: config.DenyByDefault,
	})
	if err != nil {
		return nil, err
	}
	events, err := newEvents(parts.Registerer, config.ClientIP.Headers)
	if err != nil {
		return nil, err
	}
	s := &Service{
		config:     config,
		parts:      parts,
		authority:  newAuthority(config.API),
		admission:  capacity.NewAdmission(config.HTTP.MaxOperations),
		clients:    parts.Clients,
		rules:      limiter,
		fields:     config.Headers.Fields(),
		metrics:    metrics,
		observers:  append([]stint.Observer{metrics.Observe}, config.Observers...),
		scrapes:    scrape.New(parts.Gatherer, config.MetricsAge),
		logger:     config.Logger,
		requestIDs: requestid.New(),

		evaluations: sync.Pool{New: func() any { return emptyEvaluation() }},
		ruleMetrics: ruleMetrics,
		events:      events,
		answerPool:  sync.Pool{New: func() any { return new(problem.CountedAnswer) }},
	}
	if config.Activity != nil {
		s.observers = append(s.observers, config.Activity.Observe)
	}
	if err := s.addRateLimit(parts.Registerer); err != nil {
		return nil, err
	}
	if err := s.addRoutes(parts.Registerer); err != nil {
		return nil, err
	}
	s.targets.Store(ts)
	s.SwapRules(config.Rules)
	return s, nil
}

// Limiter has the rules in force.
func (s *Service) Limiter() *enforce.Limiter { return s.rules }

// ListensAt says where the listener of the REST API is. Until then, none is on loopback. It is called before requests
// come.
func (s *Service) ListensAt(addr net.Addr) { s.authority.loopback.Store(listen.IsLoopback(addr)) }

// enter waits until the request's work may begin.
func (s *Service) enter(r *http.Request, cost int64) (*http.Request, capacity.Ticket, error) {
	ctx, t, err := s.enterFor(r.Context(), cost, r.URL.Path, s.address(r))
	if err == nil && ctx != r.Context() {
		r = r.WithContext(ctx)
	}
	return r, t, err
}

// enterFor waits until a client's work may begin, which the log names by what was asked. Where overload
// admits, work that may not begin gets a context that says so, by which the store decides checks without
// being asked, and has the rest answered as where overload does not admit.
func (s *Service) enterFor(
	ctx context.Context, cost int64, asked string, client func() string,
) (context.Context, capacity.Ticket, error) {
	t, err := s.turn(ctx, cost, client)
	if !s.admits(err) {
		return ctx, t, err
	}
	s.noteOverload(asked, err)
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(notedOverload{err})
	return ctx, capacity.Ticket{}, nil
}

// address names the client of a request.
func (s *Service) address(r *http.Request) func() string {
	return func() string { return s.clients.Key(r.RemoteAddr, r.Header) }
}

// turn waits until a client's work may begin. An error wraps stint.ErrOverloaded, or is problem.ClientGone.
func (s *Service) turn(ctx context.Context, cost int64, client func() string) (capacity.Ticket, error) {
	t, err := s.admission.Enter(ctx, cost, client)
	if err != nil && !errors.Is(err, stint.ErrOverloaded) {
		err = problem.ClientGone
	}
	return t, err
}

// admits reports whether an error is an overload, and overload admits.
func (s *Service) admits(err error) bool {
	return errors.Is(err, stint.ErrOverloaded) && s.config.OverloadAdmits()
}

// A notedOverload is one that was counted. It is answered where no failure policy decides, as of a reset.
type notedOverload struct{ error }

// Unwrap is the overload.
func (e notedOverload) Unwrap() error { return e.error }

// readMembers reads a body whose query may ask for what is allowed besides.
func (s *Service) readMembers(w http.ResponseWriter, r *http.Request, allowed member) (
	text capacity.Body, details bool, err error,
) {
	if details, err = detailsOf(r.URL.RawQuery, allowed); err == nil {
		text, err = s.readText(w, r, s.config.HTTP.MaxBodyBytes)
	}
	return text, details, err
}

// readText reads a request's body of at most so many bytes. What it returns is released when the request is answered.
func (s *Service) readText(w http.ResponseWriter, r *http.Request, most int64) (capacity.Body, error) {
	return s.parts.Bodies.Read(w, r, s.clients.Key(r.RemoteAddr, r.Header), most,
		func() (func(), error) { return s.enterBodyRead(r) })
}

const (
	// smallBody is how long a body is that is read without waiting for a turn.
	smallBody = 16 << 10
	// readPerOperation is how much of a body is as much work to receive as an operation is to decide.
	readPerOperation = 4 << 10
	// bodyReadTurn is for how long a body that is being read counts as work under way: one that comes
	// slowly keeps nobody busy.
	bodyReadTurn = 50 * time.Millisecond
)

// enterBodyRead waits until a large body may be read. What it returns is called when the body was
// read.
func (s *Service) enterBodyRead(r *http.Request) (done func(), err error) {
	// A body whose length is not known may be as long as any.
	size := r.ContentLength
	if size < 0 {
		size = s.config.HTTP.MaxBodyBytes
	}
	if size <= smallBody {
		return func() {}, nil
	}
	work, err := s.turn(r.Context(), size/readPerOperation, s.address(r))
	if err != nil && !s.admits(err) { // else the turn of the decision tells of it
		return nil, err
	}
	leave := sync.OnceFunc(work.Leave)
	timer := time.AfterFunc(bodyReadTurn, leave)
	return func() {
		timer.Stop()
		leave()
	}, nil
}

// ServeHTTP routes by the path, and counts the answer.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := s.routes[r.URL.Path]
	if to == nil {
		to = s.noRoute
	}
	counted, _ := s.answerPool.Get().(*problem.CountedAnswer)
	counted.Begin(w, to.answers, s.parts.Draining, s.traceOf(r))
	s.answer(counted, r, to)
	counted.End()
	s.answerPool.Put(counted)
}

// answer answers a panic as a mistake of the server. An endpoint returns an error as long as it has written nothing;
// the error becomes a problem document here, in one place.
func (s *Service) answer(w http.ResponseWriter, r *http.Request, to *route) {
	defer s.recover(w, r)
	w.Header()[requestid.Field] = s.requestIDs.Of(r.Header)
	problem.BoundBody(w, r, s.config.HTTP.BodyTimeout)
	s.noteForwarded(r)
	if err := s.serve(w, r, to); err != nil {
		if errors.Is(err, stint.ErrOverloaded) {
			s.noteOverload(r.URL.Path, err)
		}
		f := problem.Of(err)
		if f.Status == http.StatusInternalServerError && f.Cause != nil {
			s.logger.Error("a request failed", "method", r.Method, "path", problem.Short(r.URL.Path), "request_id", requestID(w),
				"err", f.Cause)
		}
		s.noteRefusal(w, r, f)
		problem.Write(w, f)
	}
}

// recover answers 500 for a panic, and logs it with its stack: one request's mistake is not to end
// the others. Header fields that the endpoint had set are taken back.
func (s *Service) recover(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // the sentinel is panicked with as it is
		panic(v) //nolint:forbidigo // net/http asks for it
	}
	s.logger.Error(
		"a request panicked", "method", r.Method, "path", r.URL.Path, "request_id", requestID(w), "panic", v, "stack",
		string(debug.Stack()),
	)
	maps.DeleteFunc(
		w.Header(),
		func(name string, _ []string) bool { return name != "Connection" && name != requestid.Field },
	)
	problem.Write(w, errors.New("a panic"))
}

// An endpoint answers the requests to one path. Other methods are answered 405 with Allow (RFC
// 9110, section 15.5.6).
type endpoint struct {
	methods []string
	serve   func(*Service, http.ResponseWriter, *http.Request) error
}

// readMethods are the methods of endpoints that change nothing.
var readMethods = []string{"GET", "HEAD"}

// endpoints are those of the paths. Paths are matched whole; none has a parameter in it.
var endpoints = map[string]endpoint{
	apipath.Check:        {[]string{"GET", "POST"}, (*Service).checkOne},
	apipath.Reset:        {[]string{"DELETE"}, (*Service).reset},
	apipath.Settle:       {[]string{"POST"}, (*Service).settle},
	apipath.Reserve:      {[]string{"POST"}, hold(stint.VerbReserve, reserveMembers)},
	apipath.Commit:       {[]string{"POST"}, hold(stint.VerbCommit, commitMembers)},
	apipath.Cancel:       {[]string{"POST"}, hold(stint.VerbCancel, endMembers)},
	apipath.Evaluate:     {[]string{"POST"}, (*Service).evaluate},
	apipath.ForwardAuth:  {[]string{"GET"}, (*Service).forwardAuth},
	apipath.Remaining:    {readMethods, (*Service).remaining},
	apipath.Health:       {readMethods, (*Service).readiness},
	apipath.Readiness:    {readMethods, (*Service).readiness},
	apipath.Liveness:     {readMethods, (*Service).liveness},
	apipath.Info:         {readMethods, (*Service).info},
	apipath.Metrics:      {readMethods, (*Service).scrapeMetrics},
	apipath.MetricsAlias: {readMethods, (*Service).scrapeMetrics},
	apipath.OpenAPI:      {readMethods, (*Service).describeAPI},
}

// A route is an endpoint with its answers.
type route struct {
	endpoint
	answers *promlimit.AnswerRoute
}

// addRoutes makes the routes. Those of the rate limit service are there with its listener only.
func (s *Service) addRoutes(registerer prometheus.Registerer) error {
	answers, err := promlimit.NewAnswers(registerer)
	if err != nil {
		return err
	}
	s.answers, s.routes = answers, map[string]*route{}
	s.noRoute = &route{answers: answers.Route(listen.HTTP, "other")}
	all := maps.Clone(endpoints)
	if s.rateLimit != nil {
		maps.Copy(all, rateLimitEndpoints)
	}
	for path, e := range all {
		s.routes[path] = &route{e, answers.Route(listen.HTTP, path)}
	}
	return nil
}

// Answers count what is answered, on other listeners too.
func (s *Service) Answers() *promlimit.Answers { return s.answers }

// serve has the route's endpoint answer.
func (s *Service) serve(w http.ResponseWriter, r *http.Request, to *route) error {
	if to == s.noRoute {
		return problem.NoPath(r.URL.Path)
	}
	if err := problem.CheckMethod(r, to.methods...); err != nil {
		return err
	}
	return to.serve(s, w, r)
}

// traceOf is the ID of the trace that the request is recorded in: the one that this service records, or else the one
// that the sender does; "" without one.
func (s *Service) traceOf(r *http.Request) string {
	if s.parts.Trace != nil {
		if id := s.parts.Trace(r.Context()); id != "" {
			return id
		}
	}
	if lines := r.Header["Traceparent"]; len(lines) > 0 {
		return decisionlog.RecordedTrace(lines)
	}
	return ""
}
