package redislimit

import (
	"context"
	"slices"
	"strconv"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// stintSubject decides one quota through a Limiter, as most users do, and several at
// once in one operation with several claims.
type stintSubject struct {
	store    *redisstore.Store
	policies []*stint.Policy
	limiters []*stint.Limiter
}

func newStint(ctx context.Context, o Options, quotas []Quota) (Subject, error) {
	limits := make([]stint.Limit, len(quotas))
	for i, q := range quotas {
		limits[i] = stint.TokenBucket(q.Permits, stint.Per(q.Refill, q.Period)).WithMaxDebt(stint.NoDebt)
		if q.Leased {
			limits[i] = limits[i].WithLease(stint.LeaseAuto)
		}
	}
	return NewStintOf(ctx, o, limits)
}

// NewStintOf is stint with any limits in place of quotas.
func NewStintOf(ctx context.Context, o Options, limits []stint.Limit) (Subject, error) {
	store, err := rueidis.Open(rueidis.Connection{URL: "redis://" + o.Addr}, redisstore.Options{Now: o.Now})
	if err != nil {
		return nil, err
	}
	if err := store.Ping(ctx); err != nil {
		store.Close()
		return nil, err
	}
	s := &stintSubject{store: store}
	for i, limit := range limits {
		policy, err := stint.NewPolicy("quota"+strconv.Itoa(i), limit)
		if err != nil {
			store.Close()
			return nil, err
		}
		limiter, err := stint.NewLimiter(stint.Config{Store: store, Policy: policy})
		if err != nil {
			store.Close()
			return nil, err
		}
		s.policies, s.limiters = append(s.policies, policy), append(s.limiters, limiter)
	}
	return s, nil
}

func (s *stintSubject) Take(ctx context.Context, keys []string) (Answer, error) {
	if len(keys) == 1 {
		return s.TakeOne(ctx, 0, keys[0])
	}
	op := stint.Op{Verb: stint.Take, Claim: s.claim(0, keys[0]), And: make([]stint.Claim, len(keys)-1)}
	for i := range op.And {
		op.And[i] = s.claim(i+1, keys[i+1])
	}
	d, err := s.store.Decide(ctx, op)
	return Answer{Allowed: d.Allowed, Remaining: d.Remaining, At: d.At}, err
}

func (s *stintSubject) TakeOne(ctx context.Context, quota int, key string) (Answer, error) {
	d, err := s.limiters[quota].Allow(ctx, key)
	return Answer{Allowed: d.Allowed, Remaining: d.Remaining, At: d.At}, err
}

func (s *stintSubject) claim(quota int, key string) stint.Claim {
	return stint.Claim{Key: key, Policy: s.policies[quota], Permits: 1}
}

func (s *stintSubject) Fill(ctx context.Context, quota int, keys []string) error {
	ops := make([]stint.Op, 0, fillBatch)
	results := make([]stint.Result, fillBatch)
	for batch := range slices.Chunk(keys, fillBatch) {
		ops = ops[:0]
		for _, key := range batch {
			ops = append(ops, stint.Op{Verb: stint.Take, Claim: s.claim(quota, key)})
		}
		s.store.DecideAll(ctx, ops, results[:len(ops)])
		for i := range ops {
			if err := results[i].Err; err != nil {
				return err
			}
			if !results[i].Decision.Allowed {
				return errFull(batch[i])
			}
		}
	}
	return nil
}

func (s *stintSubject) Close() error {
	s.store.Close()
	return nil
}
