package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/rest"
	"github.com/stint-go/stint/service/internal/server"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// start is the stores' time when a test begins: ten seconds into a minute, half a
// second into a second.
const start = stint.Instant(1_790_000_050_500_000)

// A store is a memory store whose clock stands still, that a test can break, and
// that counts what it is asked.
type store struct {
	*memstore.Store
	now   atomic.Int64
	err   atomic.Pointer[error]
	calls atomic.Int64
	ops   atomic.Int64
	enter func(context.Context) // called in every call, when set
}

func newStore() *store {
	s := &store{}
	s.now.Store(int64(start))
	s.Store = memstore.New(memstore.Config{Now: s.time})
	return s
}

func (s *store) time() time.Time { return time.UnixMicro(s.now.Load()) }

func (s *store) advance(d time.Duration) { s.now.Add(d.Microseconds()) }

// fail makes every call return err; nil mends the store.
func (s *store) fail(err error) {
	s.err.Store(nil)
	if err != nil {
		s.err.Store(&err)
	}
}

func (s *store) asked(ctx context.Context, ops int) error {
	s.calls.Add(1)
	s.ops.Add(int64(ops))
	if s.enter != nil {
		s.enter(ctx)
	}
	if err := s.err.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

func (s *store) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if err := s.asked(ctx, 1); err != nil {
		return stint.Decision{}, err
	}
	return s.Store.Decide(ctx, op)
}

func (s *store) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return s.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

func (s *store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	if err := s.asked(ctx, len(ops)); err != nil {
		for i := range results {
			results[i] = stint.Result{Err: err}
		}
		return
	}
	s.Store.DecideAll(ctx, ops, results)
}

// A fixture is a service without a listener.
type fixture struct {
	t      testing.TB
	server *server.Server
	store  *store
	log    *logBuffer
	router routers.Router
	http.Handler
}

// logBuffer collects the log; it is safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// lines is the number of lines logged so far.
func (b *logBuffer) lines() int { return strings.Count(b.String(), "\n") }

// pushLimits are a policy of two sliding logs, the second of a burst.
func pushLimits() []stint.Limit {
	return []stint.Limit{
		stint.SlidingWindowLog(10, time.Minute).WithMinInterval(time.Second).CountingDenied(),
		stint.SlidingWindowLog(2, 3*time.Second).Named("burst"),
	}
}

// testConfig is the default configuration with a store of the test's, a log and
// policies, open to all.
func testConfig() (server.Config, *store, *logBuffer) {
	config, store, log := server.DefaultConfig(), newStore(), &logBuffer{}
	config.Store = store
	config.Logger = slog.New(slog.NewTextHandler(log, nil))
	config.API.Open = true
	config.Build = rest.Build{Version: "v1.2.3", Commit: "abc"}
	config.Policies = map[string][]stint.Limit{
		"push": pushLimits(),
		"pair": {stint.FixedWindow(5, time.Minute), stint.TokenBucket(3, stint.PerSecond(1)).Named("quick")},
		"leak": {stint.LeakyBucket(4, stint.PerSecond(2))},
	}
	return config, store, log
}

func newFixture(t testing.TB, change func(*server.Config)) *fixture {
	t.Helper()
	config, store, log := testConfig()
	config.Rules = compile(t, ruleList())
	if change != nil {
		change(&config)
	}
	s := must.Get(server.New(config))(t)
	return fixtureOf(t, s, store, log)
}

// fixtureOf is a fixture of a server.
func fixtureOf(t testing.TB, s *server.Server, store *store, log *logBuffer) *fixture {
	t.Helper()
	return &fixture{t: t, server: s, store: store, log: log, Handler: s.Handler(), router: description(t)}
}

// documentOf loads a description.
func documentOf(path string) func() (*openapi3.T, error) {
	return sync.OnceValues(func() (*openapi3.T, error) {
		document, err := openapi3.NewLoader().LoadFromFile(path)
		if err != nil {
			return nil, err
		}
		return document, document.Validate(context.Background())
	})
}

// description loads the service's own openapi.yaml.
var description = func() func(testing.TB) routers.Router {
	load := sync.OnceValues(func() (routers.Router, error) {
		document, err := documentOf("../rest/openapi.yaml")()
		if err != nil {
			return nil, err
		}
		// It lists the names of algorithms for people and generators, and says in words that they are read in any case.
		names, listed := document.Components.Schemas["AlgorithmName"].Value, []string{}
		for _, name := range names.Enum {
			listed = append(listed, name.(string))
		}
		names.Enum, names.Pattern = nil, "^(?i:"+strings.Join(listed, "|")+")$"
		openapi3filter.RegisterBodyDecoder("application/yaml", openapi3filter.FileBodyDecoder)
		return legacy.NewRouter(document)
	})
	return func(t testing.TB) routers.Router {
		t.Helper()
		return must.Get(load())(t)
	}
}()

