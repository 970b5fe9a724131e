package bench

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/stint-go/stint/internal/must"
)

// A quota is what a benchmark asks every limiter to enforce: permits at once, and
// refill more of them per period, evenly.
type quota struct {
	permits int64
	refill  int64
	period  time.Duration
}

// The two quotas. Neither moves during a run: the generous one never runs dry
// and is never full again once charged, the spent one has one permit, which the
// fill takes.
var (
	generous = quota{permits: 1_000_000_000, refill: 1_000_000, period: 24 * time.Hour}
	spent    = quota{permits: 1, refill: 1, period: 24 * time.Hour}
)

// fillPermits is what the fill takes of every key under the generous quota, where
// a limiter can take several permits at once: it keeps a bucket from being full
// again, and so forgotten, while it is measured.
const fillPermits = 10_000

// A subject is one limiter under measurement.
type subject struct {
	// take asks for one permit.
	take func(key string) (bool, error)
	// fill makes the key known. nil: take does.
	fill func(key string) error
	// held reports what state is kept of the key. nil: not asked.
	held func(key string) (bool, error)
	// close ends what runs in the background. nil: nothing does.
	close func()
}

// A contender is a way to make a subject that will hold about the given number
// of keys.
type contender struct {
	name string
	make func(tb testing.TB, q quota, keys int) subject
}

// contenders lists the implementations by the name that the impl= part of a
// benchmark carries.
func contenders() []contender {
	return []contender{
		{"floor", newFloorSubject},
		{"stint", newStintSubject},
		{"xtime_mutex", newTimeRateMutex},
		{"xtime_syncmap", newTimeRateSyncMap},
		{"go_limiter", newGoLimiter},
		{"throttled", newThrottled},
		{"ulule", newUlule},
	}
}

func newTimeRate(q quota) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(q.refill)/q.period.Seconds()), int(q.permits))
}

// newTimeRateMutex is the usual recipe: a map behind a mutex.
func newTimeRateMutex(_ testing.TB, q quota, _ int) subject {
	var mu sync.Mutex
	limiters := make(map[string]*rate.Limiter)
	return subject{take: func(key string) (bool, error) {
		mu.Lock()
		l, ok := limiters[key]
		if !ok {
			l = newTimeRate(q)
			limiters[key] = l
		}
		mu.Unlock()
		return l.Allow(), nil
	}}
}

// newTimeRateSyncMap is the recipe for several cores: a concurrent map.
func newTimeRateSyncMap(_ testing.TB, q quota, _ int) subject {
	var limiters sync.Map
	return subject{take: func(key string) (bool, error) {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, newTimeRate(q))
		}
		return l.(*rate.Limiter).Allow(), nil
	}}
}

// newGoLimiter refills all of a bucket once per interval; it knows no other
// refill. Its sweep does not fall into a run.
func newGoLimiter(tb testing.TB, q quota, _ int) subject {
	store := must.Get(memorystore.New(&memorystore.Config{Tokens: uint64(q.permits), Interval: q.period}))(tb)
	ctx := context.Background()
	return subject{
		take: func(key string) (bool, error) {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok, err
		},
		close: func() {
			if err := store.Close(ctx); err != nil {
				tb.Error(err)
			}
		},
	}
}

// newThrottled uses the map without an upper bound on keys, which is its fastest
// store. It gives up after ten lost swaps by default; here it tries on.
func newThrottled(tb testing.TB, q quota, _ int) subject {
	store := must.Get(throttledstore.NewCtx(0))(tb)
	l := must.Get(throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(q.refill), q.period),
		MaxBurst: int(q.permits) - 1,
	}))(tb)
	l.SetMaxCASAttemptsLimit(math.MaxInt)
	ctx := context.Background()
	return subject{take: func(key string) (bool, error) {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited, err
	}}
}

// newUlule counts per window; it has no bucket.
func newUlule(_ testing.TB, q quota, _ int) subject {
	store := ululestore.NewStoreWithOptions(limiter.StoreOptions{
		Prefix:          limiter.DefaultPrefix,
		CleanUpInterval: time.Hour,
	})
	l := limiter.New(store, limiter.Rate{Period: q.period, Limit: q.permits})
	ctx := context.Background()
	return subject{take: func(key string) (bool, error) {
		state, err := l.Get(ctx, key)
		return !state.Reached, err
	}}
}
