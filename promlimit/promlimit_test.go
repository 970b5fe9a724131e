package promlimit_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/storetest"
)

func metrics(t *testing.T) (*promlimit.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	return must.Get(promlimit.NewUnnamed(registry))(t), registry
}

func TestNames(t *testing.T) {
	_, registry := metrics(t)
	families := must.Get(registry.Gather())(t)
	var names []string
	for _, family := range families {
		names = append(names, family.GetName())
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if name := label.GetName(); name != "algorithm" && name != "allowed" {
					t.Errorf("%s carries the label %s", family.GetName(), name)
				}
			}
		}
	}
	want := []string{
		"rate_limiter_check_seconds", "rate_limiter_degraded_total", "rate_limiter_overloaded_total",
		"rate_limiter_requests_total", "rate_limiter_store_errors_total",
	}
	if !slices.Equal(names, want) {
		t.Errorf("metrics %v, want %v", names, want)
	}
	linted(t, registry)
}

func TestChecked(t *testing.T) {
	m, registry := metrics(t)
	m.Checked(stint.AlgorithmTokenBucket, stint.Decision{Allowed: true}, 2*time.Millisecond)
	m.Checked(stint.AlgorithmTokenBucket, stint.Decision{Allowed: true, Degraded: true}, time.Millisecond)
	m.Checked(stint.AlgorithmFixedWindow, stint.Decision{}, time.Second)
	m.Checked(0, stint.Decision{}, time.Second)
	m.Checked(99, stint.Decision{}, time.Second)
	m.StoreFailed()
	gathers(t, registry, `
# HELP rate_limiter_degraded_total Checks that a failure policy answered instead of the store.
# TYPE rate_limiter_degraded_total counter
rate_limiter_degraded_total{allowed="false"} 0
rate_limiter_degraded_total{allowed="true"} 1
# HELP rate_limiter_requests_total Checks answered, by the deciding limit's algorithm and by whether they were admitted.
# TYPE rate_limiter_requests_total counter
rate_limiter_requests_total{algorithm="CONCURRENCY",allowed="false"} 0
rate_limiter_requests_total{algorithm="CONCURRENCY",allowed="true"} 0
rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="false"} 1
rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="true"} 0
rate_limiter_requests_total{algorithm="LEAKY_BUCKET",allowed="false"} 0
rate_limiter_requests_total{algorithm="LEAKY_BUCKET",allowed="true"} 0
rate_limiter_requests_total{algorithm="SLIDING_WINDOW_COUNTER",allowed="false"} 0
rate_limiter_requests_total{algorithm="SLIDING_WINDOW_COUNTER",allowed="true"} 0
rate_limiter_requests_total{algorithm="SLIDING_WINDOW_LOG",allowed="false"} 0
rate_limiter_requests_total{algorithm="SLIDING_WINDOW_LOG",allowed="true"} 0
rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="false"} 0
rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true"} 2
# HELP rate_limiter_store_errors_total Operations that the store could not decide.
# TYPE rate_limiter_store_errors_total counter
rate_limiter_store_errors_total 1
`, "rate_limiter_requests_total", "rate_limiter_degraded_total", "rate_limiter_store_errors_total")
	if sum, count := histogram(t, registry, "TOKEN_BUCKET", "true"); count != 2 || sum < 0.00299 || sum > 0.00301 {
		t.Errorf("check_seconds has %d observations of %v s in all, want 2 of 0.003", count, sum)
	}
}

// histogram returns the sum and the count of rate_limiter_check_seconds.
func histogram(t *testing.T, registry *prometheus.Registry, algorithm, allowed string) (sum float64, count uint64) {
	t.Helper()
	for _, metric := range families(t, registry)["rate_limiter_check_seconds"].GetMetric() {
		if labels := metric.GetLabel(); labels[0].GetValue() == algorithm && labels[1].GetValue() == allowed {
			return metric.GetHistogram().GetSampleSum(), metric.GetHistogram().GetSampleCount()
		}
	}
	t.Fatalf("no rate_limiter_check_seconds of %s, %s", algorithm, allowed)
	return 0, 0
}

func TestRegistersAllOrNone(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	taken := prometheus.NewCounter(prometheus.CounterOpts{Name: "rate_limiter_store_errors_total", Help: "Taken."})
	registry.MustRegister(taken)
	if _, err := promlimit.NewUnnamed(registry); err == nil {
		t.Fatal("New registered a name that was taken")
	}
	if n := testutil.CollectAndCount(registry); n != 1 {
		t.Errorf("%d series are left registered, want the one that was there", n)
	}
}

