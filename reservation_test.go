package stint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/watchdog"
	"github.com/stint-go/stint/memstore"
)

// A client that has as many holds as the store allows is denied for that, whatever its limits admit.
func TestReserveBeyondTheMostHolds(t *testing.T) {
	var reason stint.Reason
	store := memstore.New(memstore.Config{MaxHolds: 2})
	limiter := must.Get(stint.New(store, "api", stint.Concurrency(50)))(t)
	observed := must.Get(stint.NewLimiter(stint.Config{
		Store: store, Policy: limiter.Policy(), Observe: func(_ context.Context, e *stint.Event) { reason = e.Reason },
	}))(t)
	for _, l := range []*stint.Limiter{limiter, observed, limiter, observed} {
		_, d, err := l.Reserve(t.Context(), "k", 1, stint.Hold{})
		if err != nil || d.Full == d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		if got := stint.ReasonOf(l.Policy().Limit(0), &d, 1); d.Full != (got == stint.ReasonHolds) || d.Full && l == observed && reason != got {
			t.Errorf("the reasons are %q and %q", got, reason)
		}
	}
}

// pass lets time pass in a synctest bubble.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the bubble's time
}

func reserve(t *testing.T, l *stint.Limiter, n int64, hold stint.Hold) *stint.Reservation {
	t.Helper()
	r, d, err := l.Reserve(t.Context(), "k", n, hold)
	if err != nil || !d.Allowed {
		t.Fatalf("%d were not reserved: %v, %v", n, d, err)
	}
	return r
}

func wantLeft(t *testing.T, l *stint.Limiter, want int64) {
	t.Helper()
	d, err := l.Peek(t.Context(), "k")
	if err != nil || d.Remaining != want {
		t.Fatalf("%d left, want %d; %v", d.Remaining, want, err)
	}
}

func TestAHoldEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stint.FixedWindow(100, 24*time.Hour).FromFirst().WithMaxDebt(50))
		r := reserve(t, l, 10, stint.Hold{ID: "a"})
		again := reserve(t, l, 10, stint.Hold{ID: "a"})
		if !again.Replayed() || r.Replayed() {
			t.Error("a reserve that was said twice is not told")
		}
		wantLeft(t, l, 90)
		if d, err := r.Grow(t.Context(), 25); err != nil || !d.Allowed {
			t.Fatalf("%v, %v", d, err)
		}
		wantLeft(t, l, 75)
		if d, err := r.Grow(t.Context(), 5); err != nil || !d.Allowed {
			t.Fatalf("%v, %v", d, err)
		}
		if d, err := r.Grow(t.Context(), 101); err != nil || d.Allowed || d.RetryAfter == 0 {
			t.Fatalf("beyond the limit: %v, %v", d, err)
		}
		for i := range 3 {
			end, err := r.Commit(t.Context(), 40)
			if err != nil || end.Applied != 15 || end.Replayed != (i > 0) {
				t.Fatalf("commit %d: %+v, %v", i, end, err)
			}
			wantLeft(t, l, 60)
		}
		if _, err := r.Commit(t.Context(), 41); !errors.Is(err, stint.ErrResolved) {
			t.Errorf("another amount: %v", err)
		}
		var resolved *stint.ResolvedError
		if _, err := r.Cancel(t.Context()); !errors.As(err, &resolved) || resolved.End != "committed" {
			t.Errorf("another end: %v", err)
		}
		if _, _, err := l.Reserve(t.Context(), "k", 1, stint.Hold{ID: "a"}); !errors.Is(err, stint.ErrResolved) {
			t.Errorf("reserved after its end: %v", err)
		}
		if _, _, err := l.Reserve(t.Context(), "other", 1, stint.Hold{ID: "a"}); !errors.Is(err, stint.ErrResolved) {
			t.Errorf("reserved after its end for another key: %v", err)
		}
		pass(181 * time.Second) // it is forgotten: its TTL, and twice that
		reserve(t, l, 1, stint.Hold{ID: "a"})
		if _, _, err := l.Reserve(t.Context(), "other", 1, stint.Hold{ID: "a"}); !errors.Is(err, stint.ErrOtherClaims) {
			t.Errorf("live under another key: %v", err)
		}
	})
}

// KeepAlive renews; when the hold is lost all the same, the work's context ends.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stint.Concurrency(1))
		r := reserve(t, l, 1, stint.Hold{TTL: 3 * time.Second})
		work, stop := r.KeepAlive(t.Context())
		pass(time.Minute + time.Second/2) // between two renewals: one at the reset's instant may take the place again
		if work.Err() != nil {
			t.Fatalf("the hold was lost: %v", context.Cause(work))
		}
		wantLeft(t, l, 0)
		must.Do(t, l.Reset(t.Context(), "k"))
		other := reserve(t, l, 1, stint.Hold{})
		pass(5 * time.Second)
		if !errors.Is(context.Cause(work), stint.ErrLost) {
			t.Fatalf("the work goes on without its place: %v", context.Cause(work))
		}
		stop()
		work, stop = other.KeepAlive(t.Context())
		stop()
		<-work.Done()
		pass(2 * time.Minute)
		wantLeft(t, l, 1)
	})
}

