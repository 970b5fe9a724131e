package rls_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/rls"
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
