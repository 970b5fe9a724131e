package rest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
	"github.com/stint-go/stint/storetest"
)

// newOne makes a service on a store of its own.
func newOne(t testing.TB, change func(*Config)) *Service {
	t.Helper()
	c := Config{Settings: config.Default(), Store: memstore.New(memstore.Config{})}
	change(&c)
	c = c.WithDefaults()
	clients := must.Get(clientip.New(clientip.Config(c.ClientIP)))(t)
	registry := prometheus.NewRegistry()
	bodies, _ := must.Two(capacity.NewBodies(c.HTTP.MaxBodyMemory, c.Logger, registry))(t)
	s, err := New(&c, Parts{
		Clients: clients, Bodies: bodies, Draining: func() bool { return false }, Certificates: func() map[string]follow.State { return nil },
		Gatherer: registry, Registerer: registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The health tells of listeners whose new certificate can't be used, and stays up.
func TestHealthOfCertificates(t *testing.T) {
	t.Parallel()
	s := newOne(t, func(*Config) {})
	if health, _, _ := s.health(t.Context()); len(health.Components) != 2 {
		t.Errorf("without TLS: %v", health)
	}
	for _, want := range []string{"", "the new certificates of admin can't be used; the old ones stay in use; the log says why"} {
		s.parts.Certificates = func() map[string]follow.State {
			states := map[string]follow.State{"http": follow.Current, "admin": follow.Current}
			if want != "" {
				states["admin"] = follow.Refused
			}
			return states
		}
		health, _, _ := s.health(t.Context())
		if got := health.Components["certificates"]; health.Status != StatusUp || got.Status != StatusUp || got.Detail != want {
			t.Errorf("%v, want %q", health, want)
		}
	}
}

// Whatever becomes of requests, no work is counted twice or left over.
func TestNoWorkIsLeft(t *testing.T) {
	t.Parallel()
	all := rules.Rule{ID: "all", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(100, time.Hour)}}
	set := must.Get(rules.Compile([]rules.Rule{all}, rules.Options{}))(t)
	s := newOne(t, func(c *Config) { c.Rules, c.HTTP.MaxOperations, c.API.Open = set, 4, true })
	var group sync.WaitGroup
	for i := range 16 {
		group.Go(func() {
			for j := range 200 {
				body := `{"method":"GET","path":"/x","ip":"10.0.0.1"}`
				if (i+j)%3 == 0 {
					body = `{"method":"GET","path":"/x","ip":7}`
				}
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, apipath.Evaluate, strings.NewReader(body)))
			}
		})
	}
	group.Wait()
	most := int64(s.config.HTTP.MaxOperations) // for which there is no room beside others
	if _, err := s.admission.Enter(t.Context(), most, func() string { return "" }); err != nil {
		t.Errorf("operations are under way in the end: %v", err)
	}
}

// A transaction of the Redis protocol has the time of a body.
func TestTimeOfTransactions(t *testing.T) {
	t.Parallel()
	s := newOne(t, func(c *Config) { c.HTTP.BodyTimeout = 7 * time.Second })
	if got := s.RESP(true, nil).BodyTimeout; got != 7*time.Second {
		t.Errorf("%v, want 7s", got)
	}
}

