package promlimit

import "github.com/prometheus/client_golang/prometheus"

// StoreStats is what a store in memory holds and has done.
type StoreStats struct {
	States    int64 // states held now
	Bytes     int64 // memory that they take now
	Evictions int64 // states that had to go although they still mattered, since the start
}

// A StoreCollector reads a store's figures when it is scraped:
//
//	rate_limiter_store_states           states held
//	rate_limiter_store_bytes            memory that they take
//	rate_limiter_store_evictions_total  states evicted although they still mattered
type StoreCollector struct {
	read                     func() StoreStats
	states, bytes, evictions *prometheus.Desc
}

// NewStoreCollector makes a collector that reads the figures by calling read, which
// must be safe for concurrent use. The caller registers it.
func NewStoreCollector(read func() StoreStats) *StoreCollector {
	return &StoreCollector{
		read:      read,
		states:    prometheus.NewDesc("rate_limiter_store_states", "States that the store holds.", nil, nil),
		bytes:     prometheus.NewDesc("rate_limiter_store_bytes", "Memory that the store's states take.", nil, nil),
		evictions: prometheus.NewDesc("rate_limiter_store_evictions_total", "States evicted although they still mattered.", nil, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *StoreCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.states
	descs <- c.bytes
	descs <- c.evictions
}

// Collect implements [prometheus.Collector].
func (c *StoreCollector) Collect(metrics chan<- prometheus.Metric) {
	stats := c.read()
	metrics <- prometheus.MustNewConstMetric(c.states, prometheus.GaugeValue, float64(stats.States))
	metrics <- prometheus.MustNewConstMetric(c.bytes, prometheus.GaugeValue, float64(stats.Bytes))
	metrics <- prometheus.MustNewConstMetric(c.evictions, prometheus.CounterValue, float64(stats.Evictions))
}

// SharedStats is what a store that processes share has done in this process.
type SharedStats struct {
	Calls       uint64 // calls that decided something, since the start
	Operations  uint64 // operations that they decided
	DenialHits  uint64 // denials answered from those remembered, without a call
	DenialsKept int64  // denials remembered now
}

// A SharedCollector reads the figures of a store that processes share:
//
//	rate_limiter_store_calls_total       calls that decided something
//	rate_limiter_store_operations_total  operations that they decided
//	rate_limiter_denial_cache_hits_total denials answered without a call
//	rate_limiter_denial_cache_entries    denials remembered
type SharedCollector struct {
	read                            func() SharedStats
	calls, operations, hits, denied *prometheus.Desc
}

// NewSharedCollector makes a collector that reads the figures by calling read, which
// must be safe for concurrent use. The caller registers it.
func NewSharedCollector(read func() SharedStats) *SharedCollector {
	return &SharedCollector{
		read:       read,
		calls:      prometheus.NewDesc("rate_limiter_store_calls_total", "Calls of the store that decided something.", nil, nil),
		operations: prometheus.NewDesc("rate_limiter_store_operations_total", "Operations that calls of the store decided.", nil, nil),
		hits:       prometheus.NewDesc("rate_limiter_denial_cache_hits_total", "Denials answered without a call of the store.", nil, nil),
		denied:     prometheus.NewDesc("rate_limiter_denial_cache_entries", "Denials that are remembered.", nil, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *SharedCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- c.calls
	descs <- c.operations
	descs <- c.hits
	descs <- c.denied
}

// Collect implements [prometheus.Collector].
func (c *SharedCollector) Collect(metrics chan<- prometheus.Metric) {
	stats := c.read()
	metrics <- prometheus.MustNewConstMetric(c.calls, prometheus.CounterValue, float64(stats.Calls))
	metrics <- prometheus.MustNewConstMetric(c.operations, prometheus.CounterValue, float64(stats.Operations))
	metrics <- prometheus.MustNewConstMetric(c.hits, prometheus.CounterValue, float64(stats.DenialHits))
	metrics <- prometheus.MustNewConstMetric(c.denied, prometheus.GaugeValue, float64(stats.DenialsKept))
}
