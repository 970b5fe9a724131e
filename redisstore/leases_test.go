package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// leaseTime is V.
const leaseTime = redisstore.DefaultLeaseTime

// processes makes stores that share their states, as processes do.
func processes(t testing.TB, n int, conn redisconn.Conn, now func() time.Time) []*redisstore.Store {
	t.Helper()
	first, prefix := storeOn(t, conn, redisstore.Options{Now: now})
	stores := []*redisstore.Store{first}
	for len(stores) < n {
		store := another(t, conn, redisstore.Options{Now: now, KeyPrefix: prefix})
		stores = append(stores, store)
	}
	for _, store := range stores {
		store.Patient()
	}
	return stores
}

func left(t testing.TB, store stint.Store, key string, policy *stint.Policy) int64 {
	t.Helper()
	return decide(t, store, op(stint.VerbPeek, key, policy, 1)).Remaining
}

// checkLeft fails the test when another number of permits is left.
func checkLeft(t testing.TB, store stint.Store, key string, policy *stint.Policy, want int64, when string) {
	t.Helper()
	if n := left(t, store, key, policy); n != want {
		t.Errorf("%d of %s are left to %q %s, want %d", n, policy.Name(), key, when, want)
	}
}

// leaseLimits are limits whose states don't turn within a test.
func leaseLimits(n int64) map[string]stint.Limit {
	return map[string]stint.Limit{
		"token bucket": aLimit(stint.AlgorithmTokenBucket, n),
		"fixed window": aLimit(stint.AlgorithmFixedWindow, n),
		"calendar":     stint.CalendarWindow(n, stint.CalendarYear, "Europe/Berlin"),
	}
}

// spent is what was admitted at a time.
type spent struct {
	at stint.Instant
	n  int64
}

// keepsTo fails the test when more was admitted than docs/redis.md, "Leases", says: of a
// token bucket C + R x (b - a + V) / P in any [a, b], of a window its limit.
func keepsTo(t *testing.T, limit stint.Limit, all []spent) {
	t.Helper()
	slices.SortStableFunc(all, func(a, b spent) int { return int(a.at - b.at) })
	if limit.Algorithm == stint.AlgorithmFixedWindow {
		window, length := map[stint.Instant]int64{}, stint.Instant(limit.Window.Microseconds())
		for _, s := range all {
			start := s.at - s.at%length
			if window[start] += s.n; window[start] > limit.Capacity {
				t.Fatalf("%d of %d were admitted in the window from %d", window[start], limit.Capacity, start)
			}
		}
		return
	}
	// The most, over all a, that was admitted in [a, b] above R x (b - a) / P; times P.
	permits, period := limit.Rate.Permits, limit.Rate.Period.Microseconds()
	level := int64(0)
	for i, s := range all {
		if i > 0 {
			level = max(0, level-permits*int64(s.at-all[i-1].at))
		}
		if level += s.n * period; level > limit.Capacity*period+permits*leaseTime.Microseconds() {
			t.Fatalf("until %d were admitted %d more than it refilled %s; the bucket holds %d", s.at, level/period, limit.Rate, limit.Capacity)
		}
	}
}

