package activity_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
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
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/server/problem"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// A clock stands still until a test moves it: ten seconds into a minute.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.micros.Store(1_790_000_050_500_000)
	return c
}

func (c *clock) Now() time.Time          { return time.UnixMicro(c.micros.Load()) }
func (c *clock) At() stint.Instant       { return stint.Instant(c.micros.Load()) }
func (c *clock) advance(d time.Duration) { c.micros.Add(d.Microseconds()) }

// A service is a recorder with its clock and its API. Its caller may be shown names, or not.
type service struct {
	t testing.TB
	*clock
	*activity.Recorder
	names bool
}

func newService(t testing.TB, config activity.Config) *service {
	t.Helper()
	s := &service{t: t, clock: newClock(), names: true}
	config.Now = s.Now
	s.Recorder = activity.New(config)
	return s
}

// see observes n decisions of a client, now.
func (s *service) see(n int, rule, client string, outcome activity.Outcome) {
	e := decisionAt(s.At(), rule, client, outcome)
	e.Elapsed = time.Millisecond
	if outcome == activity.Denied {
		e.RequestID = "request-of-" + client
	}
	for range n {
		s.Observe(s.t.Context(), &e)
	}
}

// decisionAt is a decision about one permit, whose denials are by a limit.
func decisionAt(at stint.Instant, rule, client string, outcome activity.Outcome) stint.Event {
	e := stint.Event{At: at, Rule: rule, Claim: stint.Claim{Key: client, Permits: 1}}
	e.Shadow = outcome == activity.ShadowAdmitted || outcome == activity.ShadowDenied
	if e.Decision.Allowed = outcome == activity.Admitted || outcome == activity.ShadowAdmitted; !e.Decision.Allowed {
		e.Reason = stint.ReasonLimit
	}
	return e
}

// ServeHTTP answers as the admin listener does.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var mux problem.Mux[bool]
	for pattern, handler := range s.Handlers(nil) {
		mux.Handle(pattern, handler)
	}
	err := mux.Check(r)
	if err == nil {
		err = mux.Serve(w, r, s.names)
	}
	if err != nil {
		problem.Write(w, err)
	}
}

// description loads the description of the admin API.
var description = sync.OnceValues(func() (routers.Router, error) {
	document, err := openapi3.NewLoader().LoadFromFile("../admin/openapi.yaml")
	if err != nil {
		return nil, err
	}
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.FileBodyDecoder)
	if err := document.Validate(context.Background()); err != nil {
		return nil, err
	}
	return legacy.NewRouter(document)
})

// ask sends a request to the API, and holds the answer against the description.
func (s *service) ask(method, target string) *httptest.ResponseRecorder {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, target, nil)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	router, err := description()
	if err != nil {
		s.t.Fatal(err)
	}
	if r.Method == http.MethodHead { // whose answers are those of GET, without a body
		return w
	}
	route, params, err := router.FindRoute(r)
	if err != nil {
		if w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
			s.t.Errorf("%s %s: %d, and the description does not have it: %v", method, target, w.Code, err)
		}
		return w
	}
	options := &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: options}
	if w.Code == http.StatusOK {
		if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
			s.t.Errorf("%s %s succeeds, and the description refuses it: %v", method, target, err)
		}
	}
	output := &openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: w.Code, Header: w.Header(), Options: options}
	output.SetBodyBytes(w.Body.Bytes())
	if err := openapi3filter.ValidateResponse(r.Context(), output); err != nil {
		s.t.Errorf("%s %s: the answer is not as described: %v\n%d %s", method, target, err, w.Code, w.Body)
	}
	return w
}

// get reads a document of the API.
func get[T any](s *service, target string) (document T) {
	s.t.Helper()
	w := s.ask(http.MethodGet, target)
	decoder := json.NewDecoder(w.Body)
	decoder.DisallowUnknownFields()
	if w.Code != http.StatusOK {
		s.t.Fatalf("GET %s: %d %s", target, w.Code, w.Body)
	}
	if err := decoder.Decode(&document); err != nil {
		s.t.Fatalf("GET %s: %v", target, err)
	}
	return document
}

// refused expects a problem document whose detail holds the texts.
func (s *service) refused(method, target string, status int, texts ...string) {
	s.t.Helper()
	w := s.ask(method, target)
	if w.Code != status || w.Header().Get("Content-Type") != "application/problem+json" {
		s.t.Errorf("%s %s: %d %s, want a problem of status %d", method, target, w.Code, w.Body, status)
	}
	for _, text := range texts {
		if !strings.Contains(w.Body.String(), text) {
			s.t.Errorf("%s %s: %s does not say %q", method, target, w.Body, text)
		}
	}
}

func sum(counts []uint32) (n uint32) {
	for _, c := range counts {
		n += c
	}
	return n
}
