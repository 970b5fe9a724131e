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

// isLocal reports whether a claim of an operation is decided locally: by its policy's mode, or
// because the mode of one of its ways is Local, since ways are tried together.
func (s *Store) isLocal(op *stint.Op, claim *stint.Claim) bool {
	return s.plan(claim.Policy).mode == Local || claim.Way != stint.Must && s.modes(op)&modesOf(Local) != 0
}

// localOp is an operation on this process's shares of the claims whose mode is Local. It reports whether each share can
// admit what is asked of it.
func (s *Store) localOp(op *stint.Op) (local stint.Op, fits bool, err error) {
	now := time.Now()
	local, fits = stint.Op{Verb: op.Verb, Hold: op.Hold}, true
	claims := make([]stint.Claim, 0, 4)
	for i := range op.Claims() {
		claim := *op.NthClaim(i)
		if !s.isLocal(op, &claim) {
			continue
		}
		p := s.plan(claim.Policy)
		share, err := p.shareOf(s.instances.highestWithin(now, p.life))
		if err != nil {
			return local, false, err
		}
		claim.Policy, claim.Keep = share.policy, claim.Keep/int64(share.n)
		fits = fits && claim.Permits <= share.least-claim.Keep
		claims = append(claims, claim)
	}
	local.Claim = claims[0]
	if len(claims) > 1 {
		local.And = claims[1:]
	}
	return local, fits, nil
}

// endLocally ends what a hold has of this process's shares, so that its places are free. The store
// may have the hold, too, and is charged when the end comes again: so it fails.
func (s *Store) endLocally(ctx context.Context, op *stint.Op, cause error) error {
	ends := op.Verb == stint.Commit || op.Verb == stint.Cancel
	if !ends || s.modes(op)&modesOf(Local) == 0 {
		return unavailable(cause)
	}
	local, _, err := s.localOp(op)
	if err != nil {
		return err
	}
	h := *op.Hold
	h.ExpiresAt = 0 // by which a share would be charged for a hold that it does not know
	local.Hold = &h
	_, err = s.config.Local.Decide(ctx, local)
	if errors.Is(err, stint.ErrResolved) || errors.Is(err, stint.ErrOtherClaims) {
		return err
	}
	return unavailable(cause)
}

// join makes the decision of an operation of which some claims were decided locally.
func (s *Store) join(op *stint.Op, locally []stint.Outcome, at stint.Instant) stint.Decision {
	outs := outcomes(op)
	next := outs
	for i := range op.Claims() {
		claim := op.NthClaim(i)
		n := claim.Policy.Len()
		if s.isLocal(op, claim) {
			copy(next[:n], locally)
			locally = locally[n:]
			for j := range n {
				if o := &next[j]; o.RetryAfter == stint.Never &&
					claim.Policy.Limit(j).Takes(claim.Permits) <= claim.Policy.Limit(j).Capacity-claim.Keep {
					o.RetryAfter = retryUnreachable
				}
			}
		} else {
			untouched(next, claim)
		}
		next = next[n:]
	}
	return op.Combine(outs, at)
}

// resetLocally clears the shares of an operation's clients, once the store has cleared their states.
func (s *Store) resetLocally(ctx context.Context, op *stint.Op) error {
	if op.Verb != stint.Reset || s.config.Local == nil {
		return nil
	}
	_, err := s.config.Local.Decide(context.WithoutCancel(ctx), stint.Op{Verb: stint.Reset, Claim: op.Claim, And: op.And})
	return err
}
