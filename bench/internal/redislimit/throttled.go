package redislimit

import (
	"context"
	"math"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	goredisstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
)

// throttledSubject swaps the state it has read for the next, and reads again when
// somebody else was faster. It gives up after ten lost swaps by default; here it
// tries on.
type throttledSubject struct {
	client   *redis.Client
	quotas   []Quota
	limiters []*throttled.GCRARateLimiterCtx
}

// throttledPrefix starts its keys.
const throttledPrefix = "throttled:"

func newThrottled(_ context.Context, o Options, quotas []Quota) (Subject, error) {
	client := newGoRedis(o)
	s := &throttledSubject{client: client, quotas: quotas}
	for _, q := range quotas {
		store, err := goredisstore.NewCtx(client, throttledPrefix)
		if err != nil {
			_ = client.Close()
			return nil, err
		}
		l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate:  throttled.PerDuration(int(q.Refill), q.Period),
			MaxBurst: int(q.Permits) - 1,
		})
		if err != nil {
			_ = client.Close()
			return nil, err
		}
		l.SetMaxCASAttemptsLimit(math.MaxInt)
		s.limiters = append(s.limiters, l)
	}
	return s, nil
}

func (s *throttledSubject) Take(ctx context.Context, keys []string) (Answer, error) {
	return takeInTurn(ctx, s, keys)
}

func (s *throttledSubject) TakeOne(ctx context.Context, quota int, key string) (Answer, error) {
	limited, r, err := s.limiters[quota].RateLimitCtx(ctx, key, 1)
	return Answer{Allowed: !limited, Remaining: int64(r.Remaining)}, err
}

// Fill writes what a first request of each client leaves, since a read and a swap per
// client would take long.
func (s *throttledSubject) Fill(ctx context.Context, quota int, keys []string) error {
	q := s.quotas[quota]
	interval := q.Period / time.Duration(q.Refill)
	return pipelined(ctx, s.client, keys, func(pipe redis.Pipeliner, key string) {
		pipe.Set(ctx, throttledPrefix+key, time.Now().Add(interval).UnixNano(), max(interval, time.Second))
	})
}

func (s *throttledSubject) Close() error { return s.client.Close() }