// A request for which there is no time is answered 503 in every mode but one.
func TestOverloadIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOne(t, func(c *Config) { c.HTTP.MaxOperations = 1 })
		active := must.Get(s.admission.Enter(t.Context(), 1, func() string { return "somebody" }))(t)
		defer active.Leave()
		for _, r := range []*http.Request{
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, apipath.Check, nil),
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, apipath.Check, strings.NewReader(`[{},{}]`)),
			httptest.NewRequestWithContext(t.Context(), http.MethodGet, apipath.Remaining, nil),
		} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"type":"`+apipath.ProblemReducedCapacity+`"`) {
				t.Errorf("%s %s: %d %v %s", r.Method, r.URL, w.Code, w.Header(), w.Body)
			}
		}
	})
}

// A request of the rate limit service for which there is no time is refused, by the service or by the store, and counted
// once. Where overload admits, the mode decides; what looks is refused all the same.
func TestOverloadOfEnvoy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, admits := range []config.Overload{config.Reject, config.Admit} {
			faulty := storetest.NewFaulty(memstore.New(memstore.Config{}))
			store := must.Get(failover.New(faulty, failover.Config{AdmitOnOverload: admits == config.Admit}))(t)
			s := newOne(t, func(c *Config) {
				c.HTTP.MaxOperations, c.OnOverload, c.API.Open, c.Store, c.GRPCListen = 1, admits, true, store, "127.0.0.1:0"
				c.Envoy.KeepDenied, c.Envoy.Accounting = true, "reference"
			})
			list, _, err := domains.Parse("d.yaml", []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5}}]\n"))
			must.Do(t, errors.Join(err, s.rateLimit.Swap([]*domains.Domain{list})))
			ask := func(hits uint64) codes.Code {
				_, err := s.rateLimit.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{
					{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k"}}, HitsAddend: wrapperspb.UInt64(hits)},
				}})
				return status.Code(err)
			}
			want := codes.ResourceExhausted
			if admits == config.Admit {
				want = codes.OK
			}
			active := must.Get(s.admission.Enter(t.Context(), 1, func() string { return "somebody" }))(t)
			if take, look := ask(1), ask(0); take != want || look != codes.ResourceExhausted {
				t.Errorf("%v, no turn: %v, and %v of a look", admits, take, look)
			}
			active.Leave()
			faulty.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrOverloaded} })
			if take, look := ask(1), ask(0); take != want || look != codes.ResourceExhausted {
				t.Errorf("%v, an overloaded store: %v, and %v of a look", admits, take, look)
			}
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json",
				strings.NewReader(`{"domain":"d","descriptors":[{"entries":[{"key":"k"}],"hitsAddend":"0"}]}`)))
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), apipath.ProblemReducedCapacity) {
				t.Errorf("%v, as JSON: %d %v %s", admits, w.Code, w.Header(), w.Body)
			}
			for _, family := range must.Get(s.parts.Gatherer.Gather())(t) {
				want := map[config.Overload]float64{config.Reject: 5, config.Admit: 4}[admits]
				if got := family.GetMetric()[0].GetCounter().GetValue(); family.GetName() == "rate_limiter_overloaded_total" && got != want {
					t.Errorf("%v: %v requests are counted, want %v", admits, got, want)
				}
			}
			store.Close()
		}
	})
}

// Where overload admits, checks are admitted, and what can't be decided without the store is answered 503, once counted.
func TestOverloadAdmitsChecksAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := must.Get(failover.New(memstore.New(memstore.Config{}), failover.Config{AdmitOnOverload: true}))(t)
		defer store.Close()
		s := newOne(t, func(c *Config) {
			c.HTTP.MaxOperations, c.OnOverload, c.API.Open, c.Store = 1, config.Admit, true, store
		})
		active := must.Get(s.admission.Enter(t.Context(), 1, func() string { return "somebody" }))(t)
		defer active.Leave()
		ask := func(method, path, body string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
			return w
		}
		if w := ask(http.MethodGet, apipath.Check, ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"degraded":true`) {
			t.Errorf("a check: %d %s", w.Code, w.Body)
		}
		for path, asked := range map[string][2]string{
			apipath.Reset: {http.MethodDelete}, apipath.Settle: {http.MethodPost, `{"permits":1}`},
			apipath.Remaining: {http.MethodGet}, apipath.Commit: {http.MethodPost, `{"id":"a","permits":1}`},
		} {
			if w := ask(asked[0], path, asked[1]); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
				t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
			}
		}
		if w := ask(http.MethodPost, apipath.Check, "{}"+strings.Repeat(" ", 2*smallBody)); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"degraded":true`) {
			t.Errorf("a check with a long body: %d %s", w.Code, w.Body)
		}
		for _, family := range must.Get(s.parts.Gatherer.Gather())(t) {
			if got := family.GetMetric()[0].GetCounter().GetValue(); family.GetName() == "rate_limiter_overloaded_total" && got != 6 {
				t.Errorf("%v requests are counted, want 6", got)
			}
		}
	})
}
