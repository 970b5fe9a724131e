package promlimit

import (
	"reflect"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// NewStatsCollector makes a collector of figures, such as the Stats of memstore, redisstore and failover are. It calls
// read at each scrape; read must be safe for concurrent use. A field of the struct is a metric if its tags name one:
//
//	Probes uint64 `counter:"rate_limiter_failover_probes_total" help:"Probes of a store that was unreachable."`
//
// The tag is counter or gauge; label:"name=value" gives it a label. The caller registers the collector.
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
			prometheus.NewDesc(name, field.Tag.Get("help"), nil, labels), kind, field.Index[0],
		})
	}
	return c
}

// A statsCollector has fields of a struct as metrics.
type statsCollector struct {
	read    func() reflect.Value
	metrics []statsMetric
}

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
