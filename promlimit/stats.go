package promlimit

import (
	"reflect"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// StoreStats is what a store in memory holds and has done since the start.
type StoreStats struct {
	States    int64 `gauge:"rate_limiter_store_states" help:"States that the store holds."`
	Bytes     int64 `gauge:"rate_limiter_store_bytes" help:"Memory that the store's states take."`
	MaxBytes  int64 `gauge:"rate_limiter_store_max_bytes" help:"The most memory that the store's states may take."`
	Evictions int64 `counter:"rate_limiter_store_evictions_total" help:"States evicted although they still mattered."`
	Reclaimed int64 `counter:"rate_limiter_store_reclaimed_total" help:"States reclaimed because they mattered no more."`
}

// SharedStats is what a store that processes share has done in this process since the start.
type SharedStats struct {
	Calls       uint64 `counter:"rate_limiter_store_calls_total" help:"Calls of the store that decided something."`
	Operations  uint64 `counter:"rate_limiter_store_operations_total" help:"Operations that calls of the store decided."`
	DenialHits  uint64 `counter:"rate_limiter_denial_cache_hits_total" help:"Denials answered without a call of the store."`
	DenialsKept int64  `gauge:"rate_limiter_denial_cache_entries" help:"Denials that are remembered."`
	Announcing  bool   `gauge:"rate_limiter_store_announcing" help:"Whether announcements of other processes are received, without which no denial is remembered."`
	Leases      int    `gauge:"rate_limiter_store_leases" help:"Clients with leased permits in this process."`
	Queued      int    `gauge:"rate_limiter_store_queued_operations" help:"Operations that wait to be sent to the store."`
	InFlight    int    `gauge:"rate_limiter_store_calls_in_flight" help:"Calls of the store that are under way."`
	ScriptLoads uint64 `counter:"rate_limiter_store_script_loads_total" help:"Scripts sent whole: at the start, and to servers that did not know them."`
}

// FailoverStats is what a failover store has done since the start, and its state.
type FailoverStats struct {
	Open        uint64 `counter:"rate_limiter_failover_answers_total" label:"mode=open" help:"Operations that a failure policy answered, by its mode."`
	Closed      uint64 `counter:"rate_limiter_failover_answers_total" label:"mode=closed" help:"Operations that a failure policy answered, by its mode."`
	Local       uint64 `counter:"rate_limiter_failover_answers_total" label:"mode=local" help:"Operations that a failure policy answered, by its mode."`
	Timeouts    uint64 `counter:"rate_limiter_failover_failures_total" label:"kind=timeout" help:"Operations that the store failed to decide, by how."`
	Errors      uint64 `counter:"rate_limiter_failover_failures_total" label:"kind=error" help:"Operations that the store failed to decide, by how."`
	Overloaded  uint64 `counter:"rate_limiter_failover_overloaded_total" help:"Operations that this process was too busy to have decided in time."`
	Probes      uint64 `counter:"rate_limiter_failover_probes_total" help:"Probes of a store that was unreachable."`
	Up          int    `gauge:"rate_limiter_store_shards" label:"state=up" help:"Parts of the store that fail apart, by their state."`
	Unreachable int    `gauge:"rate_limiter_store_shards" label:"state=unreachable" help:"Parts of the store that fail apart, by their state."`
}

// AlertStats is what became of alerts to a webhook since the start.
type AlertStats struct {
	Sent     uint64 `counter:"rate_limiter_alerts_sent_total" help:"Alerts that the receiver confirmed."`
	Repeated uint64 `counter:"rate_limiter_alerts_repeated_total" help:"Alerts left out, since one of the same client, rule and window was sent, by this process or another."`
	Retries  uint64 `counter:"rate_limiter_alert_retries_total" help:"Attempts to send alerts after the first one."`
	Failed   uint64 `counter:"rate_limiter_alerts_failed_total" help:"Alerts dropped because the receiver did not confirm them."`
	Queued   int    `gauge:"rate_limiter_alerts_queued" help:"Alerts that wait to be sent."`

	DroppedNearLimit uint64 `counter:"rate_limiter_alerts_dropped_total" label:"kind=near_limit" help:"Alerts dropped because too many of their kind waited."`
	DroppedDenied    uint64 `counter:"rate_limiter_alerts_dropped_total" label:"kind=denied" help:"Alerts dropped because too many of their kind waited."`
}

// NewStatsCollector makes a collector that calls read at each scrape; read must be safe for concurrent use. Each field
// of the figures is a metric, which its tags name. The caller registers the collector.
func NewStatsCollector[S StoreStats | SharedStats | FailoverStats | AlertStats](read func() S) prometheus.Collector {
	c := &statsCollector{read: func() reflect.Value { return reflect.ValueOf(read()) }}
	for field := range reflect.TypeFor[S]().Fields() {
		kind, name := prometheus.GaugeValue, field.Tag.Get("gauge")
		if name == "" {
			kind, name = prometheus.CounterValue, field.Tag.Get("counter")
		}
		labels := prometheus.Labels{}
		if label, value, labelled := strings.Cut(field.Tag.Get("label"), "="); labelled {
			labels[label] = value
		}
		c.metrics = append(c.metrics, statsMetric{prometheus.NewDesc(name, field.Tag.Get("help"), nil, labels), kind})
	}
	return c
}

// A statsCollector has the fields of a struct as metrics.
type statsCollector struct {
	read    func() reflect.Value
	metrics []statsMetric // of each field
}

type statsMetric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Describe implements [prometheus.Collector].
func (c *statsCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		descs <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *statsCollector) Collect(metrics chan<- prometheus.Metric) {
	stats := c.read()
	for i, m := range c.metrics {
		value, n := 0.0, stats.Field(i)
		switch {
		case n.CanInt():
			value = float64(n.Int())
		case n.CanUint():
			value = float64(n.Uint())
		case n.Bool():
			value = 1
		}
		metrics <- prometheus.MustNewConstMetric(m.desc, m.kind, value)
	}
}
