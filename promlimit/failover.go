package promlimit

import "github.com/prometheus/client_golang/prometheus"

// FailoverStats is what a failover store has done since the start, and its state.
type FailoverStats struct {
	Open, Closed, Local uint64 // operations answered by each mode
	Timeouts, Errors    uint64 // operations that the store failed, by how
	Overloaded          uint64 // operations that this process was too busy to have decided in time
	Probes              uint64 // probes made
	Charged             uint64 // permits spent locally that were charged to the store
	Dropped             uint64 // local spendings that were not, or perhaps not, charged
	Uncharged           int    // clients whose local spending waits to be charged
	Shards, Unreachable int    // parts of the store, and how many are unreachable now
}

// A FailoverCollector reads the figures of a failover store:
//
//	rate_limiter_failover_answers_total{mode}          operations that a failure policy answered: open, closed, local
//	rate_limiter_failover_failures_total{kind}         operations that the store failed: timeout, error
//	rate_limiter_failover_overloaded_total             operations that this process was too busy to have decided in time
//	rate_limiter_failover_probes_total                 probes of a store that was unreachable
//	rate_limiter_failover_charged_permits_total        permits spent locally that were charged to the store
//	rate_limiter_failover_dropped_charges_total        local spendings that were not, or perhaps not, charged
//	rate_limiter_failover_uncharged_clients            clients whose local spending waits to be charged
//	rate_limiter_store_shards{state}                   parts of the store: up, unreachable
type FailoverCollector struct {
	read                                  func() FailoverStats
	answers, failures, overloaded, probes *prometheus.Desc
	charged, dropped, uncharged, shards   *prometheus.Desc
}

// NewFailoverCollector makes a collector that reads the figures by calling read, which
// must be safe for concurrent use. The caller registers it.
func NewFailoverCollector(read func() FailoverStats) *FailoverCollector {
	return &FailoverCollector{
		read:       read,
		answers:    prometheus.NewDesc("rate_limiter_failover_answers_total", "Operations that a failure policy answered, by its mode.", []string{"mode"}, nil),
		failures:   prometheus.NewDesc("rate_limiter_failover_failures_total", "Operations that the store failed to decide, by how.", []string{"kind"}, nil),
		overloaded: prometheus.NewDesc("rate_limiter_failover_overloaded_total", "Operations that this process was too busy to have decided in time.", nil, nil),
		probes:     prometheus.NewDesc("rate_limiter_failover_probes_total", "Probes of a store that was unreachable.", nil, nil),
		charged:    prometheus.NewDesc("rate_limiter_failover_charged_permits_total", "Permits spent locally that were charged to the store.", nil, nil),
		dropped:    prometheus.NewDesc("rate_limiter_failover_dropped_charges_total", "Local spendings that were not, or perhaps not, charged.", nil, nil),
		uncharged:  prometheus.NewDesc("rate_limiter_failover_uncharged_clients", "Clients whose local spending waits to be charged to the store.", nil, nil),
		shards:     prometheus.NewDesc("rate_limiter_store_shards", "Parts of the store that fail apart, by their state.", []string{"state"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (c *FailoverCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.answers, c.failures, c.overloaded, c.probes, c.charged, c.dropped, c.uncharged, c.shards} {
		descs <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c *FailoverCollector) Collect(metrics chan<- prometheus.Metric) {
	stats := c.read()
	count := func(desc *prometheus.Desc, n uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	count(c.answers, stats.Open, "open")
	count(c.answers, stats.Closed, "closed")
	count(c.answers, stats.Local, "local")
	count(c.failures, stats.Timeouts, "timeout")
	count(c.failures, stats.Errors, "error")
	count(c.overloaded, stats.Overloaded)
	count(c.probes, stats.Probes)
	count(c.charged, stats.Charged)
	count(c.dropped, stats.Dropped)
	metrics <- prometheus.MustNewConstMetric(c.uncharged, prometheus.GaugeValue, float64(stats.Uncharged))
	metrics <- prometheus.MustNewConstMetric(c.shards, prometheus.GaugeValue, float64(stats.Shards-stats.Unreachable), "up")
	metrics <- prometheus.MustNewConstMetric(c.shards, prometheus.GaugeValue, float64(stats.Unreachable), "unreachable")
}
