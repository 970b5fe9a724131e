package server

import (
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/listen"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rulesapi"
)

//go:embed openapi.yaml
var openAPI []byte

// Values of header fields that never change. They are only read.
var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// A service is the handler of the REST API, metrics and health. Fields are set by newService and
// not changed, but for what is atomic or a pool. It is safe for concurrent use.
type service struct {
	config    *Config
	targets   atomic.Pointer[targets]
	authority *authority
	admission *listen.Admission
	clients   *clientip.Resolver
	rules     *enforce.Limiter
	fields    httplimit.Fields // of answers
	// swapping is held while rules are swapped, so that metrics, warnings and the limiter see the same
	// order.
	swapping sync.Mutex
	metrics  *promlimit.Metrics
	// observers are those of the configuration, and the service's own: metrics first.
	observers []stint.Observer
	registry  *prometheus.Registry
	// registerer registers at registry, with the labels of the configuration.
	registerer prometheus.Registerer
	scrapes    *scrapes
	logger     *slog.Logger
	// draining says that the service is about to stop.
	draining func() bool
	// The pools have *scratch and *evaluation, what one request needs for a moment: a check allocates
	// next to nothing.
	scratches sync.Pool

	requestIDs *requestIDs

	evaluations sync.Pool // of *evaluation
	ruleMetrics *promlimit.Rules

	bodies         *listen.Bodies // of the REST API
	events         *events
	rateLimit      *rls.Service // nil without a gRPC listener
	administration *rulesapi.API
}

// readRequest reads a body that describes a request, as an evaluation's does.
func (s *service) readRequest(text string) (*rules.Request, error) {
	e := newEvaluation()
	_, err := e.read(text, evaluationMembers, s.clients)
	return &e.request, err
}

// A scratch is what answering one check needs for a moment.
type scratch struct {
	// each has an outcome for each limit, if the answer needs them.
	each  []stint.Outcome
	event stint.Event
	body  []byte
	api.CheckResponse
}

// newService makes the parts in the order of what they need. Metrics that can't be registered, such
// as under a label that is one of their own, are faults of the configuration.
func newService(config *Config) (*service, error) {
	ts, err := newTargets(config, config.limits())
	if err != nil {
		return nil, err
	}
	clients, err := clientip.New(clientip.Config(config.ClientIP))
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registerer, err := promlimit.WithLabels(registry, config.Metrics.Labels)
	if err != nil {
		return nil, err
	}
	own := []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
	for _, collector := range append(own, config.Collectors...) {
		if err := registerer.Register(collector); err != nil {
			return nil, err
		}
	}
	metrics, err := promlimit.New(registerer)
	if err != nil {
		return nil, err
	}
	ruleMetrics, err := promlimit.NewRules(registerer)
	if err != nil {
		return nil, err
	}
	if config.Store, err = newCountingHolds(config.Store, registerer); err != nil {
		return nil, err
	}
	limiter, err := enforce.New(enforce.Config{
		Store: config.Store, MaxWait: config.HTTP.LongestWait(), RejectAmbiguousPaths: config.RejectAmbiguousPaths,
		DenyByDefault: config.DenyByDefault,
	})
	if err != nil {
		return nil, err
	}
	bodies, adminBodies, err := listen.NewBodies(config.HTTP.MaxBodyMemory, config.Logger, registerer)
	if err != nil {
		return nil, err
	}
	events, err := newEvents(registerer, config.ClientIP.Headers)
	if err != nil {
		return nil, err
	}
	s := &service{
		config:     config,
		authority:  newAuthority(config.API),
		admission:  listen.NewAdmission(config.HTTP.MaxOperations),
		clients:    clients,
		rules:      limiter,
		fields:     config.Headers.Fields(),
		metrics:    metrics,
		observers:  append([]stint.Observer{metrics.Observe, ruleMetrics.Observe}, config.Observers...),
		registry:   registry,
		registerer: registerer,
		draining:   func() bool { return false },
		scrapes:    newScrapes(registry, config.MetricsAge),
		logger:     config.Logger,
		requestIDs: newRequestIDs(),
		scratches:  sync.Pool{New: func() any { return &scratch{} }},

		evaluations: sync.Pool{New: func() any { return newEvaluation() }},
		ruleMetrics: ruleMetrics,

		bodies: bodies, events: events,
	}
	if config.Activity != nil {
		s.observers = append(s.observers, config.Activity.Observe)
	}
	if err := s.addRateLimit(registerer); err != nil {
		return nil, err
	}
	s.administration, err = rulesapi.New(rulesapi.Config{
		Manager:      config.Manager,
		RulesFrom:    config.RulesPlace,
		Forgotten:    config.RulesForgotten,
		Limiter:      limiter,
		Store:        config.Store,
		Policies:     s.policies,
		IPv6Prefix:   config.ClientIP.IPv6Prefix,
		Clustered:    config.Settings.Store.Clustered(),
		ReadRequest:  s.readRequest,
		MaxBodyBytes: config.HTTP.MaxBodyBytes,
		ReadBody:     adminBodies.Text,
		Logger:       config.Logger,
		Registerer:   registerer,
	})
	if err != nil {
		return nil, err
	}
	s.targets.Store(ts)
	s.swapRules(config.Rules)
	return s, nil
}

