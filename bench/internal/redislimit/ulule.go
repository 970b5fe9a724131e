package redislimit

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"
)

// ululeSubject counts per window, which is as long as the quota takes to refill and
// starts with a client's first request; it has no bucket.
type ululeSubject struct {
	client   *redis.Client
	limiters []*limiter.Limiter
}

// maxWindow bounds the window: Redis refuses times to live that end too late.
const maxWindow = 3650 * 24 * time.Hour

func newUlule(_ context.Context, o Options, quotas []Quota) (Subject, error) {
	client := newGoRedis(o)
	store, err := ululestore.NewStoreWithOptions(client, limiter.StoreOptions{Prefix: limiter.DefaultPrefix})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	s := &ululeSubject{client: client}
	for _, q := range quotas {
		s.limiters = append(s.limiters, limiter.New(store, limiter.Rate{
			Period: min(q.Lifetime(), maxWindow), Limit: q.Permits,
		}))
	}
	return s, nil
}

func (s *ululeSubject) Take(ctx context.Context, keys []string) (Answer, error) {
	return takeInTurn(ctx, s, keys)
}

func (s *ululeSubject) TakeOne(ctx context.Context, quota int, key string) (Answer, error) {
	c, err := s.limiters[quota].Get(ctx, key)
	return Answer{Allowed: !c.Reached, Remaining: c.Remaining}, err
}

func (s *ululeSubject) Fill(ctx context.Context, quota int, keys []string) error {
	r := &recorder{Client: s.client, reply: []any{int64(1), int64(0)}}
	store, err := ululestore.NewStoreWithOptions(r, limiter.StoreOptions{Prefix: limiter.DefaultPrefix})
	if err != nil {
		return err
	}
	l := limiter.New(store, s.limiters[quota].Rate)
	return r.fill(ctx, keys, func(key string) error {
		_, err := l.Get(ctx, key)
		return err
	})
}

func (s *ululeSubject) Close() error { return s.client.Close() }
