package stint_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// "Wait: block until admitted (leaky bucket: until the turn)", and "asks by peek, so its attempts are not recorded".
func TestWaitBlocksUntilAdmitted(t *testing.T) {
	for name, test := range map[string]struct {
		limit stint.Limit
		want  []int // in seconds
	}{
		"admitted":       {stint.TokenBucket(2, stint.PerSecond(1)), []int{0, 0, 1, 2}},
		"turns":          {stint.LeakyBucket(2, stint.PerSecond(1)), []int{0, 1, 2, 3}},
		"denied counted": {stint.SlidingWindowLog(1, time.Minute).CountingDenied(), []int{0, 60, 120}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter, start := newLimiter(t, test.limit), time.Now()
				for i, seconds := range test.want {
					want := time.Duration(seconds) * time.Second
					if d, err := limiter.Wait(t.Context(), "k"); err != nil || !d.Allowed || time.Since(start) != want {
						t.Errorf("request %d: %+v, %v after %v, want %v", i, d, err, time.Since(start), want)
					}
				}
			})
		})
	}
}

// "it fails at once when the deadline is nearer than the wait".
func TestWaitDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		limit    stint.Limit
		used     int64
		deadline time.Duration
	}{
		"denied":     {stint.TokenBucket(1, stint.PerMinute(1)), 1, 59 * time.Second},
		"turn":       {stint.LeakyBucket(9, stint.PerMinute(1)), 1, 59 * time.Second},
		"full queue": {stint.LeakyBucket(3, stint.PerMinute(1)), 3, 179 * time.Second}, // which has room after a minute
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := newLimiter(t, test.limit)
				ctx := deadline(t, test.deadline)
				must.Get(limiter.AllowN(ctx, "k", test.used))(t)
				before, _ := limiter.Peek(t.Context(), "k")
				start := time.Now()
				if _, err := limiter.Wait(ctx, "k"); !errors.Is(err, stint.ErrDeadline) {
					t.Errorf("error is %v, want ErrDeadline", err)
				}
				if waited := time.Since(start); waited != 0 {
					t.Errorf("failed after %v, want at once", waited)
				}
				if after, _ := limiter.Peek(t.Context(), "k"); after.Remaining != before.Remaining {
					t.Errorf("%d permits remain, want %d: nothing consumed", after.Remaining, before.Remaining)
				}
			})
		})
	}
}

func TestWaitCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, stint.TokenBucket(1, stint.PerMinute(1)))
		ctx, cancel := context.WithCancel(t.Context())
		must.Get(limiter.Wait(ctx, "k"))(t)
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		if _, err := limiter.Wait(ctx, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v, want context.Canceled", err)
		}
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("gave up after %v, want 1s", waited)
		}
		if _, err := limiter.Wait(ctx, "other"); !errors.Is(err, context.Canceled) {
			t.Errorf("on an ended context: %v", err)
		}
	})
}

func TestWaitNever(t *testing.T) {
	limiter := newLimiter(t, stint.TokenBucket(2, stint.PerSecond(1)))
	if d, err := limiter.WaitN(t.Context(), "k", 3); !errors.Is(err, stint.ErrNever) || d.RetryAfter != stint.Never {
		t.Errorf("got %+v, %v; want ErrNever", d, err)
	}
}

// counting counts a store's operations.
type counting struct {
	stint.Store
	mu         sync.Mutex
	operations int
}

func (c *counting) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	c.mu.Lock()
	c.operations++
	c.mu.Unlock()
	return c.Store.Decide(ctx, op)
}

// waiters start callers of Wait one after another, and note in which order they are admitted, and when.
type waiters struct {
	limiter *stint.Limiter
	begun   time.Time
	group   sync.WaitGroup
	mu      sync.Mutex
	order   []string
}

func (w *waiters) wait(ctx context.Context, name, key string, n int64) {
	w.group.Go(func() {
		_, err := w.limiter.WaitN(ctx, key, n)
		w.mu.Lock()
		defer w.mu.Unlock()
		text := fmt.Sprintf("%s %s", name, time.Since(w.begun))
		if err != nil {
			text += " " + err.Error()
		}
		w.order = append(w.order, text)
	})
	synctest.Wait()
}

