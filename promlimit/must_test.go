package promlimit_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/redisstore"
)

// gathers compares the metrics of these names, or all, with a text as Prometheus reads it.
func gathers(t testing.TB, g prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(g, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

// linted says what Prometheus' linter finds in the metrics.
func linted(t testing.TB, g prometheus.Gatherer) {
	t.Helper()
	if problems, err := testutil.GatherAndLint(g); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// scraped compares what a collector of stats shows, which are read at each scrape and not before.
func scraped[S failover.Stats | memstore.Stats | redisstore.Stats](t *testing.T, before, now S, want string) {
	t.Helper()
	stats, registry := before, prometheus.NewPedanticRegistry()
	registry.MustRegister(promlimit.NewStatsCollector(func() S { return stats }))
	stats = now
	gathers(t, registry, want)
	linted(t, registry)
}
