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
	limit  *limit
}

// Bind implements [stint.Binder].
func (s *Store) Bind(policy *stint.Policy) stint.Taker {
	return &taker{store: s, policy: policy, limit: &s.plan(policy).limits[0]}
}

// Take implements [stint.Taker].
func (k *taker) Take(ctx context.Context, key string, n int64) (d stint.Decision, err error) {
	l := k.limit
	if uint(len(key)-1) >= stint.MaxKeyBytes || n < 1 || l.log != nil || k.policy.Len() > 1 {
		return k.store.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: k.policy, Permits: n}})
	}
	if err = ctx.Err(); err != nil {
		return d, err
	}
	s := k.store
	now := s.clock()
	hash := s.hash(key, l)
	t := s.shard(hash)
	t.lock()
	at, found := t.find(hash)
	if !found || t.slots[at].limit != l.id {
		t.mu.Unlock()
		op := stint.Op{Claim: stint.Claim{Key: key, Policy: k.policy, Permits: n}}
		return s.decideOne(&op, l, now), nil
	}
	var out stint.Outcome
	l.applyWords(algorithm.Take, &t.slots[at].words, now, n, &out)
	due := t.due()
	t.mu.Unlock()
	if due {
		s.sweepNext(now)
	}
	d.Allowed, d.Limit, d.Remaining, d.At = out.Allowed, out.Limit, out.Remaining, now
	d.RetryAfter, d.ResetAfter, d.Delay = out.RetryAfter, out.ResetAfter, out.Delay
	return d, nil
}
