package alerts_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/service/internal/alerts"
)

func TestAlertsCollector(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(promlimit.NewStatsCollector(func() alerts.Stats {
		return alerts.Stats{Sent: 1, Repeated: 2, Retries: 3, OverflowedNearLimit: 4, OverflowedDenied: 7, Failed: 5, Queued: 6}
	}))
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rate_limiter_alert_retries_total Attempts to send alerts after the first one.
# TYPE rate_limiter_alert_retries_total counter
rate_limiter_alert_retries_total 3
# HELP rate_limiter_alerts_dropped_total Alerts dropped because too many of their kind waited.
# TYPE rate_limiter_alerts_dropped_total counter
rate_limiter_alerts_dropped_total{kind="denied"} 7
rate_limiter_alerts_dropped_total{kind="near_limit"} 4
# HELP rate_limiter_alerts_failed_total Alerts dropped because the receiver did not confirm them.
# TYPE rate_limiter_alerts_failed_total counter
rate_limiter_alerts_failed_total 5
# HELP rate_limiter_alerts_queued Alerts that wait to be sent.
# TYPE rate_limiter_alerts_queued gauge
rate_limiter_alerts_queued 6
# HELP rate_limiter_alerts_repeated_total Alerts left out, since one of the same client, rule and window was sent, by this process or another.
# TYPE rate_limiter_alerts_repeated_total counter
rate_limiter_alerts_repeated_total 2
# HELP rate_limiter_alerts_sent_total Alerts that the receiver confirmed.
# TYPE rate_limiter_alerts_sent_total counter
rate_limiter_alerts_sent_total 1
`))
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
