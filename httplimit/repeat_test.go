package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// outage has a store fail ends of holds until it is over. Every second one is carried out, and its answer lost.
func outage(store *storetest.Faulty) (over func()) {
	var mu sync.Mutex
	n := 0
	store.Inject(func(call storetest.Call) storetest.Fault {
		if verb := call.Ops[0].Verb; verb != stint.VerbCommit && verb != stint.VerbCancel {
			return storetest.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		n++
		return storetest.Fault{Err: stint.ErrUnavailable, After: n%2 == 0}
	})
	return func() { store.Inject(nil) }
}

// A repeated is a middleware whose commits fail, and what its Failed is told.
type repeated struct {
	limits *httplimit.Middleware
	left   func() int64
	mu     sync.Mutex
	told   []*enforce.EndError
}

func (m *repeated) failed(t *testing.T) func(*http.Request, error) {
	return func(r *http.Request, err error) {
		var failed *enforce.EndError
		if !errors.As(err, &failed) || !errors.Is(err, stint.ErrUnavailable) || r.URL.Path != "/path" {
			t.Errorf("Failed is told of %s: %v", r.URL, err)
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.told = append(m.told, failed)
	}
}

// heard is what Failed was told so far.
func (m *repeated) heard() []*enforce.EndError {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.told)
}

// newRepeated is a middleware of 1000 permits a day, of which each request holds 100, by plain limits or by rules.
func newRepeated(t *testing.T, byRules bool, store stint.Store) (m *repeated) {
	t.Helper()
	m = &repeated{}
	day := stint.FixedWindow(1000, 24*time.Hour).FromFirst()
	config := httplimit.Config{Reserve: &stint.Hold{TTL: time.Minute}, Failed: m.failed(t)}
	claim := stint.Claim{Key: "k", Permits: 1}
	if byRules {
		config.Rules = enforced(t, store, rules.Rule{
			ID: "llm", Scope: []string{rules.PerUser}, Missing: rules.MissingSkip, Costs: []rules.Cost{{Permits: 100}}, Limits: []stint.Limit{day},
		})
		config.Describe = func(_ *http.Request, r *rules.Request) error { r.User = "k"; return nil }
		config.Decided = func(_ *http.Request, v *enforce.Verdict) { claim.Key, claim.Policy = v.Claim.Key, v.Claim.Policy }
	} else {
		config.Limiter = limiterOn(t, store, day)
		claim.Policy = config.Limiter.Policy()
		config.Key = func(*http.Request) (string, error) { return "k", nil }
		config.Cost = func(*http.Request) (int64, error) { return 100, nil }
	}
	m.limits = must.Get(httplimit.New(config))(t)
	m.left = func() int64 {
		d := must.Get(store.Decide(t.Context(), stint.Op{Verb: stint.VerbPeek, Claim: claim}))(t)
		return d.Remaining
	}
	return m
}

// serve has a handler say its cost.
func (m *repeated) serve(ctx context.Context, handle func(ctx context.Context)) {
	get(ctx, m.limits.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handle(r.Context()) })), "/path")
}

// What a request cost is charged once, though its commit fails for as long as the store remembers the hold, and Failed
// is told by what. It arrives by itself, and a drain waits for it.
func TestMiddlewareRepeatsCommits(t *testing.T) {
	for name, test := range map[string]struct {
		handle  func(ctx context.Context)
		verb    stint.Verb
		permits int64
		left    int64
	}{
		"says its cost": {func(ctx context.Context) { httplimit.Cost(ctx).Set(70) }, stint.VerbCommit, 70, 930},
		"says nothing":  {func(context.Context) {}, stint.VerbCommit, 100, 900},
		"costs more":    {func(ctx context.Context) { httplimit.Cost(ctx).Set(170) }, stint.VerbCommit, 170, 830},
		"panics":        {func(ctx context.Context) { httplimit.Cost(ctx).Set(5); panic("no") }, stint.VerbCommit, 5, 995},
		"never ran":     {func(ctx context.Context) { httplimit.Cost(ctx).Cancel() }, stint.VerbCancel, 0, 1000},
	} {
		for _, lasts := range []time.Duration{time.Second, 50 * time.Second, 170 * time.Second} {
			for _, byRules := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					store := storetest.NewFaulty(memstore.New(memstore.Config{}))
					m := newRepeated(t, byRules, store)
					start := time.Now()
					time.AfterFunc(lasts, outage(store))
					m.serve(t.Context(), test.handle)
					if byRules {
						must.Do(t, m.limits.Drain(t.Context()))
					} else {
						time.Sleep(lasts + 10*time.Second) //nolint:forbidigo // the bubble's time
					}
					if got := m.left(); got != test.left {
						t.Errorf("%s, rules %v, an outage of %v: %d are left, want %d", name, byRules, lasts, got, test.left)
					}
					told := m.heard()
					if len(told) != 1 {
						t.Fatalf("%s: Failed is told %d times", name, len(told))
					}
					if e := told[0]; !e.Repeated || e.Verb != test.verb || e.Permits != test.permits || e.Hold.ID() == "" {
						t.Errorf("%s: Failed is told %v", name, e)
					}
					if until := told[0].Until.Sub(start); until != 3*time.Minute {
						t.Errorf("%s: it is repeated for %v", name, until)
					}
				})
			}
		}
	}
}

// What is given up is told once more, with the hold, by a request that nobody else uses.
func TestMiddlewareTellsWhatItGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(memstore.Config{}))
		m := newRepeated(t, false, store)
		over := outage(store)
		m.serve(t.Context(), func(ctx context.Context) { httplimit.Cost(ctx).Set(30) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.limits.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain: %v", err)
		}
		told := m.heard()
		if len(told) != 2 || told[1].Repeated || told[1].Permits != 30 || told[1].Hold != told[0].Hold {
			t.Fatalf("Failed is told %v", told)
		}
		over()
		if err := told[1].Send(t.Context()); err != nil || m.left() != 970 { // by the program's own means
			t.Errorf("%d are left: %v", m.left(), err)
		}
	})
}
