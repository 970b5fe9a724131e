package promlimit

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// NewStatsCollector makes a collector of figures, such as the Stats of memstore, redisstore and
// failover are. It calls read at each scrape; read must be safe for concurrent use. A field of the
// struct is a metric if its tags name one:
//
//	Probes uint64 `counter:"rate_limiter_failover_probes_total" help:"Probes of a store that was unreachable."`
//
// The tag is counter or gauge; label:"name=value" gives it a label. The metrics of stint's own
// structs have no help in their tags, since statsHelp below has it. The caller registers the
// collector.
func NewStatsCollector[S any](read func() S) prometheus.Collector {
	c := &statsCollector{read: func() reflect.Value { return reflect.ValueOf(read()) }}
	for field := range reflect.TypeFor[S]().Fields() {
		kind, name := prometheus.GaugeValue, field.Tag.Get("gauge")
		if name == "" {
			kind, name = prometheus.CounterValue, field.Tag.Get("counter")
		}
		if name == "" {
			continue
		}
		labels := prometheus.Labels{}
		if label, value, labelled := strings.Cut(field.Tag.Get("label"), "="); labelled {
			labels[label] = value
		}
		c.metrics = append(c.metrics, statsMetric{
			prometheus.NewDesc(name, cmp.Or(field.Tag.Get("help"), helpOf(name)), nil, labels), kind, field.Index[0],
		})
	}
	return c
}

// statsHelp is the help of the metrics whose names stand in tags of memstore, redisstore, failover and the service's
// alerts: a name, and below it the text, indented.
const statsHelp = `
rate_limiter_store_states
  States that the store holds.
rate_limiter_store_bytes
  Memory that the store's states take.
rate_limiter_store_max_bytes
  The most memory that the store's states may take.
rate_limiter_store_evictions_total
  States evicted although they still mattered.
rate_limiter_store_reclaimed_total
  States reclaimed because they mattered no more.
rate_limiter_store_holds_refused_total
  Reserves denied because holds, or those of their policy, have as much memory as they may.
rate_limiter_store_calls_total
  Calls of the store that decided something.
rate_limiter_store_operations_total
  Operations that calls of the store decided.
rate_limiter_denial_cache_hits_total
  Denials answered without a call of the store.
rate_limiter_denial_cache_entries
  Denials that are remembered.
rate_limiter_store_announcing
  Whether announcements of other processes are received, without which no denial is remembered.
rate_limiter_store_leases
  Clients with leased permits in this process.
rate_limiter_store_queued_operations
  Operations that wait to be sent to the store.
rate_limiter_store_calls_in_flight
  Calls of the store that are under way.
rate_limiter_store_script_loads_total
  Scripts sent whole: at the start, and to servers that did not know them.
rate_limiter_failover_answers_total
  Operations that a failure policy answered, by its mode.
rate_limiter_failover_failures_total
  Operations that the store failed to decide, by how.
rate_limiter_failover_overloaded_total
  Operations that this process was too busy to have decided in time.
rate_limiter_failover_probes_total
  Probes of a store that was unreachable.
rate_limiter_store_shards
  Parts of the store that fail apart, by their state.
rate_limiter_alerts_sent_total
  Alerts that the receiver confirmed.
rate_limiter_alerts_repeated_total
  Alerts left out, since one of the same client, rule and window was sent, by this process or another.
rate_limiter_alert_retries_total
  Attempts to send alerts after the first one.
rate_limiter_alerts_failed_total
  Alerts dropped because the receiver did not confirm them.
rate_limiter_alerts_queued
  Alerts that wait to be sent.
rate_limiter_alerts_dropped_total
  Alerts dropped because too many of their kind waited.
`

// helpOf is the text of statsHelp for a metric, as one line, or "". A text may go on over several
// lines, which are joined by blanks.
func helpOf(metric string) string {
	_, text, _ := strings.Cut(statsHelp, "\n"+metric+"\n  ")
	text, _, _ = strings.Cut(text, "\nrate_limiter_")
	return strings.Join(strings.Fields(text), " ")
}

// A statsCollector has fields of a struct as metrics. The fields are looked up once; a scrape reads
// the struct as a whole, so that its figures are of one moment if read makes them so.
type statsCollector struct {
	read    func() reflect.Value
	metrics []statsMetric
}

// A statsMetric is one figure of a struct, which its tags describe.
type statsMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	field int // by its index
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
	for _, m := range c.metrics {
		value, n := 0.0, stats.Field(m.field)
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