// A reply is a response with its body read.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

// do serves a request and holds the response against openapi.yaml; a request that
// succeeds must be one that openapi.yaml allows.
func (f *fixture) do(r *http.Request) reply {
	f.t.Helper()
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	recorder := httptest.NewRecorder()
	f.ServeHTTP(recorder, r)
	response := recorder.Result()
	got := reply{t: f.t, status: response.StatusCode, header: response.Header, body: recorder.Body.String()}
	f.conform(r, body, got)
	return got
}

func (f *fixture) conform(r *http.Request, body []byte, got reply) {
	f.t.Helper()
	again := r.Clone(r.Context())
	if len(body) > 0 {
		again.Header.Set("Content-Type", "application/json")
	}
	conforms(f.t, f.router, again, string(body), got)
}

// conforms holds an answer against a description, and the request if it succeeds. What is not described has one of these
// statuses, or there is no such path or method. An answer without a header has no body to be described.
func conforms(t testing.TB, router routers.Router, r *http.Request, body string, got reply, others ...int) {
	t.Helper()
	route, params, err := router.FindRoute(r)
	if err != nil {
		others = append(others, http.StatusNotFound, http.StatusMethodNotAllowed)
		if !slices.Contains(others, got.status) && r.Method != http.MethodHead {
			t.Errorf("%s %s: %d, and openapi.yaml does not describe it: %v", r.Method, r.URL, got.status, err)
		}
		return
	}
	r.Body = io.NopCloser(strings.NewReader(body))
	options := &openapi3filter.Options{
		AuthenticationFunc:    openapi3filter.NoopAuthenticationFunc,
		IncludeResponseStatus: true,
	}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: options}
	if got.status < 300 || got.status == http.StatusTooManyRequests {
		if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
			t.Errorf("%s %s succeeds, and openapi.yaml refuses it: %v", r.Method, r.URL, err)
		}
	}
	if got.header == nil {
		return
	}
	output := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: got.status, Header: got.header, Options: options,
	}
	output.SetBodyBytes([]byte(got.body))
	if err := openapi3filter.ValidateResponse(r.Context(), output); err != nil {
		t.Errorf("%s %s: the response is not as openapi.yaml says: %v\n%d %v\n%s", r.Method, r.URL, err, got.status, got.header, got.body)
	}
}

func (f *fixture) get(path string) reply {
	f.t.Helper()
	return f.do(httptest.NewRequestWithContext(f.t.Context(), http.MethodGet, path, nil))
}

func (f *fixture) post(path, body string) reply {
	f.t.Helper()
	return f.do(httptest.NewRequestWithContext(f.t.Context(), http.MethodPost, path, strings.NewReader(body)))
}

// into decodes the body, of which every member must be known.
func (r reply) into(v any) {
	r.t.Helper()
	decoder := json.NewDecoder(strings.NewReader(r.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		r.t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
}

// check decodes the answer to a check.
func (r reply) check() api.CheckResponse {
	r.t.Helper()
	var c api.CheckResponse
	r.into(&c)
	return c
}

// problem expects a problem document of that status whose detail holds the texts.
func (r reply) problem(status int, texts ...string) {
	r.t.Helper()
	if r.status != status || r.header.Get("Content-Type") != apipath.ProblemType {
		r.t.Errorf("%d %s %q, want a problem of status %d", r.status, r.header.Get("Content-Type"), r.body, status)
		return
	}
	var p api.Problem
	r.into(&p)
	if p.Status != status || p.Title != http.StatusText(status) || p.Type != "about:blank" {
		r.t.Errorf("problem %+v, want status %d in it", p, status)
	}
	for _, text := range texts {
		if !strings.Contains(p.Detail, text) {
			r.t.Errorf("the detail is %q; it does not say %q", p.Detail, text)
		}
	}
}

// says expects that a text has others in it.
func says(t testing.TB, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%.9000s", want, text)
		}
	}
}

// newRequest makes a request of the handler, with a body unless it is "".
func newRequest(method, path, body string) *http.Request {
	if body == "" {
		return httptest.NewRequestWithContext(context.Background(), method, path, nil)
	}
	return httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
}
