package promlimit

import "github.com/prometheus/client_golang/prometheus"

// StoreStats is what a store in memory holds and has done.
type StoreStats struct {
	States    int64 // states held now
	Bytes     int64 // memory that they take now
	MaxBytes  int64 // the most that they may take
	Evictions int64 // states that had to go although they still mattered, since the start
	Reclaimed int64 // states reclaimed because they mattered no more, since the start
}

// NewStoreCollector makes a collector that reads a store's figures when it is scraped,
// by calling read, which must be safe for concurrent use. The caller registers it.
//
//	rate_limiter_store_states           states held
//	rate_limiter_store_bytes            memory that they take
//	rate_limiter_store_max_bytes        the most that they may take
//	rate_limiter_store_evictions_total  states evicted although they still mattered
//	rate_limiter_store_reclaimed_total  states reclaimed because they mattered no more
func NewStoreCollector(read func() StoreStats) prometheus.Collector {
	return newReader(read,
		gauge("rate_limiter_store_states", "States that the store holds.",
			func(s *StoreStats) float64 { return float64(s.States) }),
		gauge("rate_limiter_store_bytes", "Memory that the store's states take.",
			func(s *StoreStats) float64 { return float64(s.Bytes) }),
		gauge("rate_limiter_store_max_bytes", "The most memory that the store's states may take.",
			func(s *StoreStats) float64 { return float64(s.MaxBytes) }),
		counter("rate_limiter_store_evictions_total", "States evicted although they still mattered.",
			func(s *StoreStats) float64 { return float64(s.Evictions) }),
		counter("rate_limiter_store_reclaimed_total", "States reclaimed because they mattered no more.",
			func(s *StoreStats) float64 { return float64(s.Reclaimed) }),
	)
}

// SharedStats is what a store that processes share has done in this process.
type SharedStats struct {
	Calls       uint64 // calls that decided something, since the start
	Operations  uint64 // operations that they decided
	DenialHits  uint64 // denials answered from those remembered, without a call
	DenialsKept int64  // denials remembered now
	Announcing  bool   // whether announcements are received, without which no denial is remembered
	Leases      int    // clients with leased permits in this process now
	Queued      int    // operations that wait to be sent
	InFlight    int    // calls that are under way
	LostHashes  uint64 // hashes, with the states of many clients, that were gone although they still mattered
	ScriptLoads uint64 // scripts sent whole, since the start
	EvictedKeys uint64 // keys that the servers evicted
}

// NewSharedCollector makes a collector that reads the figures of a store that processes
// share when it is scraped, by calling read, which must be safe for concurrent use. The
// caller registers it.
//
//	rate_limiter_store_calls_total       calls that decided something
//	rate_limiter_store_operations_total  operations that they decided
//	rate_limiter_denial_cache_hits_total denials answered without a call
//	rate_limiter_denial_cache_entries    denials remembered
//	rate_limiter_store_announcing        1 while announcements of other processes are received, else 0
//	rate_limiter_store_leases            clients with leased permits in this process
//	rate_limiter_store_queued_operations operations that wait to be sent
//	rate_limiter_store_calls_in_flight   calls that are under way
//	rate_limiter_store_script_loads_total scripts sent whole
//	rate_limiter_store_lost_hashes_total hashes of states gone although they still mattered
//	rate_limiter_store_evicted_keys_total keys that the servers evicted
func NewSharedCollector(read func() SharedStats) prometheus.Collector {
	return newReader(read,
		counter("rate_limiter_store_calls_total", "Calls of the store that decided something.",
			func(s *SharedStats) float64 { return float64(s.Calls) }),
		counter("rate_limiter_store_operations_total", "Operations that calls of the store decided.",
			func(s *SharedStats) float64 { return float64(s.Operations) }),
		counter("rate_limiter_denial_cache_hits_total", "Denials answered without a call of the store.",
			func(s *SharedStats) float64 { return float64(s.DenialHits) }),
		gauge("rate_limiter_denial_cache_entries", "Denials that are remembered.",
			func(s *SharedStats) float64 { return float64(s.DenialsKept) }),
		gauge("rate_limiter_store_announcing", "Whether announcements of other processes are received, without which no denial is remembered.",
			func(s *SharedStats) float64 {
				if s.Announcing {
					return 1
				}
				return 0
			}),
		gauge("rate_limiter_store_leases", "Clients with leased permits in this process.",
			func(s *SharedStats) float64 { return float64(s.Leases) }),
		gauge("rate_limiter_store_queued_operations", "Operations that wait to be sent to the store.",
			func(s *SharedStats) float64 { return float64(s.Queued) }),
		gauge("rate_limiter_store_calls_in_flight", "Calls of the store that are under way.",
			func(s *SharedStats) float64 { return float64(s.InFlight) }),
		counter("rate_limiter_store_script_loads_total", "Scripts sent whole: at the start, and to servers that did not know them.",
			func(s *SharedStats) float64 { return float64(s.ScriptLoads) }),
		counter("rate_limiter_store_lost_hashes_total", "Hashes of states that were gone although they still mattered.",
			func(s *SharedStats) float64 { return float64(s.LostHashes) }),
		counter("rate_limiter_store_evicted_keys_total", "Keys that the store's servers evicted.",
			func(s *SharedStats) float64 { return float64(s.EvictedKeys) }),
	)
}