// Four processes, of which each lets time pass while it waits for the server, take in
// random order, also around the ends of windows: the bounds hold, and a good part is
// spent without the server.
func TestLeasesKeepTheirBounds(t *testing.T) {
	const steps = 600
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for name, limit := range map[string]stint.Limit{
		"token bucket":              stint.TokenBucket(60, stint.Per(300, time.Second)).WithLease(8),
		"slow token bucket":         stint.TokenBucket(40, stint.Per(7, time.Second)).WithLease(9),
		"token bucket by the rate":  stint.TokenBucket(300, stint.Per(500, time.Second)).WithLease(stint.LeaseAuto),
		"all of a bucket":           stint.TokenBucket(20, stint.Per(30, time.Second)).WithLease(20),
		"fixed window":              stint.FixedWindow(50, 250*time.Millisecond).WithLease(7),
		"short window":              stint.FixedWindow(30, 37*time.Millisecond).WithLease(5),
		"fixed window by the rate":  stint.FixedWindow(200, time.Second).WithLease(stint.LeaseAuto),
		"a window at once, in part": stint.FixedWindow(16, 130*time.Millisecond).WithLease(16),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leased, admitted := 0, 0
			for seed := range seeds {
				rng := rand.New(rand.NewPCG(seed, 6))
				clock := storetest.NewClock(dawn)
				var mu sync.Mutex
				conn := &hooked{Conn: newConn(t), after: func() {
					mu.Lock()
					defer mu.Unlock()
					clock.Advance(time.Duration(rng.IntN(3000)) * time.Microsecond)
				}}
				random := func(n int) int {
					mu.Lock()
					defer mu.Unlock()
					return rng.IntN(n)
				}
				stores := processes(t, 4, conn, clock.Now)
				policy := policyOf(t, "", limit)
				var all []spent
				for range steps {
					store := stores[min(random(4), random(4))]
					n := int64(1 + random(2)*random(3))
					if d := take(t, store, "k", policy, n); d.Allowed {
						all = append(all, spent{d.At, n})
						if d.Source == stint.SourceLease {
							leased++
						}
					} else if !d.Leased {
						t.Fatalf("a denial is not marked: %+v", d)
					}
					switch random(12) {
					case 0:
						clock.Advance(time.Duration(random(200)) * time.Millisecond)
					case 1:
						store.Sweep()
					case 2, 3, 4, 5:
						clock.Advance(time.Duration(random(2000)) * time.Microsecond)
					}
				}
				admitted += len(all)
				keepsTo(t, limit, all)
			}
			if leased < admitted/6 {
				t.Errorf("%d of %d permits came from leases", leased, admitted)
			}
		})
	}
}

// The same by the server's clock and the processes' own, with many callers at once.
func TestLeasesKeepTheirBoundsAtOnce(t *testing.T) {
	const callers, calls = 6, 100
	for name, limit := range map[string]stint.Limit{
		"token bucket": stint.TokenBucket(300, stint.Per(4000, time.Second)).WithLease(25),
		"by the rate":  stint.TokenBucket(300, stint.Per(40000, time.Second)).WithLease(stint.LeaseAuto),
		"fixed window": stint.FixedWindow(150, 20*time.Millisecond).WithLease(20),
	} {
		t.Run(name, func(t *testing.T) {
			stores := processes(t, 4, newConn(t), nil)
			policy := policyOf(t, "", limit)
			var (
				mu    sync.Mutex
				all   []spent
				group sync.WaitGroup
			)
			for _, store := range stores {
				for range callers {
					group.Go(func() {
						for range calls {
							d, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1))
							mu.Lock()
							if err != nil {
								t.Error(err)
							} else if d.Allowed {
								all = append(all, spent{d.At, 1})
							}
							mu.Unlock()
						}
					})
				}
			}
			group.Wait()
			keepsTo(t, limit, all)
			t.Logf("%d of %d were admitted", len(all), 4*callers*calls)
		})
	}
}

// What is not spent comes back when the lease ends, and when the store is closed.
func TestUnspentPermitsReturn(t *testing.T) {
	for name, limit := range leaseLimits(1000) {
		t.Run(name, func(t *testing.T) {
			clock := storetest.NewClock(dawn)
			stores := processes(t, 2, newConn(t), clock.Now)
			policy := policyOf(t, "", limit.WithLease(100))
			for range 3 {
				take(t, stores[0], "k", policy, 1)
			}
			checkLeft(t, stores[1], "k", policy, 899, "while 100 are leased")
			clock.Advance(leaseTime - time.Microsecond)
			admitted(t, stores[0], "k", policy, 1, stint.SourceLease)
			clock.Advance(time.Microsecond)
			stores[0].Sweep()
			// A bucket keeps what it may have refilled in 0.1 seconds: a part of a permit.
			want := int64(996)
			if limit.IsBucket() {
				want = 995
			}
			checkLeft(t, stores[1], "k", policy, want, "after the lease")
			if d := take(t, stores[0], "k", policy, 1); d.Source != stint.SourceStore || d.Remaining != want-1 {
				t.Errorf("after the lease: %+v", d)
			}
			stores[0].Close()
			checkLeft(t, stores[1], "k", policy, want-1, "after Close")
			stores[1].Close()
		})
	}
}

