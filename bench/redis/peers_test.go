package redis

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	redisrate "github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/stint-go/stint/internal/must"
)

// newGoRedis is the client under the peers: a connection for every caller, so that
// nobody waits for one, and no second try, which would charge twice.
func newGoRedis(o options) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: o.Addrs, IsClusterMode: o.Cluster, PoolSize: max(o.Callers, 1), MaxRetries: -1, DisableIdentity: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
		// A server of this age does not know the command that asks for them.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

type takeOne func(ctx context.Context, quota int, key string) (answer, error)

// newPeer is a limiter whose state of a client is in the keys that formats make of its own.
func newPeer(client redis.UniversalClient, take takeOne, formats ...string) *subject {
	return &subject{
		TakeOne: take,
		Close:   client.Close,
		// As one does with limiters that know one limit per call: one after the other, until
		// one denies. What the first have taken stays taken.
		Take: func(ctx context.Context, keys []string) (all answer, err error) {
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
			for _, format := range formats {
				first := fmt.Sprintf(format, keys[0])
				state, err := client.Dump(ctx, first).Result()
				if err != nil {
					return err
				}
				// 0, without an end, if it has none.
				left := max(client.PTTL(ctx, first).Val(), 0)
				for batch := range slices.Chunk(keys[1:], fillBatch) {
					pipe := client.Pipeline()
					for _, key := range batch {
						pipe.Restore(ctx, fmt.Sprintf(format, key), left, state)
					}
					if _, err := pipe.Exec(ctx); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
}

// newRedisRate is GCRA in one script call.
func newRedisRate(_ testing.TB, o options, quotas []quota) *subject {
	client := newGoRedis(o)
	l := redisrate.NewLimiter(client)
	limits := make([]redisrate.Limit, len(quotas))
	for i, q := range quotas {
		limits[i] = redisrate.Limit{Rate: int(q.Refill), Burst: int(q.Permits), Period: q.Period}
	}
	return newPeer(client, func(ctx context.Context, quota int, key string) (answer, error) {
		r, err := l.Allow(ctx, key, limits[quota])
		if err != nil {
			return answer{}, err
		}
		return answer{Allowed: r.Allowed > 0, Remaining: int64(r.Remaining)}, nil
	}, "rate:%s")
}

// maxWindow bounds ulule's windows: Redis refuses times to live that end too late.
const maxWindow = 3650 * 24 * time.Hour

// newUlule counts per window, which is as long as the quota takes to refill and starts
// with a client's first request; it has no bucket.
func newUlule(tb testing.TB, o options, quotas []quota) *subject {
	client := newGoRedis(o)
	store := must.Get(ululestore.NewStoreWithOptions(client, limiter.StoreOptions{Prefix: limiter.DefaultPrefix}))(tb)
	limiters := make([]*limiter.Limiter, len(quotas))
	for i, q := range quotas {
		limiters[i] = limiter.New(store, limiter.Rate{Period: min(q.Lifetime(), maxWindow), Limit: q.Permits})
	}
	return newPeer(client, func(ctx context.Context, quota int, key string) (answer, error) {
		c, err := limiters[quota].Get(ctx, key)
		return answer{Allowed: !c.Reached, Remaining: c.Remaining}, err
	}, limiter.DefaultPrefix+":%s")
}

// newThrottled swaps the state it has read for the next, and reads again when somebody
// else was faster. It gives up after ten lost swaps by default; here it tries on.
func newThrottled(tb testing.TB, o options, quotas []quota) *subject {
	const prefix = "throttled:"
	client := newGoRedis(o)
	store := must.Get(throttledstore.NewCtx(client, prefix))(tb)
	limiters := make([]*throttled.GCRARateLimiterCtx, len(quotas))
	for i, q := range quotas {
		limiters[i] = must.Get(throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
			MaxRate: throttled.PerDuration(int(q.Refill), q.Period), MaxBurst: int(q.Permits) - 1,
		}))(tb)
		limiters[i].SetMaxCASAttemptsLimit(math.MaxInt)
	}
	return newPeer(client, func(ctx context.Context, quota int, key string) (answer, error) {
		limited, r, err := limiters[quota].RateLimitCtx(ctx, key, 1)
		return answer{Allowed: !limited, Remaining: int64(r.Remaining)}, err
	}, prefix+"%s")
}

// newIncrGoRedis is one INCR per request, on a connection per caller: what a round trip
// costs when nothing is decided. It admits everybody.
func newIncrGoRedis(_ testing.TB, o options, quotas []quota) *subject {
	client := newGoRedis(o)
	return newPeer(client, func(ctx context.Context, quota int, key string) (answer, error) {
		n, err := client.Incr(ctx, key).Result()
		return answer{Allowed: err == nil, Remaining: quotas[quota].Permits - n}, err
	}, "%s")
}

// rueidisOf are the options of rueidis for all that use it: callers share its connections, on which their commands travel
// together, and nothing is sent twice.
func rueidisOf(o options) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: o.Addrs, ForceSingleClient: !o.Cluster, DisableCache: true, DisableRetry: true}
}

// newIncrRueidis is the same with callers that share connections.
func newIncrRueidis(tb testing.TB, o options, quotas []quota) *subject {
	client := must.Get(rueidis.NewClient(rueidisOf(o)))(tb)
	return shared(o, client.Close, func(ctx context.Context, quota int, key string) (answer, error) {
		n, err := client.Do(ctx, client.B().Incr().Key(key).Build()).AsInt64()
		return answer{Allowed: err == nil, Remaining: quotas[quota].Permits - n}, err
	}, "%s")
}

// newRueidisLimiter counts per window in one script call, with the callers' clock. A window starts with a client's first
// request, and is as long as the quota takes to refill; it has no bucket. Denied requests count, too.
func newRueidisLimiter(tb testing.TB, o options, quotas []quota) *subject {
	var client rueidis.Client
	l := must.Get(rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
		ClientBuilder: func(option rueidis.ClientOption) (_ rueidis.Client, err error) {
			client, err = rueidis.NewClient(option)
			return client, err
		},
		ClientOption: rueidisOf(o), KeyPrefix: fastest, Limit: 1, Window: time.Second, // each quota has its own
	}))(tb)
	limits := make([]rueidislimiter.RateLimitOption, len(quotas))
	for i, q := range quotas {
		limits[i] = rueidislimiter.WithCustomRateLimit(int(q.Permits), min(q.Lifetime(), maxWindow))
	}
	return shared(o, client.Close, func(ctx context.Context, quota int, key string) (answer, error) {
		r, err := l.Allow(ctx, key, limits[quota])
		return answer{Allowed: r.Allowed, Remaining: r.Remaining}, err
	}, fastest+":{%s}", fastest+":{%s}:ex")
}

// shared is a peer that has no client of go-redis, with one that fills.
func shared(o options, closing func(), take takeOne, formats ...string) *subject {
	filler := newGoRedis(options{Addrs: o.Addrs, Cluster: o.Cluster})
	s := newPeer(filler, take, formats...)
	s.Close = func() error {
		closing()
		return filler.Close()
	}
	return s
}