// enter waits until the request's work may begin.
func (s *service) enter(r *http.Request, cost int64) (*http.Request, listen.Ticket, error) {
	ctx, t, err := s.enterFor(r.Context(), cost, r.URL.Path,
		func() string { return s.clients.Key(r.RemoteAddr, r.Header) })
	if err == nil && ctx != r.Context() {
		r = r.WithContext(ctx)
	}
	return r, t, err
}

// enterFor waits until a client's work may begin, which the log names by what was asked. Where overload
// admits, work that may not begin gets a context that says so, by which the store decides without being
// asked.
func (s *service) enterFor(
	ctx context.Context, cost int64, asked string, client func() string,
) (context.Context, listen.Ticket, error) {
	t, err := s.admission.Enter(ctx, cost, client)
	switch {
	case err == nil:
		return ctx, t, nil
	case !errors.Is(err, stint.ErrOverloaded):
		return ctx, listen.Ticket{}, problem.ClientGone
	}
	if !s.config.OverloadAdmits() {
		return ctx, listen.Ticket{}, err
	}
	s.noteOverload(asked, err)
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(err)
	return ctx, listen.Ticket{}, nil
}

// readText reads a request's body. What it returns is released when the request is answered.
func (s *service) readText(w http.ResponseWriter, r *http.Request) (listen.Body, error) {
	return s.readTextOf(w, r, s.config.HTTP.MaxBodyBytes)
}

// readTextOf is readText of at most so many bytes.
func (s *service) readTextOf(w http.ResponseWriter, r *http.Request, most int64) (listen.Body, error) {
	return s.bodies.Read(w, r, s.clients.Key(r.RemoteAddr, r.Header), most,
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
func (s *service) enterBodyRead(r *http.Request) (done func(), err error) {
	// A body whose length is not known may be as long as any.
	size := r.ContentLength
	if size < 0 {
		size = s.config.HTTP.MaxBodyBytes
	}
	if size <= smallBody {
		return func() {}, nil
	}
	_, work, err := s.enter(r, size/readPerOperation)
	if err != nil {
		return nil, err
	}
	leave := sync.OnceFunc(work.Leave)
	timer := time.AfterFunc(bodyReadTurn, leave)
	return func() {
		timer.Stop()
		leave()
	}, nil
}

// ServeHTTP routes by the path, and answers a panic as a mistake of the server. An endpoint returns
// an error as long as it has written nothing; the error becomes a problem document here, in one
// place.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recover(w, r)
	w.Header()[requestIDField] = s.requestIDs.of(r.Header)
	listen.BoundBody(w, r, s.config.HTTP.BodyTimeout)
	s.noteForwarded(r)
	if err := s.route(w, r); err != nil {
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
func (s *service) recover(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // the sentinel is panicked with as it is
		panic(v) //nolint:forbidigo // net/http asks for it
	}
	s.logger.Error(
		"a request panicked", "method", r.Method, "path", r.URL.Path, "request_id", requestID(w), "panic", v, stackAttr,
		string(debug.Stack()),
	)
	maps.DeleteFunc(
		w.Header(),
		func(name string, _ []string) bool { return name != "Connection" && name != requestIDField },
	)
	problem.Write(w, errors.New("a panic"))
}

// An endpoint answers the requests to one path. Other methods are answered 405 with Allow (RFC
// 9110, section 15.5.6).
type endpoint struct {
	methods []string
	serve   func(*service, http.ResponseWriter, *http.Request) error
}

// readMethods are the methods of endpoints that change nothing.
var readMethods = []string{"GET", "HEAD"}

// endpoints are those of the paths. Paths are matched whole; none has a parameter in it.
var endpoints = map[string]endpoint{
	api.PathCheck:        {[]string{"GET", "POST"}, (*service).checkOne},
	api.PathReset:        {[]string{"DELETE"}, (*service).reset},
	api.PathSettle:       {[]string{"POST"}, (*service).settle},
	api.PathReserve:      {[]string{"POST"}, (*service).reserveHold},
	api.PathCommit:       {[]string{"POST"}, (*service).commitHold},
	api.PathCancel:       {[]string{"POST"}, (*service).cancelHold},
	api.PathEvaluate:     {[]string{"POST"}, (*service).evaluate},
	api.PathForwardAuth:  {[]string{"GET"}, (*service).forwardAuth},
	api.PathRemaining:    {readMethods, (*service).remaining},
	api.PathHealth:       {readMethods, (*service).readiness},
	api.PathReadiness:    {readMethods, (*service).readiness},
	api.PathLiveness:     {readMethods, (*service).liveness},
	api.PathInfo:         {readMethods, (*service).info},
	api.PathMetrics:      {readMethods, (*service).scrapeMetrics},
	api.PathMetricsAlias: {readMethods, (*service).scrapeMetrics},
	api.PathOpenAPI:      {readMethods, (*service).describeAPI},
}

// route finds the endpoint of the path. Those of the rate limit service are there with its listener
// only.
func (s *service) route(w http.ResponseWriter, r *http.Request) error {
	e, known := endpoints[r.URL.Path]
	if !known && s.rateLimit != nil {
		e, known = rateLimitEndpoints[r.URL.Path]
	}
	if !known {
		return problem.NoPath(r.URL.Path)
	}
	if err := problem.CheckMethod(r, e.methods...); err != nil {
		return err
	}
	return e.serve(s, w, r)
}
