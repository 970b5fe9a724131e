package promlimit_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint/promlimit"
)

func TestStoreCollector(t *testing.T) {
	stats := promlimit.StoreStats{States: 1}
	collector := promlimit.NewStoreCollector(func() promlimit.StoreStats { return stats })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	stats = promlimit.StoreStats{States: 3, Bytes: 4096, Evictions: 5} // read at each scrape
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rate_limiter_store_bytes Memory that the store's states take.
# TYPE rate_limiter_store_bytes gauge
rate_limiter_store_bytes 4096
# HELP rate_limiter_store_evictions_total States evicted although they still mattered.
# TYPE rate_limiter_store_evictions_total counter
rate_limiter_store_evictions_total 5
# HELP rate_limiter_store_states States that the store holds.
# TYPE rate_limiter_store_states gauge
rate_limiter_store_states 3
`))
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
