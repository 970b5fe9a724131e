package stint_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// A farStore answers after a while, or is gone, or silent.
type farStore struct {
	stint.Store
	far          time.Duration
	gone, silent atomic.Bool
}

func (s *farStore) wait(ctx context.Context, d time.Duration) error {
	if s.silent.Load() {
		<-ctx.Done()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	if s.gone.Load() {
		return stint.ErrUnavailable
	}
	return nil
}

func (s *farStore) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if err := s.wait(ctx, s.far); err != nil {
		return stint.Decision{}, err
	}
	return s.Store.Decide(ctx, op)
}

func (s *farStore) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return s.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

// keepAlive keeps so many places alive, and returns the limiter and the works.
func keepAlive(t *testing.T, store stint.Store, places int, ttl time.Duration) (l *stint.Limiter, works []context.Context) {
	t.Helper()
	t.Cleanup(func() { pass(ttl) }) // until what is on its way has been answered
	l = must.Get(stint.New(store, "p", stint.Concurrency(int64(places))))(t)
	for range places {
		r, _ := must.Two(l.Reserve(t.Context(), "k", 1, stint.Hold{TTL: ttl}))(t)
		work, stop := r.KeepAlive(t.Context())
		t.Cleanup(stop)
		works = append(works, work)
	}
	return l, works
}

// Holds live on at a store that is far, one as many.
func TestKeepAliveAtASlowStore(t *testing.T) {
	for _, places := range []int{1, 100} { // with the race detector a bubble may have about 250 goroutines
		t.Run(strconv.Itoa(places), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &farStore{Store: memstore.New(memstore.Config{}), far: 350 * time.Millisecond}
				l, works := keepAlive(t, store, places, 2*time.Second)
				for range 60 {
					pass(time.Second)
					if d, err := l.Peek(t.Context(), "k"); err != nil || d.Remaining != 0 {
						t.Fatalf("%d of %d places that are kept alive are free, %v", d.Remaining, places, err)
					}
				}
				for _, work := range works {
					must.Do(t, context.Cause(work))
				}
			})
		})
	}
}

// When the store is gone for a TTL others may have the place: the work ends before.
func TestKeepAliveWhileTheStoreIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &farStore{Store: memstore.New(memstore.Config{})}
		_, works := keepAlive(t, store, 1, 10*time.Second)
		pass(time.Minute)
		store.gone.Store(true)
		pass(6 * time.Second) // it was renewed 3 to 4 s before
		store.gone.Store(false)
		pass(time.Minute)
		if err := context.Cause(works[0]); err != nil {
			t.Fatalf("gone for less than the TTL: %v", err)
		}
		store.gone.Store(true)
		pass(10 * time.Second)
		if err := context.Cause(works[0]); !errors.Is(err, stint.ErrLost) {
			t.Errorf("gone for the TTL: %v", err)
		}
	})
}

// A renewal of which nothing is heard is not waited for until the hold is lost: the next one may be heard.
func TestKeepAliveWhenARenewalIsNotAnswered(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			store := &farStore{Store: memstore.New(memstore.Config{}), far: 50 * time.Millisecond}
			_, works := keepAlive(t, store, 1, ttl)
			store.silent.Store(true)
			pass(ttl / 2)
			store.silent.Store(false)
			pass(ttl)
			if err := context.Cause(works[0]); err != nil {
				t.Errorf("the store was silent for half of the %v: %v", ttl, err)
			}
		})
	}
}

// A store that has lost its states, and given the place to another, denies the renewal: the work ends then.
func TestKeepAliveOfAHoldThatTheStoreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &farStore{Store: memstore.New(memstore.Config{})}
		l, works := keepAlive(t, store, 1, time.Minute)
		store.Store = memstore.New(memstore.Config{})
		if _, d, err := l.Reserve(t.Context(), "k", 1, stint.Hold{}); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		pass(25 * time.Second)
		if err := context.Cause(works[0]); !errors.Is(err, stint.ErrLost) {
			t.Errorf("the work goes on: %v", err)
		}
	})
}
