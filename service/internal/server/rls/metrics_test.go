package rls_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// gathered are the metrics of a service, by name and labels; of a histogram it is the count.
func gathered(t testing.TB, s *rls.Service) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	must.Do(t, registry.Register(s.Collector()))
	families := must.Get(registry.Gather())(t)
	found := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			n := m.GetCounter().GetValue()
			if m.Histogram != nil {
				n = float64(m.Histogram.GetSampleCount())
			}
			found[fmt.Sprintf("%s{%s}", family.GetName(), strings.Join(labels, ","))] = n
		}
	}
	return found
}

// lines are metrics as text, those of the rate limits without their prefix, without those that are 0.
func lines(metrics map[string]float64) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		if n := metrics[name]; n != 0 {
			text += fmt.Sprintf("%s %v\n", strings.TrimPrefix(name, "ratelimit_service_"), n)
		}
	}
	return text
}

// Every metric has the name and the labels that the reference service's own mapping gives it, and counts hits.
func TestMetrics(t *testing.T) {
	s := newService(t, rls.Config{Accounting: domains.Reference, Shadow: true}, `
domain: d
descriptors:
  - {key: plain, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: dark, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
`)
	ask(t, s, costing("plain=1", 3))  // within
	ask(t, s, costing("plain=1", 6))  // 1 of them near
	ask(t, s, costing("plain=1", 3))  // 1 within, and near; 2 over
	ask(t, s, costing("plain=1", -9)) // given back, and counted nowhere
	ask(t, s, costing("dark=1", 4))
	ask(t, s, entries("free=1"))
	ask(t, s, limited("plain=1", 7, typed.RateLimitUnit_HOUR))
	for _, r := range []*pb.RateLimitRequest{{Domain: "none", Descriptors: of(entries("a=1"))}, {Domain: "d"}} {
		_, _ = s.ShouldRateLimit(t.Context(), r)
	}
	s.Refused()
	const want = `config_load_error{} 1
config_load_success{} 1
global_shadow_mode{} 1
rate_limit_domain_not_found{domain="none"} 1
rate_limit_near_limit{domain="d",key1="dark",key2=""} 1
rate_limit_near_limit{domain="d",key1="plain",key2=""} 2
rate_limit_over_limit{domain="d",key1="dark",key2=""} 3
rate_limit_over_limit{domain="d",key1="plain",key2=""} 2
rate_limit_shadow_mode{domain="d",key1="dark",key2=""} 3
rate_limit_total_hits{domain="d",key1="dark",key2=""} 4
rate_limit_total_hits{domain="d",key1="override",key2=""} 1
rate_limit_total_hits{domain="d",key1="plain",key2=""} 12
rate_limit_within_limit{domain="d",key1="override",key2=""} 1
rate_limit_within_limit{domain="d",key1="plain",key2=""} 9
response_time_seconds{grpc_method="ShouldRateLimit"} 9
should_rate_limit_error{err_type="service_error"} 1
total_requests{grpc_method="ShouldRateLimit"} 9
`
	if got := lines(gathered(t, s)); got != want {
		t.Errorf("the metrics are\n%swant\n%s", got, want)
	}
}

// Values are in labels where detailed_metric or value_to_metric asks for them, and where the configuration names them.
func TestMetricNames(t *testing.T) {
	s := newService(t, rls.Config{}, `
domain: d
descriptors:
  - key: detailed
    detailed_metric: true
    rate_limit: {unit: year, requests_per_unit: 10}
  - key: valued
    value_to_metric: true
    descriptors: [{key: then, rate_limit: {unit: year, requests_per_unit: 10}}]
  - {key: plain, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: fixed, value: one, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: wild, value: "w*", rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: wildvalue, value: "w*", value_to_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: pool, value: "p*", share_threshold: true, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
`)
	for _, text := range []string{
		"detailed=x", "detailed=10.1.2.3", "valued=x,then=y", "plain=x", "fixed=one", "wild=wx", "wildvalue=wx", "pool=px", "pool=py",
		"detailed=a.b", "detailed=a:b|c",
	} {
		ask(t, s, entries(text))
	}
	var got []string
	for name, n := range gathered(t, s) {
		if labels, found := strings.CutPrefix(name, `ratelimit_service_rate_limit_total_hits{domain="d",`); found {
			got = append(got, fmt.Sprintf("%s %v", strings.TrimSuffix(labels, "}"), n))
		}
	}
	slices.Sort(got)
	want := []string{
		`key1="detailed_10_1_2_3",key2="" 1`, `key1="detailed_a",key2="b" 1`, `key1="detailed_a_b_c",key2="" 1`, `key1="detailed_x",key2="" 1`,
		`key1="fixed_one",key2="" 1`, `key1="plain",key2="" 1`, `key1="pool_p*",key2="" 2`, `key1="valued_x",key2="then" 1`,
		`key1="wild_w*",key2="" 1`, `key1="wildvalue_wx",key2="" 1`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the limits are counted as\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// There are 10,000 series of values at most; what is beyond is counted together, and nothing is lost. So it is with
// domains that there are not.
func TestSeriesAreBounded(t *testing.T) {
	s := newService(t, rls.Config{}, `
domain: d
descriptors:
  - {key: k, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
`)
	const asked = 12_000
	for i := range asked {
		ask(t, s, entries(fmt.Sprintf("k=%d", i)))
		if _, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: fmt.Sprintf("none%d", i), Descriptors: of(entries("a=1"))}); err != nil {
			t.Fatal(err)
		}
	}
	limits, hits, unknown, missed := 0, 0., 0, 0.
	metrics := gathered(t, s)
	for name, n := range metrics {
		switch {
		case strings.HasPrefix(name, "ratelimit_service_rate_limit_total_hits"):
			limits, hits = limits+1, hits+n
		case strings.HasPrefix(name, "ratelimit_service_rate_limit_domain_not_found"):
			unknown, missed = unknown+1, missed+n
		}
	}
	if limits != 10_001 || hits != asked || unknown != 1001 || missed != asked {
		t.Errorf("%d limits with %v hits, %d unknown domains with %v requests", limits, hits, unknown, missed)
	}
	if n := metrics[`ratelimit_service_rate_limit_total_hits{domain="d",key1="other",key2=""}`]; n != asked-10_000 {
		t.Errorf("%v hits are of others", n)
	}
	if n := metrics[`ratelimit_service_rate_limit_domain_not_found{domain="other"}`]; n != asked-1000 {
		t.Errorf("%v requests for other domains", n)
	}
}
