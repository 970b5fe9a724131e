// Package promlimit counts decisions for Prometheus. No metric carries a key.
//
// The metrics are
//
//	rate_limiter_requests_total{algorithm,allowed,limiter}  checks answered
//	rate_limiter_check_seconds{algorithm,allowed,limiter}   how long the store took to decide them
//	rate_limiter_degraded_total{allowed}                    checks that a failure policy answered
//	rate_limiter_store_errors_total                         operations that the store could not decide
//	rate_limiter_overloaded_total                           requests that the process was too busy to decide in time
//
// The algorithm is the deciding limit's; allowed is true or false; limiter is the name that [stint.New] was given, and
// absent in the service. Histograms have native buckets beside the classic ones. docs/reference/metrics.md lists the
// metrics of all types of this package.
package promlimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/prefix"
)

// Metrics counts decisions. It is safe for concurrent use; make it with [New] or [NewUnnamed].
type Metrics struct {
	requests    *prometheus.CounterVec
	seconds     *durationHistogram
	degraded    [2]prometheus.Counter
	storeErrors prometheus.Counter
	overloaded  prometheus.Counter

	// unnamed are the checks of no limiter by name; all, if names is false.
	unnamed checks
	names   bool

	adding   sync.Mutex
	limiters atomic.Pointer[map[string]*checks] // by name; replaced, and not changed, while adding is held
}

// maxLimiters is how many limiters are counted by name, so that a program that makes names up has no more series.
const maxLimiters = 100

// otherLimiters is the name of all limiters beyond these.
const otherLimiters = "other"

// checks are one limiter's, by algorithm; nil of those that it has not been asked with.
type checks [stint.AlgorithmConcurrency + 1]atomic.Pointer[[2]series]

// series is what one algorithm's admissions or denials are counted by. It is found
// once, since finding it by its labels costs more than counting.
type series struct {
	requests prometheus.Counter
	seconds  *durations
}

// New makes the metrics and registers them. It fails when the registerer has metrics of these names
// already; none is registered then. The buckets reach from 1us, a store in the process, to 1s. Checks are counted
// apart by limiter: a limiter's series exist from its first check on. Beyond 100 limiters, further ones are "other".
func New(registerer prometheus.Registerer) (*Metrics, error) {
	return newMetrics(registerer, "limiter")
}

// NewUnnamed is New without the label limiter, for a program that decides by rules, which [Rules] counts by name. All
// series of all algorithms exist from the start, with 0, so that a rate can be computed from the first decision on.
func NewUnnamed(registerer prometheus.Registerer) (*Metrics, error) { return newMetrics(registerer) }

func newMetrics(registerer prometheus.Registerer, further ...string) (*Metrics, error) {
	labels := append([]string{"algorithm", "allowed"}, further...)
	degraded := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rate_limiter_degraded_total",
		Help: "Checks that a failure policy answered instead of the store.",
	}, []string{"allowed"})
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limiter_requests_total",
			Help: "Checks answered, by the deciding limit's algorithm and by whether they were admitted.",
		}, labels),
		seconds: newDurationHistogram("rate_limiter_check_seconds", "Time that the store took to decide checks.",
			[]float64{1e-6, 2.5e-6, 1e-5, 2.5e-5, 1e-4, 2.5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1},
			labels...),
		storeErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limiter_store_errors_total",
			Help: "Operations that the store could not decide.",
		}),
		overloaded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limiter_overloaded_total",
			Help: "Requests that were not decided in time because this process was too busy.",
		}),
		names: len(further) > 0,
	}
	for i, text := range allowedTexts {
		m.degraded[i] = degraded.WithLabelValues(text)
	}
	if m.limiters.Store(&map[string]*checks{}); !m.names {
		for _, algorithm := range append(notation.Algorithms(), stint.AlgorithmConcurrency) {
			m.unnamed[algorithm].Store(m.newSeries(algorithm))
		}
	}
	return m, register(registerer, m.requests, m.seconds, degraded, m.storeErrors, m.overloaded)
}

