package promlimit

import "github.com/prometheus/client_golang/prometheus"

// reader is a collector of figures that are read together when it is scraped.
type reader[S any] struct {
	read    func() S
	figures []figure[S]
}

// figure is one metric, and how it is found among the figures.
type figure[S any] struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*S) float64
}

func newReader[S any](read func() S, figures ...figure[S]) *reader[S] {
	return &reader[S]{read: read, figures: figures}
}

func gauge[S any](name, help string, of func(*S) float64) figure[S] {
	return figure[S]{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, of}
}

func counter[S any](name, help string, of func(*S) float64) figure[S] {
	return figure[S]{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue, of}
}

// Describe implements [prometheus.Collector].
func (r *reader[S]) Describe(descs chan<- *prometheus.Desc) {
	for _, f := range r.figures {
		descs <- f.desc
	}
}

// Collect implements [prometheus.Collector].
func (r *reader[S]) Collect(metrics chan<- prometheus.Metric) {
	stats := r.read()
	for _, f := range r.figures {
		metrics <- prometheus.MustNewConstMetric(f.desc, f.kind, f.of(&stats))
	}
}
