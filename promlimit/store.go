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