// Waiters get a place when one is released, in the order in which they came.
func TestReserveWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stint.Concurrency(1))
		first := reserve(t, l, 1, stint.Hold{TTL: time.Hour})
		var order []int
		var mu sync.Mutex
		var waiting sync.WaitGroup
		for i := range 3 {
			waiting.Go(func() {
				pass(time.Duration(i) * time.Second)
				r, _, err := l.ReserveWait(t.Context(), "k", 1, stint.Hold{TTL: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				if _, err := r.Commit(t.Context(), 1); err != nil {
					t.Error(err)
				}
			})
		}
		pass(10 * time.Second)
		start := time.Now()
		must.Get(first.Cancel(t.Context()))(t)
		waiting.Wait()
		if took := time.Since(start); took != 0 || len(order) != 3 || order[0] != 0 || order[2] != 2 {
			t.Errorf("served in order %v after %v", order, took)
		}
		reserve(t, l, 1, stint.Hold{})
		_, _, err := l.ReserveWait(deadline(t, time.Second), "k", 1, stint.Hold{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the deadline", err)
		}
		if _, _, err := l.ReserveWait(t.Context(), "k", 2, stint.Hold{}); !errors.Is(err, stint.ErrNever) {
			t.Errorf("%v, want never", err)
		}
	})
}

// A reset of the policy, or of all, frees places at once, and so wakes those who wait.
func TestResetsWake(t *testing.T) {
	for _, scope := range []stint.Scope{{Policy: "p"}, {All: true}} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New(memstore.Config{})
			l := must.Get(stint.New(store, "p", stint.Concurrency(1)))(t)
			reserve(t, l, 1, stint.Hold{TTL: time.Hour})
			go func() {
				pass(10*time.Second + 1)
				must.Do(t, store.ResetAll(t.Context(), scope))
			}()
			began := time.Now()
			must.Two(l.ReserveWait(t.Context(), "k", 1, stint.Hold{}))(t)
			if took := time.Since(began); took != 10*time.Second+1 {
				t.Errorf("%v: had a place after %v", scope, took)
			}
		})
	}
}

// A waiter behind another is not turned away because the holds expire late: a place may be free sooner. A request that
// never fits does not wait.
func TestReserveWaitBehindAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stint.Concurrency(1))
		held := reserve(t, l, 1, stint.Hold{})
		results := make(chan error, 2)
		for range 2 {
			go func() {
				r, _, err := l.ReserveWait(deadline(t, 5*time.Second), "k", 1, stint.Hold{})
				if r != nil {
					pass(time.Second)
					_, err = r.Commit(t.Context(), 1)
				}
				results <- err
			}()
			synctest.Wait()
		}
		began := time.Now()
		for n, want := range map[int64]error{2: stint.ErrNever, 0: stint.ErrInvalid} {
			if _, _, err := l.ReserveWait(t.Context(), "k", n, stint.Hold{}); !errors.Is(err, want) || time.Since(began) > 0 {
				t.Errorf("%d: %v after %v", n, err, time.Since(began))
			}
		}
		pass(2 * time.Second)
		must.Get(held.Commit(t.Context(), 1))(t)
		for range 2 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// A process that has restarted reserves its job's id again, and another job has the place by now: that is a denial.
func TestReserveOfAnExpiredID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, stint.Concurrency(1))
		reserve(t, l, 1, stint.Hold{ID: "job-17", TTL: time.Second})
		pass(2 * time.Second)
		reserve(t, l, 1, stint.Hold{ID: "other", TTL: 10 * time.Second})
		if r, d, err := l.Reserve(t.Context(), "k", 1, stint.Hold{ID: "job-17"}); err != nil || d.Allowed || r != nil {
			t.Errorf("a denied Reserve: %v %v %v", r, d, err)
		}
		if r, _, err := l.ReserveWait(t.Context(), "k", 1, stint.Hold{ID: "job-17"}); err != nil || r == nil {
			t.Errorf("a ReserveWait: %v", err)
		}
	})
}

// A leftStore's callers have gone when it answers a Reserve.
type leftStore struct {
	stint.Store
	leave context.CancelFunc
}

func (s *leftStore) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	d, err := s.Store.Decide(ctx, op)
	if op.Verb == stint.VerbReserve {
		s.leave()
		err = ctx.Err()
	}
	return d, err
}

