package redisstore

import (
	"context"

	"github.com/stint-go/stint"
)

// taker is the short way to take of one policy: what that needs is looked up once, and a
// lease or a remembered denial answers without an operation.
type boundPolicy struct {
	store  *Store
	policy *stint.Policy
	limit  *limit // with leases, or nil
	cached bool   // whether denials may be remembered
}

// Bind implements [stint.Binder].
func (s *Store) Bind(policy *stint.Policy) stint.Taker {
	op := stint.Op{Claim: stint.Claim{Policy: policy}}
	return &boundPolicy{store: s, policy: policy, limit: s.leasable(&op), cached: s.denialCacheable(&op)}
}

// Take implements [stint.Taker].
func (p *boundPolicy) Take(ctx context.Context, key string, n int64) (d stint.Decision, err error) {
	op := stint.Op{Claim: stint.Claim{Key: key, Policy: p.policy, Permits: n}}
	if err := p.store.check(ctx, &op); err != nil {
		return d, err
	}
	if p.limit != nil {
		d, err = p.lease(ctx, &op)
	} else {
		d, err = p.ask(ctx, &op)
	}
	return marked(&op, d), err
}

func (p *boundPolicy) lease(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	leases := p.store.leases
	if l := leases.find(p.limit, op.Key); l != nil {
		if _, d, ok := l.spend(op.Permits, leases.clock()); ok {
			return d, nil
		}
	}
	return leases.decide(ctx, op, p.limit)
}

func (p *boundPolicy) ask(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	if c := p.store.denials; p.cached && c.entries.Load() > 0 {
		if d, denied := c.claim(&op.Claim, 0, c.now(), nil); denied {
			return d, nil
		}
	}
	return p.store.batcherOf(op).decideOne(ctx, op)
}
