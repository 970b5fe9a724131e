package failover

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// maxTouched bounds the clients whose local spending is known.
const maxTouched = 65536

// pendingCharges is what was decided locally and is to be charged.
type pendingCharges struct {
	store *Store
	// deciding is held for reading by local decisions, and for writing while a client's
	// account is taken out of the local store, or its share renewed, so that nothing falls in
	// between.
	deciding sync.RWMutex
	// batch is a lock: a goroutine that has filled it holds it while it takes clients out and
	// charges them.
	batch chan struct{}

	mu       sync.Mutex
	touched  map[client]struct{}
	charging bool // whether a goroutine charges
}

// A client of a policy.
type client struct {
	plan *plan
	key  string
}

// decideLocally decides the claims whose mode is Local by this process's shares. The
// others admit.
func (s *Store) decideLocally(ctx context.Context, op *stint.Op, modes uint8) (stint.Decision, error) {
	now := time.Now()
	whole := op.Each == nil && modes == modesOf(Local) // whether the local store's decision can do
	local := stint.Op{Verb: op.Verb}
	claims, shares := make([]stint.Claim, 0, 4), make([]*share, 0, 4)
	for i := range 1 + len(op.And) {
		claim := *claimAt(op, i)
		p := s.plan(claim.Policy)
		if p.mode != Local {
			continue
		}
		share, err := p.shareOf(s.instances.highestWithin(now, p.life))
		if err != nil {
			return stint.Decision{}, err
		}
		whole = whole && claim.Permits <= share.least
		claim.Policy = share.policy
		claims, shares = append(claims, claim), append(shares, share)
	}
	local.Claim = claims[0]
	if len(claims) > 1 {
		local.And = claims[1:]
	}
	if !whole {
		local.Each = make([]stint.Outcome, local.Limits())
	}
	s.pending.deciding.RLock()
	d, err := s.config.Local.Decide(ctx, local)
	if err == nil {
		s.pending.account(claims, shares, d.Allowed)
	}
	s.pending.deciding.RUnlock()
	if err != nil {
		return stint.Decision{}, err
	}
	s.pending.remember(op, d.Allowed)
	if !whole {
		d = s.join(op, local.Each, d.At)
	}
	return degraded(d), nil
}

// account counts what was decided locally, to be charged.
func (l *pendingCharges) account(claims []stint.Claim, shares []*share, allowed bool) {
	for i, claim := range claims {
		if claim.Policy = shares[i].account; !allowed {
			claim.Policy = shares[i].denied
		}
		if claim.Policy == nil {
			continue
		}
		if _, err := l.store.config.Local.Decide(context.Background(), stint.Op{Verb: stint.Settle, Claim: claim}); err != nil {
			l.store.counts.dropped.Add(1)
		}
	}
}

// join makes the decision of an operation of which some claims were decided locally.
func (s *Store) join(op *stint.Op, locally []stint.Outcome, at stint.Instant) stint.Decision {
	outs := outcomes(op)
	next := outs
	for i := range 1 + len(op.And) {
		claim := claimAt(op, i)
		n := claim.Policy.Len()
		if s.plan(claim.Policy).mode == Local {
			copy(next[:n], locally)
			locally = locally[n:]
			for j := range n {
				if o := &next[j]; o.RetryAfter == stint.Never && claim.Permits <= claim.Policy.Limit(j).Capacity {
					o.RetryAfter = retryUnreachable
				}
			}
		} else {
			untouched(next, claim)
		}
		next = next[n:]
	}
	return stint.Combine(outs, at)
}

// remember notes which clients' local states an operation may have changed.
func (l *pendingCharges) remember(op *stint.Op, allowed bool) {
	healthy := false
	l.mu.Lock()
	for i := range 1 + len(op.And) {
		claim := claimAt(op, i)
		p := l.store.plan(claim.Policy)
		if p.mode != Local || !allowed && !p.counts {
			continue
		}
		if _, known := l.touched[client{p, claim.Key}]; !known {
			if len(l.touched) >= maxTouched {
				l.store.counts.dropped.Add(1)
				continue
			}
			l.touched[client{p, strings.Clone(claim.Key)}] = struct{}{}
		}
		healthy = healthy || l.store.shard(claim.Key).healthy()
	}
	l.mu.Unlock()
	if healthy {
		l.startCharging() // the store is back, or others were answered meanwhile
	}
}
