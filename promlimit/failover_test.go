package promlimit_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/promlimit"
)

func TestFailoverCollector(t *testing.T) {
	stats := failover.Stats{Open: 100}
	collector := promlimit.NewStatsCollector(func() failover.Stats { return stats })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	stats = failover.Stats{ // read at each scrape
		Open: 1, Closed: 2, Local: 3, Timeouts: 4, Errors: 5, Probes: 6, Overloaded: 9, Reachable: 14, Unreachable: 2,
	}
	gathers(t, registry, `
# HELP rate_limiter_failover_answers_total Operations that a failure policy answered, by its mode.
# TYPE rate_limiter_failover_answers_total counter
rate_limiter_failover_answers_total{mode="closed"} 2
rate_limiter_failover_answers_total{mode="local"} 3
rate_limiter_failover_answers_total{mode="open"} 1
# HELP rate_limiter_failover_failures_total Operations that the store failed to decide, by how.
# TYPE rate_limiter_failover_failures_total counter
rate_limiter_failover_failures_total{kind="error"} 5
rate_limiter_failover_failures_total{kind="timeout"} 4
# HELP rate_limiter_failover_overloaded_total Operations that this process was too busy to have decided in time.
# TYPE rate_limiter_failover_overloaded_total counter
rate_limiter_failover_overloaded_total 9
# HELP rate_limiter_failover_probes_total Probes of a store that was unreachable.
# TYPE rate_limiter_failover_probes_total counter
rate_limiter_failover_probes_total 6
# HELP rate_limiter_store_shards Parts of the store that fail apart, by their state.
# TYPE rate_limiter_store_shards gauge
rate_limiter_store_shards{state="unreachable"} 2
rate_limiter_store_shards{state="up"} 14
`)
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
