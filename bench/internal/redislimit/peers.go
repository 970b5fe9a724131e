package redislimit

import (
	"context"
	"math"
	"slices"
	"time"

	redisrate "github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"
)

// newGoRedis is the client under the peers: a connection for every caller, so that
// nobody waits for one, and no second try, which would charge twice.
func newGoRedis(o Options) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: o.Addrs, IsClusterMode: o.Cluster, PoolSize: max(o.Callers, 1), MaxRetries: -1, DisableIdentity: true,
		// A server of this age does not know the command that asks for them.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

type takeOne func(ctx context.Context, quota int, key string) (Answer, error)

// newPeer is a limiter whose state of a client is the key with a prefix.
func newPeer(client redis.UniversalClient, prefix string, take takeOne) *Subject {
	return &Subject{
		TakeOne: take,
		Close:   client.Close,
		// As one does with limiters that know one limit per call: one after the other, until
		// one denies. What the first have taken stays taken.
		Take: func(ctx context.Context, keys []string) (all Answer, err error) {
			for i, key := range keys {
				a, err := take(ctx, i, key)
				if err != nil || !a.Allowed {
					return a, err
				}
				if i == 0 || a.Remaining < all.Remaining {
					all = a
				}
			}
			return all, nil
		},
		// The first client takes a permit, and the others get what that leaves in Redis.
		Fill: func(ctx context.Context, quota int, keys []string) error {
			if a, err := take(ctx, quota, keys[0]); err != nil {
				return err
			} else if !a.Allowed {
				return errFull(keys[0])
			}
			state, err := client.Dump(ctx, prefix+keys[0]).Result()
			if err != nil {
				return err
			}
			// 0, without an end, if it has none.
			left := max(client.PTTL(ctx, prefix+keys[0]).Val(), 0)
			for batch := range slices.Chunk(keys[1:], fillBatch) {
				pipe := client.Pipeline()
				for _, key := range batch {
					pipe.Restore(ctx, prefix+key, left, state)
				}
				if _, err := pipe.Exec(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// NewRedisRate is GCRA in one script call.
func NewRedisRate(_ context.Context, o Options, quotas []Quota) (*Subject, error) {
	client := newGoRedis(o)
	l := redisrate.NewLimiter(client)
	limits := make([]redisrate.Limit, len(quotas))
	for i, q := range quotas {
		limits[i] = redisrate.Limit{Rate: int(q.Refill), Burst: int(q.Permits), Period: q.Period}
	}
	return newPeer(client, "rate:", func(ctx context.Context, quota int, key string) (Answer, error) {
		r, err := l.Allow(ctx, key, limits[quota])
		if err != nil {
			return Answer{}, err
		}
		return Answer{Allowed: r.Allowed > 0, Remaining: int64(r.Remaining)}, nil
	}), nil
}

// maxWindow bounds ulule's windows: Redis refuses times to live that end too late.
const maxWindow = 3650 * 24 * time.Hour

// newUlule counts per window, which is as long as the quota takes to refill and starts
// with a client's first request; it has no bucket.
func newUlule(_ context.Context, o Options, quotas []Quota) (*Subject, error) {
	client := newGoRedis(o)
	store, err := ululestore.NewStoreWithOptions(client, limiter.StoreOptions{Prefix: limiter.DefaultPrefix})
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	limiters := make([]*limiter.Limiter, len(quotas))
	for i, q := range quotas {
		limiters[i] = limiter.New(store, limiter.Rate{Period: min(q.Lifetime(), maxWindow), Limit: q.Permits})
	}
	return newPeer(client, limiter.DefaultPrefix+":", func(ctx context.Context, quota int, key string) (Answer, error) {
		c, err := limiters[quota].Get(ctx, key)
		return Answer{Allowed: !c.Reached, Remaining: c.Remaining}, err
	}), nil
}

// newThrottled swaps the state it has read for the next, and reads again when somebody
// else was faster. It gives up after ten lost swaps by default; here it tries on.
func newThrottled(_ context.Context, o Options, quotas []Quota) (*Subject, error) {
	const prefix = "throttled:"
	client := newGoRedis(o)
	store, err := throttledstore.NewCtx(client, prefix)
	limiters := make([]*throttled.GCRARateLimiterCtx, len(quotas))
	for i, q := range quotas {
		if err == nil {
			limiters[i], err = throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
				MaxRate: throttled.PerDuration(int(q.Refill), q.Period), MaxBurst: int(q.Permits) - 1,
			})
		}
		if err != nil {
			_ = client.Close()
			return nil, err
		}
		limiters[i].SetMaxCASAttemptsLimit(math.MaxInt)
	}
	return newPeer(client, prefix, func(ctx context.Context, quota int, key string) (Answer, error) {
		limited, r, err := limiters[quota].RateLimitCtx(ctx, key, 1)
		return Answer{Allowed: !limited, Remaining: int64(r.Remaining)}, err
	}), nil
}

// newIncrGoRedis is one INCR per request, on a connection per caller: what a round trip
// costs when nothing is decided. It admits everybody.
func newIncrGoRedis(_ context.Context, o Options, quotas []Quota) (*Subject, error) {
	client := newGoRedis(o)
	return newPeer(client, "", func(ctx context.Context, quota int, key string) (Answer, error) {
		n, err := client.Incr(ctx, key).Result()
		return Answer{Allowed: err == nil, Remaining: quotas[quota].Permits - n}, err
	}), nil
}

// newIncrRueidis is the same with callers that share connections, on which their commands
// travel together.
func newIncrRueidis(_ context.Context, o Options, quotas []Quota) (*Subject, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: o.Addrs, ForceSingleClient: !o.Cluster, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		return nil, err
	}
	filler := newGoRedis(Options{Addrs: o.Addrs, Cluster: o.Cluster})
	s := newPeer(filler, "", func(ctx context.Context, quota int, key string) (Answer, error) {
		n, err := client.Do(ctx, client.B().Incr().Key(key).Build()).AsInt64()
		return Answer{Allowed: err == nil, Remaining: quotas[quota].Permits - n}, err
	})
	s.Close = func() error {
		client.Close()
		return filler.Close()
	}
	return s, nil
}