// expect waits for all, and compares who was served when. Who is served at the same instant has no order.
func (w *waiters) expect(t *testing.T, want ...string) {
	t.Helper()
	w.group.Wait()
	atInstants := func(a, b string) int {
		var at [2]time.Duration
		for i, text := range []string{a, b} {
			at[i], _ = time.ParseDuration(strings.Fields(text)[1])
		}
		return cmp.Or(cmp.Compare(at[0], at[1]), strings.Compare(a, b))
	}
	slices.SortFunc(w.order, atInstants)
	slices.SortFunc(want, atInstants)
	if !slices.Equal(w.order, want) {
		t.Errorf("the order is %q, want %q", w.order, want)
	}
}

// At most two operations are spent for each caller, and callers are served in the order in which they came.
func TestWaitInLine(t *testing.T) {
	for name, limit := range map[string]stint.Limit{
		"bucket":  stint.TokenBucket(1, stint.PerSecond(50)),
		"leaky":   stint.LeakyBucket(5, stint.PerSecond(50)),
		"counter": stint.SlidingWindowCounter(5, 100*time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const callers = 100
				store := &counting{Store: memstore.New(memstore.Config{})}
				limiter := must.Get(stint.New(store, "test", limit))(t)
				var mu sync.Mutex
				var order []int
				var group sync.WaitGroup
				for i := range callers {
					group.Go(func() {
						if _, err := limiter.Wait(t.Context(), "k"); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
					})
					synctest.Wait()
				}
				group.Wait()
				if !slices.IsSorted(order) {
					t.Errorf("the order is %v", order)
				}
				if store.operations > 2*callers {
					t.Errorf("%d operations for %d callers", store.operations, callers)
				}
			})
		})
	}
}

func TestWaitOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiters{limiter: newLimiter(t, stint.TokenBucket(5, stint.PerSecond(1))), begun: time.Now()}
		w.wait(t.Context(), "a", "k", 5)
		w.wait(t.Context(), "b", "k", 3)
		gone, leave := context.WithCancel(t.Context())
		w.wait(gone, "gone", "k", 1)
		w.wait(t.Context(), "c", "k", 1) // which b does not let pass
		w.wait(t.Context(), "d", "other", 1)
		time.AfterFunc(time.Second, leave)
		w.expect(t, "a 0s", "d 0s", "gone 1s context canceled", "b 3s", "c 4s")
	})
}

// When the first leaves, the next takes its place at once.
func TestWaitFirstLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiters{limiter: newLimiter(t, stint.TokenBucket(5, stint.PerSecond(1))), begun: time.Now()}
		w.wait(t.Context(), "a", "k", 5)
		gone, leave := context.WithCancel(t.Context())
		w.wait(gone, "gone", "k", 5)
		w.wait(t.Context(), "b", "k", 1)
		time.AfterFunc(2500*time.Millisecond, leave)
		w.expect(t, "a 0s", "gone 2.5s context canceled", "b 2.5s")
	})
}

// A caller that can never be admitted, or is known not to be admitted in time, is told at once.
func TestWaitBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiters{limiter: newLimiter(t, stint.TokenBucket(5, stint.PerSecond(1))), begun: time.Now()}
		w.wait(t.Context(), "a", "k", 5)
		w.wait(t.Context(), "b", "k", 4)
		w.wait(deadline(t, 3*time.Second), "short", "k", 1)
		w.wait(deadline(t, 4500*time.Millisecond), "longer", "k", 1)
		w.wait(t.Context(), "never", "k", 6)
		w.wait(t.Context(), "invalid", "k", 0)
		w.wait(t.Context(), "c", "k", 1)
		w.expect(t, "a 0s",
			"short 0s "+stint.ErrDeadline.Error(), "never 0s "+stint.ErrNever.Error(), `invalid 0s stint: permits is 0; allowed: 1 or more`,
			"b 4s", "longer 4s "+stint.ErrDeadline.Error(), "c 5s")
	})
}
