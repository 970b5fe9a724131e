package promlimit

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Answers counts what a service answers, and how long its answers take, for a service level:
//
//	rate_limiter_answers_total{service,route,status}          answers
//	rate_limiter_answer_seconds{service,route,status}         from a request to its answer
//
// A series exists from the first answer of its kind on. There are as many as a service has routes and kinds of answers,
// whatever clients ask. It is safe for concurrent use; make it with [NewAnswers].
type Answers struct {
	total   *prometheus.Desc
	seconds *durationHistogram
}

// NewAnswers makes the metrics and registers them. The buckets reach from 1 ms to 1 s. A duration that came with a
// trace is an exemplar of its bucket, until the next one of that bucket.
func NewAnswers(registerer prometheus.Registerer) (*Answers, error) {
	labels := []string{"service", "route", "status"}
	a := &Answers{
		total: prometheus.NewDesc("rate_limiter_answers_total",
			"Answers, by listener, route and status.", labels, nil),
		seconds: newDurationHistogram("rate_limiter_answer_seconds",
			"Time from a request to its answer, by listener, route and status.",
			[]float64{1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1}, labels...),
	}
	return a, register(registerer, answersCollector{a})
}

// An AnswerRoute has the answers of one route of one listener. It is safe for concurrent use; [Answers.Route] makes it.
type AnswerRoute struct {
	of             *Answers
	service, route string

	adding   sync.Mutex
	byStatus atomic.Pointer[map[string]*durations] // replaced, and not changed, while adding is held
}

// Route makes the series of a route: a pattern of paths, or a method of gRPC. service is the listener. A route is made
// once: metrics of two of the same names can't be gathered.
func (a *Answers) Route(service, route string) *AnswerRoute {
	r := &AnswerRoute{of: a, service: service, route: route}
	r.byStatus.Store(&map[string]*durations{})
	return r
}

// Answered counts an answer: its status, such as "200" of HTTP and "Unavailable" of gRPC, the time from the request to
// it, and the ID of the trace that it is part of; "" is none.
func (r *AnswerRoute) Answered(status string, elapsed time.Duration, trace string) {
	d := (*r.byStatus.Load())[status]
	if d == nil {
		d = r.add(status)
	}
	d.observe(elapsed)
	if trace != "" {
		d.exemplify(elapsed, trace)
	}
}

func (r *AnswerRoute) add(status string) *durations {
	r.adding.Lock()
	defer r.adding.Unlock()
	known := *r.byStatus.Load()
	if d := known[status]; d != nil {
		return d
	}
	known = maps.Clone(known)
	known[status] = r.of.seconds.with(r.service, r.route, status)
	r.byStatus.Store(&known)
	return known[status]
}

// An answersCollector gathers them.
type answersCollector struct{ *Answers }

// Describe implements [prometheus.Collector].
func (a answersCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- a.total
	a.seconds.Describe(descs)
}

// Collect implements [prometheus.Collector].
func (a answersCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, d := range a.seconds.all() {
		metric, n := d.metric()
		metrics <- metric
		metrics <- prometheus.MustNewConstMetric(a.total, prometheus.CounterValue, float64(n), d.labels...)
	}
}
