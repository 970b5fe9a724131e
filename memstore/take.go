package memstore

import (
	"context"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// taker is the short way to take of one limit whose state is of a fixed size.
type taker struct {
	store  *Store
	policy *stint.Policy
	limit  *limit // nil: the policy is of several limits, or a log
}

// Bind implements [stint.Binder].
func (s *Store) Bind(policy *stint.Policy) stint.Taker {
	k := &taker{store: s, policy: policy}
	if limits := s.plan(policy).limits; len(limits) == 1 && limits[0].log == nil {
		k.limit = &limits[0]
	}
	return k
}

// Take implements [stint.Taker].
func (k *taker) Take(ctx context.Context, key string, n int64) (d stint.Decision, err error) {
	s, l := k.store, k.limit
	if uint(len(key)-1) >= stint.MaxKeyBytes || n < 1 || l == nil {
		return s.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: k.policy, Permits: n}})
	}
	if err = ctx.Err(); err != nil {
		return d, err
	}
	now := s.clock()
	hash := s.hash(key, l)
	id := l.writer.id.Load()
	slot := s.shard(hash).table.Load().hold(hash, id, l.writer)
	if slot == nil {
		op := stint.Op{Claim: stint.Claim{Key: key, Policy: k.policy, Permits: n}}
		return s.decideOne(&op, l, now), nil
	}
	var out stint.Outcome
	l.applyWords(algorithm.Take, &slot.words, now, n, &out)
	d.Allowed, d.Limit, d.Remaining, d.At = out.Allowed, out.Limit, out.Remaining, now
	d.RetryAfter, d.ResetAfter, d.Delay = out.RetryAfter, out.ResetAfter, out.Delay
	// The release comes last: it has to wait for the stores before it anyway, and what
	// copies the decision then finds it in the cache.
	slot.release(id)
	s.sweepNow(now)
	return d, nil
}
