package redisstore

import (
	"context"

	"github.com/stint-go/stint"
)

// taker is the short way to take of one policy: what that needs is looked up once, and a
// lease or a remembered denial answers without an operation.
type taker struct {
	store  *Store
	policy *stint.Policy
	limit  *limit // with leases, or nil
	cached bool   // whether denials may be remembered
}

// Bind implements [stint.Binder].
func (s *Store) Bind(policy *stint.Policy) stint.Taker {
	op := stint.Op{Claim: stint.Claim{Policy: policy}}
	return &taker{store: s, policy: policy, limit: s.leasable(&op), cached: s.cacheable(&op)}
}

// Take implements [stint.Taker].
func (t *taker) Take(ctx context.Context, key string, n int64) (d stint.Decision, err error) {
	op := stint.Op{Claim: stint.Claim{Key: key, Policy: t.policy, Permits: n}}
	if err := t.store.check(ctx, &op); err != nil {
		return d, err
	}
	if t.limit != nil {
		d, err = t.lease(ctx, &op)
	} else {
		d, err = t.ask(ctx, &op)
	}
	return marked(&op, d), err
}

func (t *taker) lease(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	leases := t.store.leases
	if l := leases.find(t.limit, op.Key); l != nil {
		if _, d, ok := l.spend(op.Permits, leases.clock()); ok {
			return d, nil
		}
	}
	return leases.decide(ctx, op, t.limit)
}

func (t *taker) ask(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	if c := t.store.denials; t.cached && c.entries.Load() > 0 {
		if d, denied := c.claim(&op.Claim, 0, c.now(), nil); denied {
			return d, nil
		}
	}
	return t.store.lane(op).decideOne(ctx, op)
}
