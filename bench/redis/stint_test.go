package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

func newStint(tb testing.TB, o options, quotas []quota) *subject {
	limits := make([]stint.Limit, len(quotas))
	for i, q := range quotas {
		limits[i] = stint.TokenBucket(q.Permits, stint.Per(q.Refill, q.Period)).WithMaxDebt(stint.NoDebt)
		if q.Leased {
			limits[i] = limits[i].WithLease(stint.LeaseAuto)
		}
	}
	return newStintOf(tb, o, limits)
}

// newStintOf is stint with any limits in place of quotas. It decides one limit through a
// Limiter, as most users do, and several at once in one operation with several claims.
func newStintOf(tb testing.TB, o options, limits []stint.Limit) *subject {
	scheme := "redis://"
	if o.Cluster {
		scheme = "redis-cluster://"
	}
	conn := must.Get(rueidis.Dial(rueidis.Config{URL: scheme + strings.Join(o.Addrs, ",")}))(tb)
	store := must.Get(redisstore.New(conn, redisstore.Options{Now: o.Now}))(tb)
	claims, limiters := make([]stint.Claim, len(limits)), make([]*stint.Limiter, len(limits))
	must.Do(tb, testredis.Answered(tb.Context(), store.Ping))
	for i, limit := range limits {
		claims[i].Permits = 1
		claims[i].Policy = must.Get(stint.NewPolicy("quota"+strconv.Itoa(i), limit))(tb)
		limiters[i] = must.Get(stint.NewLimiter(stint.Config{Store: store, Policy: claims[i].Policy}))(tb)
	}
	claim := func(quota int, key string) stint.Claim {
		c := claims[quota]
		c.Key = key
		return c
	}
	takeOne := func(ctx context.Context, quota int, key string) (answer, error) {
		d, err := limiters[quota].Allow(ctx, key)
		return answer{Allowed: d.Allowed, Remaining: d.Remaining, At: d.At}, err
	}
	return &subject{
		TakeOne: takeOne,
		Take: func(ctx context.Context, keys []string) (answer, error) {
			if len(keys) == 1 {
				return takeOne(ctx, 0, keys[0])
			}
			op := stint.Op{Verb: stint.VerbTake, Claim: claim(0, keys[0]), And: make([]stint.Claim, len(keys)-1)}
			for i := range op.And {
				op.And[i] = claim(i+1, keys[i+1])
			}
			d, err := store.Decide(ctx, op)
			return answer{Allowed: d.Allowed, Remaining: d.Remaining, At: d.At}, err
		},
		Fill: func(ctx context.Context, quota int, keys []string) error {
			for batch := range slices.Chunk(keys, fillBatch) {
				ops, results := make([]stint.Op, len(batch)), make([]stint.Result, len(batch))
				for i, key := range batch {
					ops[i] = stint.Op{Verb: stint.VerbTake, Claim: claim(quota, key)}
				}
				store.DecideAll(ctx, ops, results)
				for i, r := range results {
					if r.Err != nil {
						return r.Err
					}
					if !r.Decision.Allowed {
						return errFull(batch[i])
					}
				}
			}
			return nil
		},
		Close: func() error {
			store.Close()
			return nil
		},
	}
}