// Permits come back without anybody asking, while the store just stands there.
func TestReturnsByItself(t *testing.T) {
	store := newStore(t, redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 100).WithLease(50))
	take(t, store, "k", policy, 1)
	until(t, "what was leased is back", func() bool { return left(t, store, "k", policy) == 99 })
}

// A process that dies loses what it had leased, no more, and a bucket refills it.
func TestCrashLosesTheLease(t *testing.T) {
	clock := storetest.NewClock(dawn)
	conn := newConn(t)
	var dead atomic.Bool
	first := &hooked{Conn: conn, before: func(context.Context, []string) error {
		if dead.Load() {
			return errors.New("the process is dead")
		}
		return nil
	}}
	mortal, prefix := storeOn(t, first, redisstore.Options{Now: clock.Now})
	other := another(t, conn, redisstore.Options{Now: clock.Now, KeyPrefix: prefix})
	policy := policyOf(t, "", stint.TokenBucket(1000, stint.PerSecond(100)).WithLease(200))
	take(t, mortal, "k", policy, 1)
	dead.Store(true)
	for _, c := range []struct {
		after time.Duration
		left  int64
	}{{0, 799}, {leaseTime, 809}, {time.Second, 909}, {time.Second, 1000}} {
		clock.Advance(c.after)
		mortal.Sweep()
		checkLeft(t, other, "k", policy, c.left, fmt.Sprint("after ", c.after))
	}
}

// A denial of a limit with leases says that it may be due to them, and that the wait is
// a bound: when the lease ends before, it was shorter.
func TestDenialsAreMarked(t *testing.T) {
	for name, limit := range leaseLimits(10) {
		t.Run(name, func(t *testing.T) {
			clock := storetest.NewClock(dawn)
			stores := processes(t, 2, newConn(t), clock.Now)
			policy := policyOf(t, "", limit.WithLease(9))
			take(t, stores[0], "k", policy, 1)
			d := take(t, stores[1], "k", policy, 1)
			if d.Allowed || !d.Leased || d.RetryAfter <= leaseTime {
				t.Errorf("with all leased: %+v", d)
			}
			results := make([]stint.Result, 1)
			stores[1].DecideAll(t.Context(), []stint.Op{op(stint.VerbTry, "k", policy, 1)}, results)
			if d := results[0].Decision; results[0].Err != nil || d.Allowed || !d.Leased {
				t.Errorf("in a batch: %+v", results[0])
			}
			if d := decide(t, stores[1], op(stint.VerbPeek, "k", policy, 1)); d.Allowed || !d.Leased {
				t.Errorf("a peek: %+v", d)
			}
			if d := take(t, stores[1], "k", policy, 11); d.Leased || d.RetryAfter != stint.Never {
				t.Errorf("more than the limit: %+v", d)
			}
			clock.Advance(leaseTime)
			stores[0].Sweep()
			if d := take(t, stores[1], "k", policy, 1); !d.Allowed || d.Leased {
				t.Errorf("after the lease: %+v", d)
			}
			plain := policyOf(t, "plain", limit)
			take(t, stores[0], "k", plain, 10)
			if d := take(t, stores[0], "k", plain, 1); d.Allowed || d.Leased {
				t.Errorf("without leases: %+v", d)
			}
			stores[0].Close()
			stores[1].Close()
		})
	}
}

