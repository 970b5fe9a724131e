package docs_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// scrape is what a handler serves at /metrics of stint's own metrics, one a line.
func scrape(handler http.Handler) (lines []string) {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil)) //nolint:noctx // of a test
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "rate_limiter_") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func Example_metrics() {
	registry := prometheus.NewRegistry()
	mux := http.NewServeMux()
	metrics := must.Get(promlimit.New(registry))(example{})
	policy := must.Get(stint.NewPolicy("api", stint.TokenBucket(2, stint.PerMinute(2))))(example{})
	store := stillStore()
	limiter := must.Get(stint.NewLimiter(stint.Config{Store: store, Policy: policy, Observe: metrics.Observe}))(example{})
	registry.MustRegister(promlimit.NewStatsCollector(store.Stats)) // clients, bytes, evictions
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	for range 3 {
		_, _ = limiter.Allow(context.Background(), "ann")
	}
	for _, line := range scrape(mux) {
		if strings.HasPrefix(line, "rate_limiter_requests_total") && !strings.HasSuffix(line, " 0") {
			fmt.Println(line)
		}
	}
	// Output:
	// rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="false",limiter="api"} 1
	// rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true",limiter="api"} 2
}

func TestMetricsOfRedis(t *testing.T) {
	server, ctx := testredis.Start(t), t.Context()
	registry := prometheus.NewRegistry()
	calls := must.Get(promlimit.NewCalls(registry))(t)
	options := redisstore.Options{OnCall: calls.Done}
	store := must.Get(rueidis.Open(rueidis.Config{URL: "redis://" + server.Addr(), Store: options, Failover: patient}))(t)
	if err := store.Ready(ctx); err != nil { // connected, so that the first decision takes one round trip
		log.Print(err) // and not log.Fatal: the store admits meanwhile, and goes on connecting
	}
	registry.MustRegister(promlimit.NewStatsCollector(store.Stats)) // what is unreachable, and who decided meanwhile
	defer store.Close()

	limiter := must.Get(stint.New(store, "api", stint.TokenBucket(2, stint.PerMinute(2))))(t)
	must.Get(limiter.Allow(ctx, "ann"))(t)
	lines := scrape(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	for _, want := range []string{`rate_limiter_store_round_trip_seconds_count{outcome="answered"} `, "rate_limiter_store_shards"} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("no metric begins with %s: %s", want, strings.Join(lines, "\n"))
		}
	}
}
