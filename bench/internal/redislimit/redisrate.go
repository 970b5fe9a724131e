package redislimit

import (
	"context"

	redisrate "github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

type redisRateSubject struct {
	client  *redis.Client
	limiter *redisrate.Limiter
	limits  []redisrate.Limit
}

func newRedisRate(_ context.Context, o Options, quotas []Quota) (Subject, error) {
	client := newGoRedis(o)
	s := &redisRateSubject{client: client, limiter: redisrate.NewLimiter(client)}
	for _, q := range quotas {
		s.limits = append(s.limits, redisrate.Limit{Rate: int(q.Refill), Burst: int(q.Permits), Period: q.Period})
	}
	return s, nil
}

func (s *redisRateSubject) Take(ctx context.Context, keys []string) (Answer, error) {
	return takeInTurn(ctx, s, keys)
}

func (s *redisRateSubject) TakeOne(ctx context.Context, quota int, key string) (Answer, error) {
	r, err := s.limiter.Allow(ctx, key, s.limits[quota])
	if err != nil {
		return Answer{}, err
	}
	return Answer{Allowed: r.Allowed > 0, Remaining: int64(r.Remaining)}, nil
}

func (s *redisRateSubject) Fill(ctx context.Context, quota int, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	// The first loads the script.
	if a, err := s.TakeOne(ctx, quota, keys[0]); err != nil || !a.Allowed {
		return orFull(err, keys[0])
	}
	r := &recorder{Client: s.client, reply: []any{int64(1), int64(0), "0", "0"}}
	limiter := redisrate.NewLimiter(r)
	return r.fill(ctx, keys[1:], func(key string) error {
		_, err := limiter.Allow(ctx, key, s.limits[quota])
		return err
	})
}

func (s *redisRateSubject) Close() error { return s.client.Close() }

func orFull(err error, key string) error {
	if err != nil {
		return err
	}
	return errFull(key)
}