// If a caller leaves, a hold whose ID it does not know is cancelled. A hold that it named stays: it may ask again.
func TestACallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &leftStore{Store: memstore.New(memstore.Config{})}
		l := must.Get(stint.New(store, "p", stint.Concurrency(5)))(t)
		for id, want := range map[string]int{"": 0, "mine": 1} {
			var ctx context.Context
			ctx, store.leave = context.WithCancel(t.Context())
			if _, _, err := l.Reserve(ctx, "k"+id, 1, stint.Hold{ID: id}); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			synctest.Wait()
			if live, err := l.Holds(t.Context(), "k"+id); err != nil || len(live) != want {
				t.Errorf("%q: %v are held, %v", id, live, err)
			}
		}
	})
}

// A silentStore answers a Reserve too late.
type silentStore struct{ stint.Store }

func (s silentStore) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	d, err := s.Store.Decide(ctx, op)
	if op.Verb == stint.VerbReserve {
		err = fmt.Errorf("%w: %w", stint.ErrUnavailable, watchdog.Late(errors.New("late")))
	}
	return d, err
}

// So is a hold whose Reserve the store answers too late, while its caller is there.
func TestAReserveThatIsAnsweredTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must.Get(stint.New(silentStore{memstore.New(memstore.Config{})}, "p", stint.Concurrency(5)))(t)
		if _, _, err := l.Reserve(t.Context(), "k", 1, stint.Hold{}); !errors.Is(err, stint.ErrUnavailable) {
			t.Fatal(err)
		}
		synctest.Wait()
		if live, err := l.Holds(t.Context(), "k"); err != nil || len(live) != 0 {
			t.Errorf("%v are held, %v", live, err)
		}
	})
}

// A keepingStore fails a Commit, and keeps what it was told of holds, as one that answers too late.
type keepingStore struct {
	stint.Store
	told []*stint.HoldOp
	fail error
}

func (s *keepingStore) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	s.told = append(s.told, op.Hold())
	if s.fail != nil {
		return stint.Decision{}, s.fail
	}
	return s.Store.Decide(ctx, op)
}

// What a store may still write to, since it has failed, is not used again; what it is done with is.
func TestAFailedEndKeepsItsMemory(t *testing.T) {
	store := &keepingStore{Store: memstore.New(memstore.Config{})}
	l := must.Get(stint.New(store, "p", stint.Concurrency(5)))(t)
	r, _ := must.Two(l.Reserve(t.Context(), "k", 1, stint.Hold{}))(t)
	store.fail = stint.ErrUnavailable
	if _, err := r.Commit(t.Context(), 1); !errors.Is(err, stint.ErrUnavailable) {
		t.Fatal(err)
	}
	store.fail = nil
	must.Get(r.Commit(t.Context(), 1))(t)
	if told := store.told; told[0] != told[1] || told[2] == told[1] {
		t.Errorf("a Reserve, a Commit that failed and one more were of %p", told)
	}
}

// A crowd of holders never exceeds the capacity.
func TestConcurrencyUnderACrowd(t *testing.T) {
	l := newLimiter(t, stint.Concurrency(7))
	var running, most atomic.Int64
	var crowd sync.WaitGroup
	for range 64 {
		crowd.Go(func() {
			for range 200 {
				r, d, err := l.Reserve(t.Context(), "k", 1, stint.Hold{})
				if err != nil {
					t.Error(err)
					return
				}
				if !d.Allowed {
					continue
				}
				now := running.Add(1)
				for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
				}
				running.Add(-1)
				if _, err := r.Commit(t.Context(), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	crowd.Wait()
	if most.Load() > 7 || most.Load() == 0 {
		t.Errorf("%d ran at once, want at most 7", most.Load())
	}
	wantLeft(t, l, 7)
}

func TestWhatCanNotBeHeld(t *testing.T) {
	for want, limit := range map[string]stint.Limit{
		"CountDenied": stint.SlidingWindowLog(1, time.Second).CountingDenied(),
		"lease":       stint.TokenBucket(10, stint.PerSecond(1)).WithLease(2),
		"cost":        stint.LeakyBucket(10, stint.PerSecond(1)),
	} {
		_, _, err := newLimiter(t, limit).Reserve(t.Context(), "k", 1, stint.Hold{})
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	l := newLimiter(t, stint.Concurrency(1))
	for want, hold := range map[string]stint.Hold{
		"ttl is 999ms":    {TTL: 999 * time.Millisecond},
		"ttl is 1h0m0.5s": {TTL: time.Hour + time.Second/2},
		"id is":           {ID: "line\nbreak"},
		`id is "aaaa`:     {ID: strings.Repeat("a", 129)},
	} {
		if _, _, err := l.Reserve(t.Context(), "k", 1, hold); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", hold, err, want)
		}
	}
	if _, err := l.Allow(t.Context(), "k"); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "reserve") {
		t.Errorf("a take of places: %v", err)
	}
	if err := stint.Concurrency(10_001).Validate(); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
