package rls_test

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// Statistics have the reference service's names, and what its mapping makes of them.
func TestStatistics(t *testing.T) {
	s := newService(t, rls.Config{Accounting: domains.Reference, Shadow: true}, `
domain: d
descriptors:
  - {key: a, `+years+`5}}
  - {key: b, value: "x*", detailed_metric: true, `+years+`1}}
  - {key: c, value_to_metric: true, `+years+`1}}
  - key: ip
    value_to_metric: true
    descriptors: [{key: path, descriptors: [{key: deep, shadow_mode: true, `+years+`1}}]}]
`)
	ask(t, s, costing("a=1", 3), entries("b=x1"), entries("b=x:2"), entries("c=v"))
	ask(t, s, costing("a=1", 4), costing("a=1", 0), costing("a=1", -1))
	ask(t, s, costing("ip=192.0.2.1,path=1,deep=1", 3), costing("ip=192.0.2.1,path=2,deep=1", 1))
	for _, name := range []string{"nobody", "nobody", ""} {
		_, _ = s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: name, Descriptors: of(entries("a=1"))})
	}
	s.Refused()
	want := `
ratelimit_service_config_load_error 1
ratelimit_service_config_load_success 1
ratelimit_service_global_shadow_mode 1
ratelimit_service_rate_limit_domain_not_found{domain="nobody"} 2
ratelimit_service_rate_limit_near_limit{domain="d",key1="a",key2=""} 1
ratelimit_service_rate_limit_near_limit{domain="d",key1="b_x1",key2=""} 1
ratelimit_service_rate_limit_near_limit{domain="d",key1="b_x_2",key2=""} 1
ratelimit_service_rate_limit_near_limit{domain="d",key1="c_v",key2=""} 1
ratelimit_service_rate_limit_near_limit{domain="d",key1="ip_192_0_2_1",key2="path"} 2
ratelimit_service_rate_limit_over_limit{domain="d",key1="a",key2=""} 2
ratelimit_service_rate_limit_over_limit{domain="d",key1="b_x1",key2=""} 0
ratelimit_service_rate_limit_over_limit{domain="d",key1="b_x_2",key2=""} 0
ratelimit_service_rate_limit_over_limit{domain="d",key1="c_v",key2=""} 0
ratelimit_service_rate_limit_over_limit{domain="d",key1="ip_192_0_2_1",key2="path"} 2
ratelimit_service_rate_limit_shadow_mode{domain="d",key1="a",key2=""} 0
ratelimit_service_rate_limit_shadow_mode{domain="d",key1="b_x1",key2=""} 0
ratelimit_service_rate_limit_shadow_mode{domain="d",key1="b_x_2",key2=""} 0
ratelimit_service_rate_limit_shadow_mode{domain="d",key1="c_v",key2=""} 0
ratelimit_service_rate_limit_shadow_mode{domain="d",key1="ip_192_0_2_1",key2="path"} 2
ratelimit_service_rate_limit_total_hits{domain="d",key1="a",key2=""} 7
ratelimit_service_rate_limit_total_hits{domain="d",key1="b_x1",key2=""} 1
ratelimit_service_rate_limit_total_hits{domain="d",key1="b_x_2",key2=""} 1
ratelimit_service_rate_limit_total_hits{domain="d",key1="c_v",key2=""} 1
ratelimit_service_rate_limit_total_hits{domain="d",key1="ip_192_0_2_1",key2="path"} 4
ratelimit_service_rate_limit_within_limit{domain="d",key1="a",key2=""} 3
ratelimit_service_rate_limit_within_limit{domain="d",key1="b_x1",key2=""} 1
ratelimit_service_rate_limit_within_limit{domain="d",key1="b_x_2",key2=""} 1
ratelimit_service_rate_limit_within_limit{domain="d",key1="c_v",key2=""} 1
ratelimit_service_rate_limit_within_limit{domain="d",key1="ip_192_0_2_1",key2="path"} 1
ratelimit_service_should_rate_limit_error{err_type="redis_error"} 0
ratelimit_service_should_rate_limit_error{err_type="service_error"} 1
ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 6
`
	if got := gathered(t, s); got != want {
		t.Errorf("statistics:%s\nwant:%s", got, want)
	}
}

// gathered are the statistics but for the histogram, a line each.
func gathered(t *testing.T, s *rls.Service) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(s.Collector()); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry, "ratelimit_service_response_time_seconds"); err != nil || n != 1 {
		t.Errorf("%d histograms, %v", n, err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("\n")
	for _, family := range families {
		for _, m := range family.Metric {
			if m.Counter == nil {
				continue
			}
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := family.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			_, _ = fmt.Fprintf(&text, "%s %v\n", name, m.Counter.GetValue())
		}
	}
	return text.String()
}

// Clients choose the values in names, and so can't make more series than there are places.
func TestSeriesAreBounded(t *testing.T) {
	s := newService(t, rls.Config{}, "domain: d\ndescriptors: [{key: a, detailed_metric: true, "+years+"5}}]\n")
	for i := range 12_000 {
		ask(t, s, entries(fmt.Sprint("a=", i)))
		_, _ = s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: fmt.Sprint("no", i), Descriptors: of(entries("a=1"))})
	}
	text := gathered(t, s)
	if n := strings.Count(text, "_total_hits{"); n > 10_001 || n < 9_000 {
		t.Errorf("%d series", n)
	}
	if !strings.Contains(text, `total_hits{domain="d",key1="other",key2=""} 2`) || !strings.Contains(text, `domain_not_found{domain="other"}`) {
		t.Error("what is beyond is not counted as other")
	}
}
