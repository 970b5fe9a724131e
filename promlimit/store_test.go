package promlimit_test

import (
	"testing"

	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
)

func TestStoreCollector(t *testing.T) {
	now := memstore.Stats{Clients: 3, Bytes: 4096, MaxBytes: 8192, Evictions: 5, Reclaimed: 6, HoldsRefused: 7}
	scraped(t, memstore.Stats{Clients: 1}, now, `
# HELP rate_limiter_store_bytes Memory that the store's states take.
# TYPE rate_limiter_store_bytes gauge
rate_limiter_store_bytes 4096
# HELP rate_limiter_store_evictions_total States evicted although they still mattered.
# TYPE rate_limiter_store_evictions_total counter
rate_limiter_store_evictions_total 5
# HELP rate_limiter_store_holds_refused_total Reserves denied because holds, or those of their policy, have as much memory as they may.
# TYPE rate_limiter_store_holds_refused_total counter
rate_limiter_store_holds_refused_total 7
# HELP rate_limiter_store_max_bytes The most memory that the store's states may take.
# TYPE rate_limiter_store_max_bytes gauge
rate_limiter_store_max_bytes 8192
# HELP rate_limiter_store_reclaimed_total States reclaimed because they mattered no more.
# TYPE rate_limiter_store_reclaimed_total counter
rate_limiter_store_reclaimed_total 6
# HELP rate_limiter_store_states States that the store holds.
# TYPE rate_limiter_store_states gauge
rate_limiter_store_states 3
`)
}

func TestSharedCollector(t *testing.T) {
	scraped(t, redisstore.Stats{Batches: 1}, redisstore.Stats{
		Batches: 3, Operations: 700, DenialHits: 5, DenialsKept: 2, Announcing: true, Leases: 7, Queued: 8, InFlight: 9, ScriptLoads: 12,
	}, `
# HELP rate_limiter_denial_cache_entries Denials that are remembered.
# TYPE rate_limiter_denial_cache_entries gauge
rate_limiter_denial_cache_entries 2
# HELP rate_limiter_denial_cache_hits_total Denials answered without a call of the store.
# TYPE rate_limiter_denial_cache_hits_total counter
rate_limiter_denial_cache_hits_total 5
# HELP rate_limiter_store_announcing Whether announcements of other processes are received, without which no denial is remembered.
# TYPE rate_limiter_store_announcing gauge
rate_limiter_store_announcing 1
# HELP rate_limiter_store_calls_in_flight Calls of the store that are under way.
# TYPE rate_limiter_store_calls_in_flight gauge
rate_limiter_store_calls_in_flight 9
# HELP rate_limiter_store_calls_total Calls of the store that decided something.
# TYPE rate_limiter_store_calls_total counter
rate_limiter_store_calls_total 3
# HELP rate_limiter_store_leases Clients with leased permits in this process.
# TYPE rate_limiter_store_leases gauge
rate_limiter_store_leases 7
# HELP rate_limiter_store_operations_total Operations that calls of the store decided.
# TYPE rate_limiter_store_operations_total counter
rate_limiter_store_operations_total 700
# HELP rate_limiter_store_queued_operations Operations that wait to be sent to the store.
# TYPE rate_limiter_store_queued_operations gauge
rate_limiter_store_queued_operations 8
# HELP rate_limiter_store_script_loads_total Scripts sent whole: at the start, and to servers that did not know them.
# TYPE rate_limiter_store_script_loads_total counter
rate_limiter_store_script_loads_total 12
`)
}

func TestFailoverCollector(t *testing.T) {
	scraped(t, failover.Stats{Open: 100}, failover.Stats{
		Open: 1, Closed: 2, Local: 3, Timeouts: 4, Errors: 5, Probes: 6, Overloaded: 9, Reachable: 14, Unreachable: 2,
	}, `
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
}