// What a decision from a lease tells: what the store had left and what the lease has,
// and times that go on.
func TestLeaseTells(t *testing.T) {
	clock := storetest.NewClock(dawn)
	store := processes(t, 1, newConn(t), clock.Now)[0]
	for name, c := range map[string]struct {
		limit stint.Limit
		reset time.Duration // right after 1 and 10 are charged
		grows time.Duration
	}{
		"bucket": {stint.TokenBucket(100, stint.PerSecond(10)), 1100 * time.Millisecond, 100 * time.Millisecond},
		"window": {stint.FixedWindow(100, time.Minute), time.Minute, time.Minute},
	} {
		clock.Set(dawn)
		policy := policyOf(t, name, c.limit.WithLease(10))
		first := take(t, store, "k", policy, 1)
		if first.Source != stint.SourceStore || first.Remaining != 99 {
			t.Errorf("%s: the first: %+v", name, first)
		}
		clock.Advance(10 * time.Millisecond)
		o := op(stint.VerbTry, "k", policy, 3)
		o.Each = make([]stint.Outcome, 1)
		got := decide(t, store, o)
		want := stint.Decision{
			Allowed: true, Source: stint.SourceLease, Limit: 100, Remaining: 96,
			ResetAfter: c.reset - 10*time.Millisecond, At: dawn.Add(10 * time.Millisecond),
		}
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		outcome := stint.Outcome{
			Allowed: true, Limit: 100, Remaining: 96, ResetAfter: want.ResetAfter, GrowsAfter: min(c.grows, want.ResetAfter),
		}
		if o.Each[0] != outcome {
			t.Errorf("%s: %+v, want %+v", name, o.Each[0], outcome)
		}
		results := make([]stint.Result, 2)
		store.DecideAll(t.Context(), []stint.Op{op(stint.VerbTake, "k", policy, 1), op(stint.VerbTake, "k", policy, 1)}, results)
		for i, r := range results {
			if r.Err != nil || r.Decision.Source != stint.SourceLease || r.Decision.Remaining != int64(95-i) {
				t.Errorf("%s: %d of a batch: %+v", name, i, r)
			}
		}
	}
}

// However many ask at once, one asks the server, and the others are served of what it
// brings. A caller that leaves takes nothing along.
func TestOneAsks(t *testing.T) {
	const callers = 50
	gate := make(chan struct{})
	conn := &hooked{Conn: newConn(t), before: behind(gate)}
	clock := storetest.NewClock(dawn)
	store := processes(t, 1, conn, clock.Now)[0]
	patient(store)
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 1000).WithLease(400))
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 2)
	for range 2 { // one asks, the other waits
		go func() {
			_, err := store.Decide(ctx, op(stint.VerbTake, "k", policy, 1))
			gone <- err
		}()
	}
	until(t, "the request is under way", func() bool { return conn.calls.Load() == 1 })
	cancel()
	for range 2 {
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
	}
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			if d, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1)); err != nil || d.Source != stint.SourceLease {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	close(gate)
	group.Wait()
	if n := conn.calls.Load(); n != 1 {
		t.Errorf("%d calls were made", n)
	}
}

// The next share is asked for when half is spent, so nobody has to wait for it.
func TestLeaseRenews(t *testing.T) {
	conn := &hooked{Conn: newConn(t)}
	clock := storetest.NewClock(dawn)
	store := processes(t, 1, conn, clock.Now)[0]
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 1000).WithLease(10))
	admitted(t, store, "k", policy, 1, stint.SourceStore)
	for range 4 {
		admitted(t, store, "k", policy, 1, stint.SourceLease)
	}
	if n := conn.calls.Load(); n != 1 {
		t.Errorf("%d calls before half is spent", n)
	}
	admitted(t, store, "k", policy, 1, stint.SourceLease)
	until(t, "the next share is there", func() bool { return store.Stats().Batches == 2 })
	for range 5 + 4 {
		admitted(t, store, "k", policy, 1, stint.SourceLease)
	}
	if n := conn.calls.Load(); n != 2 {
		t.Errorf("%d calls before half of the next is spent", n)
	}
	store.Close()
	checkLeft(t, processes(t, 1, conn, clock.Now)[0], "k", policy, 1000, "of another store")
}