// allowedTexts are the values of the label allowed, false first.
var allowedTexts = [2]string{"false", "true"}

func (m *Metrics) newSeries(algorithm stint.Algorithm, limiter ...string) *[2]series {
	var made [2]series
	for i, text := range allowedTexts {
		labels := append([]string{algorithm.String(), text}, limiter...)
		made[i] = series{requests: m.requests.WithLabelValues(labels...), seconds: m.seconds.with(labels...)}
	}
	return &made
}

// seriesOf are the series of one limiter's algorithm.
func (m *Metrics) seriesOf(limiter string, algorithm stint.Algorithm) *[2]series {
	of := &m.unnamed
	if m.names {
		known := *m.limiters.Load()
		if of = known[limiter]; of == nil && len(known) >= maxLimiters {
			of = known[otherLimiters]
		}
	}
	if of != nil {
		if found := of[algorithm].Load(); found != nil {
			return found
		}
	}
	return m.addSeries(limiter, algorithm)
}

func (m *Metrics) addSeries(limiter string, algorithm stint.Algorithm) *[2]series {
	m.adding.Lock()
	defer m.adding.Unlock()
	known := *m.limiters.Load()
	of := known[limiter]
	if of == nil && len(known) >= maxLimiters {
		limiter = otherLimiters
		of = known[limiter]
	}
	if of == nil {
		of, known = new(checks), maps.Clone(known)
		known[limiter] = of
		m.limiters.Store(&known)
	}
	found := of[algorithm].Load()
	if found == nil {
		found = m.newSeries(algorithm, limiter)
		of[algorithm].Store(found)
	}
	return found
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

// Checked counts a check of no limiter by name that was decided, by the store or by a failure policy, and how long it
// took. The algorithm is the deciding limit's. An algorithm that is none, as of a decision that
// asked no limit, is not counted.
func (m *Metrics) Checked(algorithm stint.Algorithm, d stint.Decision, elapsed time.Duration) {
	m.checked("", algorithm, d.Allowed, d.Degraded, elapsed)
}

func (m *Metrics) checked(limiter string, algorithm stint.Algorithm, allowed, degraded bool, elapsed time.Duration) {
	if algorithm > stint.AlgorithmConcurrency || algorithm == 0 {
		return
	}
	i := 0
	if allowed {
		i = 1
	}
	s := &m.seriesOf(limiter, algorithm)[i]
	s.requests.Inc()
	s.seconds.observe(elapsed)
	if degraded {
		m.degraded[i].Inc()
	}
}

// StoreFailed counts an operation that the store could not decide.
func (m *Metrics) StoreFailed() { m.storeErrors.Inc() }

// Overloaded counts a request that this process was too busy to have decided in time.
func (m *Metrics) Overloaded() { m.overloaded.Inc() }

// Observe counts an event, as a [stint.Observer]: each Take, Try and Reserve as a check, each failure of the
// store, whether a failure policy answered or not. Peeks, resets and settlements are no checks.
// Input errors, those of holds that have ended, operations that the caller gave up, and decisions that asked no limit
// are not counted. A degraded check counts three times: as a check, as degraded, and as a failure of the
// store. A check that is not decided is a denial by the limit that admits least: by the failure policy closed, as the
// service counts it, or by a process that is too busy.
func (m *Metrics) Observe(ctx context.Context, event *stint.Event) {
	limiter := ""
	if m.names && event.Rule == "" && event.Claim.Policy != nil {
		limiter = event.Claim.Policy.Name()
	}
	switch overloaded := errors.Is(event.Err, stint.ErrOverloaded); {
	case overloaded:
		m.Overloaded()
		m.undecided(limiter, event, false)
	case event.Err != nil:
		if ctx.Err() == nil && !decide.IsFault(event.Err) {
			m.StoreFailed()
			m.undecided(limiter, event, true)
		}
	case event.Checked() && event.Claim.Policy != nil:
		if event.Decision.Degraded {
			m.StoreFailed()
		}
		m.checked(limiter, event.Limit().Algorithm, event.Decision.Allowed, event.Decision.Degraded, event.Elapsed)
	}
}

// undecided counts a check that came to no decision.
func (m *Metrics) undecided(limiter string, event *stint.Event, degraded bool) {
	decided := *event
	decided.Err = nil
	if !decided.Checked() || event.Claim.Policy == nil || degraded && !errors.Is(event.Err, stint.ErrUnavailable) {
		return
	}
	least := event.Claim.Policy.Limit(0)
	for i := range event.Claim.Policy.Len() {
		if limit := event.Claim.Policy.Limit(i); limit.Capacity < least.Capacity {
			least = limit
		}
	}
	m.checked(limiter, least.Algorithm, false, degraded, 0)
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// ownLabels are those that metrics of stint, of Go and of the process have themselves. A label of
// everybody's would collide with them, and the registration would fail where the cause is hard to
// see.
var ownLabels = []string{
	"action", "algorithm", "allowed", "cause", "class", "direction", "kind", "le", "limiter", "mode", "node", "outcome",
	"quantile", "route", "rule", "service", "set", "state", "status", "version", "via",
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

// Calls observes the calls of a store that processes share:
//
//	rate_limiter_store_round_trip_seconds{outcome}   from sending a call to its reply, without the wait before it was
//	                                                 sent: answered, failed
//	rate_limiter_store_batch_operations              operations that one call carried
//	rate_limiter_store_coalesced_operations_total    of these, those that shared a state and a policy with another
//	                                                 one of the call, and were decided with it
//
// It is safe for concurrent use; make it with [NewCalls].
type Calls struct {
	answered, failed, operations prometheus.Observer
	coalesced                    prometheus.Counter
}

// NewCalls makes the metrics and registers them, all or none. The buckets reach from 100us, a Redis
// on the same machine, to 2.5s, above any sensible timeout of a store.
func NewCalls(registerer prometheus.Registerer) (*Calls, error) {
	seconds := prometheus.NewHistogramVec(histogram("rate_limiter_store_round_trip_seconds",
		"Time from sending a call to the store to its reply, without the wait before it was sent.",
		1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5), []string{"outcome"})
	operations := prometheus.NewHistogram(histogram("rate_limiter_store_batch_operations",
		"Operations that one call of the store carried.", 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000))
	c := &Calls{
		answered: seconds.WithLabelValues("answered"), failed: seconds.WithLabelValues("failed"), operations: operations,
		coalesced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limiter_store_coalesced_operations_total",
			Help: "Operations that were decided together with another one on the same state, in one step of a call.",
		}),
	}
	return c, register(registerer, seconds, operations, c.coalesced)
}

// Done observes a call that has ended: how long it took, how many operations it carried, and how many of these were
// coalesced with another one. Of a call that failed only the time counts.
func (c *Calls) Done(elapsed time.Duration, operations, coalesced int, err error) {
	if err != nil {
		c.failed.Observe(elapsed.Seconds())
		return
	}
	c.answered.Observe(elapsed.Seconds())
	c.operations.Observe(float64(operations))
	if coalesced > 0 {
		c.coalesced.Add(float64(coalesced))
	}
}

// histogram describes a histogram with classic buckets, and native ones for servers that scrape
// them. The factor 1.1 makes native buckets that are at most 10 % wide; when there are more than
// 100, the histogram gets coarser, at most once an hour.
func histogram(name, help string, buckets ...float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1, // how much wider each native bucket is than the one before
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
}

// Near reports whether a decision admits a request and leaves its client a fifth of the limit, or
// less.
func Near(d *stint.Decision) bool {
	return d.Allowed && !d.Degraded && d.Limit > 0 && d.Remaining <= d.Limit/nearLimit
}
