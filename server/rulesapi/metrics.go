package rulesapi

import "github.com/prometheus/client_golang/prometheus"

// metrics count what administrators do:
//
//	rate_limiter_rule_edits_total{action,outcome}  calls that change something, refused ones included
//	rate_limiter_admin_refused_total{outcome}      requests of who may not make them
//	rate_limiter_rule_resets_total{outcome}        resets of whole rules, by what came of them
type metrics struct {
	edits, refusals, resets *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		edits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limiter_rule_edits_total",
			Help: "Requests that change rules or reset clients, by what came of them.",
		}, []string{"action", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limiter_admin_refused_total",
			Help: "Requests to the admin listener of who showed no token that is known, or may not make them.",
		}, []string{"outcome"}),
		resets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limiter_rule_resets_total",
			Help: "Resets of all clients of a rule, by what came of them.",
		}, []string{"outcome"}),
	}
	for _, collector := range []prometheus.Collector{m.edits, m.refusals, m.resets} {
		if err := registerer.Register(collector); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) edited(action, outcome string) { m.edits.WithLabelValues(action, outcome).Inc() }

func (m *metrics) refused(outcome string) { m.refusals.WithLabelValues(outcome).Inc() }
