package redisstore

import (
	"context"

	"github.com/stint-go/stint"
)

// taker is the short way to take of one policy, without an operation when a lease has
// what is asked for.
type taker struct {
	store  *Store
	policy *stint.Policy
	limit  *limit // with leases, or nil
}

// Bind implements [stint.Binder].
func (s *Store) Bind(policy *stint.Policy) stint.Taker {
	t := &taker{store: s, policy: policy}
	t.limit = s.leasable(&stint.Op{Claim: stint.Claim{Policy: policy}})
	return t
}

// Take implements [stint.Taker].
func (t *taker) Take(ctx context.Context, key string, n int64) (stint.Decision, error) {
	if t.limit != nil && n > 0 && ctx.Err() == nil {
		if l := t.store.leases.find(t.limit, key); l != nil {
			if _, d, ok := l.spend(n, t.store.leases.clock()); ok {
				return d, nil
			}
		}
	}
	return t.store.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: t.policy, Permits: n}})
}
