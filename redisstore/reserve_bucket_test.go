package redisstore_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// A bucket in one partition and a window in another: the bucket is asked when the window has
// admitted, so nothing of it is ever undone, and it keeps to its own bound. While the window
// denies, permits that were taken and given back again and again would pile up beside a bucket
// that refills, and be admitted all at once when the window admits.
func bucketsKeepTheirBound(t *testing.T, cluster *testredis.Cluster) {
	const callers, capacity, perSecond = 64, 10, 10
	const denying, admitting = 3 * time.Second, time.Second // by the servers' clock
	store := open(t, cluster.URL(), redisstore.Options{KeyPrefix: "bound", DenialCache: -1})
	keys := keysApart(store, "bound")
	bucket := policyOf(t, "bucket", stint.TokenBucket(capacity, stint.PerSecond(perSecond)))
	window := policyOf(t, "window", aLimit(stint.AlgorithmFixedWindow, bounds.MaxPermits))
	start := take(t, store, keys[1], window, bounds.MaxPermits).At // from now on it denies

	var mu sync.Mutex
	type admission struct {
		at      stint.Instant
		permits int64
	}
	var admitted []admission
	var opened sync.Once
	var group sync.WaitGroup
	for caller := range callers {
		r := rand.New(rand.NewPCG(2, uint64(caller)))
		group.Go(func() {
			for {
				cost := 1 + r.Int64N(capacity) // equal ones would go as one, and be denied as one
				o := spanning(stint.VerbTake, stint.Claim{Key: keys[0], Policy: bucket, Permits: cost}, stint.Claim{Key: keys[1], Policy: window, Permits: 1})
				d, err := store.Decide(t.Context(), o)
				if err != nil {
					t.Error(err)
					return
				}
				if d.Allowed {
					mu.Lock()
					admitted = append(admitted, admission{d.At, cost})
					mu.Unlock()
				}
				switch passed := d.At.Time().Sub(start.Time()); {
				case passed > denying+admitting:
					return
				case passed > denying:
					opened.Do(func() { decide(t, store, op(stint.VerbReset, keys[1], window, 0)) })
				}
			}
		})
	}
	group.Wait()
	slices.SortFunc(admitted, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
	if len(admitted) == 0 {
		t.Fatal("nothing was admitted when the window admitted")
	}
	for i, first := range admitted {
		sum := int64(0)
		for _, a := range admitted[i:] {
			sum += a.permits
			if most := capacity*1_000_000 + perSecond*int64(a.at-first.at); sum*1_000_000 > most {
				t.Fatalf("%d permits of a bucket of %d at %d/s are admitted within %s", sum, capacity, perSecond, a.at.Time().Sub(first.at.Time()))
			}
		}
	}
}

// Clients that are denied by a window of their own, and ask on and on, take nothing of a bucket that
// others share.
func deniedCallersTakeNothing(t *testing.T, cluster *testredis.Cluster) {
	const innocents, denied = 40, 16
	store := open(t, cluster.URL(), redisstore.Options{KeyPrefix: "innocent", DenialCache: -1})
	keys := keysApart(store, "innocent")
	shared := policyOf(t, "shared", aLimit(stint.AlgorithmTokenBucket, innocents))
	own := policyOf(t, "own", aLimit(stint.AlgorithmFixedWindow, 1))
	take(t, store, keys[1], own, 1)

	var stop atomic.Bool
	var asked atomic.Int64
	var group sync.WaitGroup
	for caller := range denied {
		group.Go(func() {
			for cost := int64(innocents - caller); !stop.Load(); asked.Add(1) {
				o := spanning(stint.VerbTake, stint.Claim{Key: keys[0], Policy: shared, Permits: cost}, stint.Claim{Key: keys[1], Policy: own, Permits: 1})
				if d, err := store.Decide(t.Context(), o); err != nil || d.Allowed {
					t.Errorf("%+v, %v, want a denial", d, err)
					return
				}
			}
		})
	}
	for i := range innocents {
		from := asked.Load()
		until(t, "others have asked", func() bool { return asked.Load() > from })
		if d := take(t, store, keys[0], shared, 1); !d.Allowed {
			t.Errorf("innocent %d: %+v", i, d)
		}
	}
	stop.Store(true)
	group.Wait()
	if d := take(t, store, keys[0], shared, 1); d.Allowed {
		t.Errorf("one more than the bucket has: %+v", d)
	}
}
