// Package promlimit counts decisions for Prometheus. No metric carries a key.
//
// The metrics are
//
//	rate_limiter_requests_total{algorithm,allowed}  checks answered
//	rate_limiter_check_seconds{algorithm,allowed}   how long the store took to decide them
//	rate_limiter_degraded_total{allowed}            checks that a failure policy answered
//	rate_limiter_store_errors_total                 operations that the store could not decide
//	rate_limiter_overloaded_total                   requests that this process was too busy to have decided in time
//
// The algorithm is the deciding limit's; allowed is true or false. Histograms have native buckets
// beside the classic ones. docs/reference/metrics.md lists the metrics of all types of this
// package.
package promlimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

// Metrics counts decisions. It is safe for concurrent use; make it with [New]. All series of all
// algorithms exist from the start, with 0, so that a rate can be computed from the first decision
// on.
type Metrics struct {
	checks      [stint.AlgorithmConcurrency + 1][2]series
	degraded    [2]prometheus.Counter
	storeErrors prometheus.Counter
	overloaded  prometheus.Counter
}

// series is what one algorithm's admissions or denials are counted by. It is found
// once, since finding it by its labels costs more than counting.
type series struct {
	requests prometheus.Counter
	seconds  *durations
}

// New makes the metrics and registers them. It fails when the registerer has metrics of these names
// already; none is registered then. The buckets reach from 1us, a store in the process, to 1s.
func New(registerer prometheus.Registerer) (*Metrics, error) {
	labels := []string{"algorithm", "allowed"}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rate_limiter_requests_total",
		Help: "Checks answered, by the deciding limit's algorithm and by whether they were admitted.",
	}, labels)
	seconds := newDurationHistogram("rate_limiter_check_seconds", "Time that the store took to decide checks.",
		[]float64{1e-6, 2.5e-6, 1e-5, 2.5e-5, 1e-4, 2.5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1}, labels...)
	degraded := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rate_limiter_degraded_total",
		Help: "Checks that a failure policy answered instead of the store.",
	}, []string{"allowed"})
	m := &Metrics{storeErrors: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rate_limiter_store_errors_total",
		Help: "Operations that the store could not decide.",
	})}
	for i, allowed := range []bool{false, true} {
		text := strconv.FormatBool(allowed)
		m.degraded[i] = degraded.WithLabelValues(text)
		for _, algorithm := range append(stint.Algorithms(), stint.AlgorithmConcurrency) {
			m.checks[algorithm][i] = series{
				requests: requests.WithLabelValues(algorithm.String(), text),
				seconds:  seconds.with(algorithm.String(), text),
			}
		}
	}
	m.overloaded = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rate_limiter_overloaded_total",
		Help: "Requests that were not decided in time because this process was too busy.",
	})
	return m, register(registerer, requests, seconds, degraded, m.storeErrors, m.overloaded)
}

// register registers all of the collectors or none.
func register(registerer prometheus.Registerer, collectors ...prometheus.Collector) error {
	for i, collector := range collectors {
		if err := registerer.Register(collector); err != nil {
			for _, done := range collectors[:i] {
				registerer.Unregister(done)
			}
			return prefix.Errorf("registering metrics: %w", err)
		}
	}
	return nil
}

// Checked counts a check that was decided, by the store or by a failure policy, and how long it
// took. The algorithm is the deciding limit's. An algorithm that is none, as of a decision that
// asked no limit, is not counted.
func (m *Metrics) Checked(algorithm stint.Algorithm, d stint.Decision, elapsed time.Duration) {
	if int(algorithm) >= len(m.checks) || algorithm == 0 {
		return
	}
	i := 0
	if d.Allowed {
		i = 1
	}
	s := &m.checks[algorithm][i]
	s.requests.Inc()
	s.seconds.observe(elapsed)
	if d.Degraded {
		m.degraded[i].Inc()
	}
}

// StoreFailed counts an operation that the store could not decide.
func (m *Metrics) StoreFailed() { m.storeErrors.Inc() }

// Overloaded counts a request that this process was too busy to have decided in time.
func (m *Metrics) Overloaded() { m.overloaded.Inc() }

// Observe counts an event, as a [stint.Observer]: each Take and Try as a check, each failure of the
// store, whether a failure policy answered or not. Peeks, resets and settlements are no checks.
// Input errors, operations that the caller gave up, and decisions that asked no limit are not
// counted. A degraded check counts three times: as a check, as degraded, and as a failure of the
// store.
func (m *Metrics) Observe(ctx context.Context, event *stint.Event) {
	switch {
	case errors.Is(event.Err, stint.ErrOverloaded):
		m.Overloaded()
	case event.Err != nil:
		if ctx.Err() == nil && !errors.Is(event.Err, stint.ErrInvalid) {
			m.StoreFailed()
		}
	case event.Checked() && event.Claim.Policy != nil:
		if event.Decision.Degraded {
			m.StoreFailed()
		}
		m.Checked(event.Limit().Algorithm, event.Decision, event.Elapsed)
	}
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// ownLabels are those that metrics of stint, of Go and of the process have themselves. A label of
// everybody's would collide with them, and the registration would fail where the cause is hard to
// see.
var ownLabels = []string{
	"action", "algorithm", "allowed", "cause", "class", "direction", "kind", "le", "mode", "node", "outcome", "quantile",
	"route", "rule", "service", "set", "state", "status", "version", "via",
}

// WithLabels returns a registerer that gives every metric these labels, such as {"application": "shop"}. The values are
// constant. An error wraps stint.ErrInvalid, and holds all faults: a name is not one of Prometheus's, or a metric has a
// label of that name itself; or a value is not UTF-8.
func WithLabels(registerer prometheus.Registerer, labels map[string]string) (prometheus.Registerer, error) {
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		switch {
		case !labelName.MatchString(name) || strings.HasPrefix(name, "__"):
			faults = append(faults, stint.Invalid("metrics.labels", name,
				"names of letters, digits and _, which begin with neither a digit nor __"))
		case slices.Contains(ownLabels, name):
			faults = append(faults, stint.Invalid("metrics.labels", name,
				fmt.Sprintf("names other than those that metrics have themselves (%s)", strings.Join(ownLabels, ", "))))
		case !utf8.ValidString(labels[name]):
			faults = append(faults, stint.Invalid("metrics.labels."+name, labels[name], "UTF-8"))
		}
	}
	if err := prefix.Join(faults...); err != nil {
		return nil, err
	}
	if len(labels) == 0 {
		return registerer, nil
	}
	return prometheus.WrapRegistererWith(labels, registerer), nil
}
