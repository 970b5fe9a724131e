package failover

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint"
)

// decideLocally decides the claims whose mode is Local by this process's shares. The
// others admit.
func (s *Store) decideLocally(ctx context.Context, op *stint.Op, modes uint8) (stint.Decision, error) {
	local, whole, err := s.localOp(op)
	if err != nil {
		return stint.Decision{}, err
	}
	if whole = whole && op.Each == nil && modes == modesOf(Local); !whole {
		local.Each = make([]stint.Outcome, local.Limits())
	}
	d, err := s.config.Local.Decide(ctx, local)
	if err != nil {
		return stint.Decision{}, err
	}
	if !whole {
		d = s.join(op, local.Each, d.At)
	}
	return degraded(d), nil
}

// localOp is an operation on this process's shares of the claims whose mode is Local. It reports whether each share can
// admit what is asked of it.
func (s *Store) localOp(op *stint.Op) (local stint.Op, fits bool, err error) {
	now := time.Now()
	local, fits = stint.Op{Verb: op.Verb, Hold: op.Hold}, true
	claims := make([]stint.Claim, 0, 4)
	for i := range 1 + len(op.And) {
		claim := *claimAt(op, i)
		p := s.plan(claim.Policy)
		if p.mode != Local {
			continue
		}
		share, err := p.shareOf(s.instances.highestWithin(now, p.life))
		if err != nil {
			return local, false, err
		}
		fits = fits && claim.Permits <= share.least
		claim.Policy = share.policy
		claims = append(claims, claim)
	}
	local.Claim = claims[0]
	if len(claims) > 1 {
		local.And = claims[1:]
	}
	return local, fits, nil
}

// endLocally ends a hold of this process's own, that was reserved while the store was unreachable, so that its places are
// free. Of every other hold it is not known whether the store has ended it.
func (s *Store) endLocally(ctx context.Context, op *stint.Op, cause error) (stint.Decision, error) {
	ends := op.Verb == stint.Commit || op.Verb == stint.Cancel
	if !ends || s.modes(op)&modesOf(Local) == 0 {
		return stint.Decision{}, unavailable(cause)
	}
	local, _, err := s.localOp(op)
	if err != nil {
		return stint.Decision{}, err
	}
	h := *op.Hold
	h.ExpiresAt = 0 // by which the store would be charged for one that it does not know
	local.Hold = &h
	d, err := s.config.Local.Decide(ctx, local)
	switch {
	case errors.Is(err, stint.ErrResolved), errors.Is(err, stint.ErrOtherClaims):
		return d, err
	case err != nil:
		return d, unavailable(cause)
	}
	h.ExpiresAt = op.Hold.ExpiresAt
	*op.Hold = h
	return degraded(d), nil
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
				if o := &next[j]; o.RetryAfter == stint.Never && claim.Policy.Limit(j).Takes(claim.Permits) <= claim.Policy.Limit(j).Capacity {
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

// resetLocally clears the shares of an operation's clients, once the store has cleared their states.
func (s *Store) resetLocally(ctx context.Context, op *stint.Op) error {
	if op.Verb != stint.Reset || s.config.Local == nil {
		return nil
	}
	_, err := s.config.Local.Decide(context.WithoutCancel(ctx), stint.Op{Verb: stint.Reset, Claim: op.Claim, And: op.And})
	return err
}
