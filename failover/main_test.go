package failover_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const timeout = failover.DefaultTimeout

// A fixture is a failover store over a memory store that can fail. The clocks of both
// memory stores are the bubble's.
type fixture struct {
	*failover.Store
	t      testing.TB
	inner  *memstore.Store
	faulty *storetest.Faulty
	local  *memstore.Store

	mu      sync.Mutex
	changes []failover.Change
}

// newFixture makes a fixture that t closes. It is for bubbles of synctest.
func newFixture(t testing.TB, change func(*failover.Config)) *fixture {
	t.Helper()
	return newFixtureOn(t, func(s stint.Store) stint.Store { return s }, change)
}

// newFixtureOn is newFixture of the store that wrap makes of the one that can fail.
func newFixtureOn(t testing.TB, wrap func(stint.Store) stint.Store, change func(*failover.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, inner: memstore.New(memstore.Config{Now: time.Now}), local: memstore.New(memstore.Config{Now: time.Now})}
	f.faulty = storetest.NewFaulty(f.inner)
	config := failover.Config{Local: f.local, Instances: func() int { return 1 }, StateChanged: func(c failover.Change) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.changes = append(f.changes, c)
	}}
	if change != nil {
		change(&config)
	}
	store := must.Get(failover.New(wrap(f.faulty), config))(t)
	f.Store = store
	t.Cleanup(store.Close)
	return f
}

// seen are the changes of state so far.
func (f *fixture) seen() []failover.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changes
}

func silence(storetest.Call) storetest.Fault { return storetest.Fault{Block: true} }

func failWith(err error) func(storetest.Call) storetest.Fault {
	return func(storetest.Call) storetest.Fault { return storetest.Fault{Err: err} }
}

// take takes one permit of a key.
func (f *fixture) take(key string, policy *stint.Policy) (stint.Decision, error) {
	return f.Decide(f.t.Context(), op(stint.VerbTake, key, policy, 1))
}

// must expects a decision.
func (f *fixture) must(key string, policy *stint.Policy) stint.Decision {
	f.t.Helper()
	d := must.Get(f.take(key, policy))(f.t)
	return d
}

// lose takes the store away by silence, which costs a deadline.
func (f *fixture) lose(policy *stint.Policy) {
	f.t.Helper()
	f.faulty.Inject(silence)
	if _, err := f.take("lose", policy); len(f.Down()) == 0 {
		f.t.Fatalf("the store is up after a silence of a deadline: %v", err)
	}
}

// regain lets the store answer and waits until it is back. It returns how long that
// took.
func (f *fixture) regain() time.Duration {
	f.t.Helper()
	f.faulty.Inject(nil)
	start := time.Now()
	for len(f.Down()) > 0 {
		if time.Since(start) > time.Minute {
			f.t.Fatal("the store does not come back")
		}
		<-time.After(time.Millisecond)
	}
	return time.Since(start)
}

func op(verb stint.Verb, key string, policy *stint.Policy, permits int64, and ...stint.Claim) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: key, Policy: policy, Permits: permits}, And: and}
}

func claim(key string, policy *stint.Policy, permits int64) stint.Claim {
	return stint.Claim{Key: key, Policy: policy, Permits: permits}
}

func policy(t testing.TB, name string, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	p := must.Get(stint.NewPolicy(name, limits...))(t)
	return p
}

// minutely is a policy that is easy to reckon with.
func minutely(t testing.TB) *stint.Policy { return policy(t, "", stint.FixedWindow(100, time.Hour)) }

// within is a context with a deadline.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// bubble runs a test of a fixture, which change configures, in a bubble of synctest.
func bubble(t *testing.T, change func(*failover.Config), run func(*testing.T, *fixture, *stint.Policy)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(t, newFixture(t, change), minutely(t)) })
}