// What is leased does not come back into a state that was reset, though the limit that reset it has no lease: after a
// change of the limit, or in a process that does not have it.
func TestResetByALimitWithoutLease(t *testing.T) {
	for name, limit := range leaseLimits(100) {
		t.Run(name, func(t *testing.T) {
			clock := storetest.NewClock(dawn)
			stores := processes(t, 2, newConn(t), clock.Now)
			leased, plain := policyOf(t, "p", limit.WithLease(50)), policyOf(t, "p", limit)
			take(t, stores[0], "k", leased, 1)
			clock.Advance(time.Millisecond)
			decide(t, stores[1], op(stint.VerbReset, "k", plain, 0))
			checkLeft(t, stores[1], "k", plain, 100, "after the reset")
			take(t, stores[1], "k", plain, 100)
			clock.Advance(leaseTime)
			stores[0].Sweep()
			stores[0].Close()
			checkLeft(t, stores[1], "k", plain, 0, "when all is taken and a lease of before has ended")
			stores[1].Close()
		})
	}
}

// The leases at hand are bounded; those that are dropped return their permits.
func TestLeasesAreBounded(t *testing.T) {
	const clients = redisstore.MaxLeases + 500
	clock := storetest.NewClock(dawn)
	store := processes(t, 1, newConn(t), clock.Now)[0]
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 10).WithLease(5))
	key := func(i int) string { return fmt.Sprint("k", i) }
	var group sync.WaitGroup
	for worker := range 50 {
		group.Go(func() {
			for i := worker; i < clients; i += 50 {
				if _, err := store.Decide(t.Context(), op(stint.VerbTake, key(i), policy, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := store.Stats().Leases; n > redisstore.MaxLeases || n < redisstore.MaxLeases/2 {
		t.Errorf("%d leases are at hand", n)
	}
	store.Sweep()
	back := 0
	for i := range clients {
		if left(t, store, key(i), policy) == 9 {
			back++
		}
	}
	if back != clients-store.Stats().Leases {
		t.Errorf("%d are back of %d, of which %d are at hand", back, clients, store.Stats().Leases)
	}
	clock.Advance(time.Hour)
	store.Sweep() // ends them
	clock.Advance(time.Hour)
	store.Sweep() // forgets them
	if n := store.Stats().Leases; n != 0 {
		t.Errorf("%d leases are at hand after two hours", n)
	}
}

// Closing gives up on a server that hangs, and leaves no goroutine behind; a closed store decides nothing.
func TestCloseWithLeases(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		before := goleak.IgnoreCurrent()
		conn := &hooked{Conn: newConn(t)}
		store, _ := storeOn(t, conn, redisstore.Options{DenialCache: -1})
		policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 100).WithLease(50))
		take(t, store, "k", policy, 1)
		if hangs {
			conn.before = behind(nil)
		}
		store.Close()
		store.Close()
		if _, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1)); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
		conn.Close()
		leaks.None(t, before)
	}
}

// What is leased is spent also behind a settlement in one call, of the client or of another, but not behind the client's
// reset.
func TestLeasesWithinACall(t *testing.T) {
	store := processes(t, 1, newConn(t), storetest.NewClock(dawn).Now)[0] // which stands still
	for name, test := range map[string]struct {
		before stint.Op
		source stint.Source
	}{
		"another's settlement": {op(stint.VerbSettle, "other", policyOf(t, "other", aLimit(stint.AlgorithmFixedWindow, 10)), 1), stint.SourceLease},
		"another's reset":      {op(stint.VerbReset, "other", policyOf(t, "other", aLimit(stint.AlgorithmFixedWindow, 10)), 0), stint.SourceLease},
		"a settlement":         {op(stint.VerbSettle, "a settlement", nil, 1), stint.SourceLease},
		"a reset":              {op(stint.VerbReset, "a reset", nil, 0), stint.SourceStore},
	} {
		policy := policyOf(t, "p", aLimit(stint.AlgorithmFixedWindow, 10).WithLease(9))
		if test.before.Policy == nil {
			test.before.Policy = policy
		}
		take(t, store, name, policy, 1)
		checkLeft(t, store, name, policy, 0, "at the server")
		results := make([]stint.Result, 2)
		store.DecideAll(t.Context(), []stint.Op{test.before, op(stint.VerbTake, name, policy, 1)}, results)
		if d := results[1].Decision; !d.Allowed || d.Source != test.source || results[0].Err != nil {
			t.Errorf("behind %s: %+v", name, results)
		}
	}
}