func TestObserve(t *testing.T) {
	m, registry := metrics(t)
	policy := must.Get(stint.NewPolicy("", stint.TokenBucket(1, stint.PerSecond(1)), stint.FixedWindow(1, time.Second)))(t)
	decided := m.Observe
	claim := stint.Claim{Key: "k", Policy: policy, Permits: 1}
	event := func(verb stint.Verb, d stint.Decision, err error) *stint.Event {
		return &stint.Event{Verb: verb, Claim: claim, Decision: d, Err: err, Elapsed: time.Millisecond}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	decided(t.Context(), event(stint.VerbTake, stint.Decision{Allowed: true, Index: 1}, nil))
	decided(t.Context(), event(stint.VerbTry, stint.Decision{Index: 1}, nil))
	decided(t.Context(), event(stint.VerbPeek, stint.Decision{Allowed: true}, nil))
	decided(t.Context(), event(stint.VerbReset, stint.Decision{Allowed: true}, nil))
	decided(t.Context(), event(stint.VerbSettle, stint.Decision{Allowed: true}, nil))
	decided(t.Context(), event(stint.VerbTake, stint.Decision{}, errors.New("away")))
	decided(t.Context(), event(stint.VerbTake, stint.Decision{Allowed: true, Degraded: true, Index: 1}, nil))
	decided(t.Context(), event(stint.VerbTake, stint.Decision{}, stint.Invalid("key", "", "something")))
	for _, err := range []error{&stint.ResolvedError{ID: "h", End: "committed"}, stint.ErrOtherClaims, stint.ErrUnknownReservation} {
		decided(t.Context(), event(stint.VerbCommit, stint.Decision{}, err)) // the hold's
	}
	decided(gone, event(stint.VerbTake, stint.Decision{}, context.Canceled))
	decided(t.Context(), &stint.Event{Decision: stint.Decision{Allowed: true}}) // by no limit
	shadow := event(stint.VerbTake, stint.Decision{Allowed: true}, nil)
	shadow.Shadow = true
	decided(t.Context(), shadow)
	for allowed, want := range map[string]uint64{"true": 2, "false": 1} {
		if _, count := histogram(t, registry, "FIXED_WINDOW", allowed); count != want {
			t.Errorf("%d checks with allowed=%s, want %d", count, allowed, want)
		}
		if _, count := histogram(t, registry, "TOKEN_BUCKET", allowed); count != 0 {
			t.Errorf("%d checks by the limit that did not decide, want 0", count)
		}
	}
	gathers(t, registry, `
# HELP rate_limiter_store_errors_total Operations that the store could not decide.
# TYPE rate_limiter_store_errors_total counter
rate_limiter_store_errors_total 2
`, "rate_limiter_store_errors_total")
}

// A program's limiters are counted apart, by the name that New was given; those beyond a bound together.
func TestLimiters(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := must.Get(promlimit.New(registry))(t)
	take := func(name, rule string) {
		policy := must.Get(stint.NewPolicy(name, stint.TokenBucket(1, stint.PerSecond(1))))(t)
		m.Observe(t.Context(), &stint.Event{Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}, Rule: rule, Decision: decision(true)})
	}
	take("api", "")
	take("api", "")
	take("login", "")
	take("counted-by-its-rule", "a-rule")
	gathers(t, registry, `
# HELP rate_limiter_requests_total Checks answered, by the deciding limit's algorithm and by whether they were admitted.
# TYPE rate_limiter_requests_total counter
rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="false",limiter=""} 0
rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="false",limiter="api"} 0
rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="false",limiter="login"} 0
rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true",limiter=""} 1
rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true",limiter="api"} 2
rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="true",limiter="login"} 1
`, "rate_limiter_requests_total")
	for i := range 1000 {
		take("made-up-"+strconv.Itoa(i), "")
	}
	if n, err := testutil.GatherAndCount(registry, "rate_limiter_check_seconds"); err != nil || n != 2*101 {
		t.Errorf("%d series of 100 limiters and the others, %v", n, err)
	}
}

// What a store that can't be reached does not decide under closed counts in a program as in the service: as a check that is
// denied and degraded, by the limit that admits least.
func TestClosed(t *testing.T) {
	m, registry := metrics(t)
	store := storetest.NewFaulty(memstore.New(memstore.Config{}))
	store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: errors.New("gone")} })
	closed := must.Get(failover.New(store, failover.Config{Timeout: time.Second, Mode: failover.Closed}))(t)
	t.Cleanup(closed.Close)
	policy := must.Get(stint.NewPolicy("api", stint.TokenBucket(9, stint.PerSecond(1)), stint.FixedWindow(3, time.Second)))(t)
	limiter := must.Get(stint.NewLimiter(stint.Config{Store: closed, Policy: policy, Observe: m.Observe}))(t)
	if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, stint.ErrUnavailable) {
		t.Fatal(err)
	}
	if _, err := limiter.Peek(t.Context(), "k"); err == nil {
		t.Error("a look is answered")
	}
	m.Observe(t.Context(), &stint.Event{Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}, Err: stint.ErrOverloaded})
	if _, count := histogram(t, registry, "FIXED_WINDOW", "false"); count != 2 {
		t.Errorf("%d denials, want one of the store and one of a busy process", count)
	}
	gathers(t, registry, `
# HELP rate_limiter_degraded_total Checks that a failure policy answered instead of the store.
# TYPE rate_limiter_degraded_total counter
rate_limiter_degraded_total{allowed="false"} 1
rate_limiter_degraded_total{allowed="true"} 0
`, "rate_limiter_degraded_total")
}

func decision(allowed bool) stint.Decision { return stint.Decision{Allowed: allowed} }

func TestCheckedDoesNotAllocate(t *testing.T) {
	m, _ := metrics(t)
	if n := testing.AllocsPerRun(100, func() {
		m.Checked(stint.AlgorithmTokenBucket, stint.Decision{Allowed: true}, time.Microsecond)
	}); n != 0 {
		t.Errorf("Checked allocates %v times", n)
	}
}

func BenchmarkChecked(b *testing.B) {
	m := must.Get(promlimit.NewUnnamed(prometheus.NewRegistry()))(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		elapsed := time.Microsecond
		for pb.Next() {
			m.Checked(stint.AlgorithmTokenBucket, decision(true), elapsed)
			if elapsed += time.Microsecond; elapsed > 100*time.Microsecond {
				elapsed = time.Microsecond
			}
		}
	})
}
