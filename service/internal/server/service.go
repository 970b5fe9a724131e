package server

import (
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
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rulesapi"
)

//go:embed openapi.yaml
var openAPI []byte

// Values of header fields that never change. They are only read.
var (
	jsonType = []string{"application/json"}
	yamlType = []string{"application/yaml"}
	noStore  = []string{"no-store"}
)

// A service is the handler of the REST API, metrics and health. Fields are set by newService and
// not changed, but for what is atomic or a pool. It is safe for concurrent use.
type service struct {
	config    *Config
	targets   atomic.Pointer[targets]
	authority *authority
	admission *admission
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
	scrapes   *scrapes
	logger    *slog.Logger
	draining  atomic.Bool
	// The pools have *scratch and *evaluation, what one request needs for a moment: a check allocates
	// next to nothing.
	scratches sync.Pool

	requestIDs *requestIDs

	evaluations sync.Pool // of *evaluation
	ruleMetrics *promlimit.Rules

	connections    map[string]*connMetrics // by the listener's service
	bodies         *bodyBudget             // of the REST API
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
	if err := register(registerer, append(own, config.Collectors...)...); err != nil {
		return nil, err
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
	connections, err := newConnMetrics(registerer)
	if err != nil {
		return nil, err
	}
	bodies, adminBodies, err := newBodyBudgets(config, registerer)
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
		admission:  newAdmission(config.HTTP.MaxOperations),
		clients:    clients,
		rules:      limiter,
		fields:     config.Headers.Fields(),
		metrics:    metrics,
		observers:  append([]stint.Observer{metrics.Observe, ruleMetrics.Observe}, config.Observers...),
		registry:   registry,
		scrapes:    newScrapes(registry, config.MetricsAge),
		logger:     config.Logger,
		requestIDs: newRequestIDs(),
		scratches:  sync.Pool{New: func() any { return &scratch{} }},

		evaluations: sync.Pool{New: func() any { return newEvaluation() }},
		ruleMetrics: ruleMetrics,

		connections: connections, bodies: bodies, events: events,
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
		ReadBody:     adminBodies.readAdmin,
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

// register registers several collectors, or reports the first that can't be.
func register(registry prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, collector := range collectors {
		if err := registry.Register(collector); err != nil {
			return err
		}
	}
	return nil
}

// ServeHTTP routes by the path, and answers a panic as a mistake of the server. An endpoint returns
// an error as long as it has written nothing; the error becomes a problem document here, in one
// place.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.recover(w, r)
	w.Header()[requestIDField] = s.requestIDs.of(r.Header)
	boundBody(w, r, s.config.HTTP.BodyTimeout)
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

// boundBody makes the body come in time, whether it is read here or, unread, by net/http. A connection that knows no
// deadlines, as in a test of the handler alone, has none.
//
// A body in chunks ends its connection with the answer. RFC 9112, section 6.1, wants that where a
// Content-Length stands beside Transfer-Encoding, of which net/http tells only the latter: whoever
// passed both on may have gone by the former, and then takes what follows for another request. In
// HTTP/1.0, which has no chunks, net/http ignores Transfer-Encoding and tells nothing of it, so
// each such connection ends with its answer.
func boundBody(w http.ResponseWriter, r *http.Request, timeout time.Duration) {
	if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
		w.Header().Set("Connection", "close")
	}
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
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
