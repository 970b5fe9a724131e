package failover

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
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

// isLocal reports whether a claim of an operation is decided locally: by its policy's mode, or, if it is of a way,
// because the mode of one of them is Local, since ways are tried together.
func (s *Store) isLocal(op *stint.Op, claim *stint.Claim, way uint16) bool {
	return s.plan(claim.Policy).mode == Local || way != 0 && s.modes(op)&modesOf(Local) != 0
}

// localOp is an operation on this process's shares of the claims whose mode is Local. It reports whether each share can
// admit what is asked of it.
func (s *Store) localOp(op *stint.Op) (local stint.Op, fits bool, err error) {
	now := time.Now()
	local, fits = stint.Op{Verb: op.Verb}, true
	shared := func(claim stint.Claim) stint.Claim {
		p := s.plan(claim.Policy)
		share, fault := p.shareOf(s.instances.highestWithin(now, p.life))
		if fault != nil {
			err = fault
			return claim
		}
		claim.Policy, claim.Keep = share.policy, claim.Keep/int64(share.n)
		fits = fits && claim.Permits <= share.least-claim.Keep
		return claim
	}
	claims := make([]stint.Claim, 0, 4)
	for nth := range op.Len() {
		claim, way := op.NthClaim(nth)
		if way == 0 && s.isLocal(op, claim, way) {
			claims = append(claims, shared(*claim))
		}
	}
	if len(claims) > 0 {
		local.Claim = claims[0]
	}
	if len(claims) > 1 {
		local.And = claims[1:]
	}
	if op.Extra != nil {
		local.Extra = &stint.Extra{Hold: op.Extra.Hold}
	}
	if op.Groups() != nil && s.modes(op)&modesOf(Local) != 0 {
		local.Extra.Groups = eachClaim(op.Groups(), shared)
	}
	return local, fits, err
}

// eachClaim are groups with what a function makes of each claim.
func eachClaim(groups [][]stint.Way, of func(stint.Claim) stint.Claim) [][]stint.Way {
	list := make([][]stint.Way, len(groups))
	for g, group := range groups {
		list[g] = make([]stint.Way, len(group))
		for w, way := range group {
			for _, claim := range way {
				list[g][w] = append(list[g][w], of(claim))
			}
		}
	}
	return list
}

// endLocally ends what a hold has of this process's shares, so that its places are free. The store
// may have the hold, too, and is charged when the end comes again: so it fails.
func (s *Store) endLocally(ctx context.Context, op *stint.Op, cause error) error {
	ends := op.Verb == stint.VerbCommit || op.Verb == stint.VerbCancel
	if !ends || s.modes(op)&modesOf(Local) == 0 {
		return unavailable(cause)
	}
	local, _, err := s.localOp(op)
	if err != nil {
		return err
	}
	h := *op.Hold()
	h.ExpiresAt = 0 // by which a share would be charged for a hold that it does not know
	local.Extra.Hold = &h
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
	for nth := range op.Len() {
		claim, way := op.NthClaim(nth)
		n := claim.Policy.Len()
		if s.isLocal(op, claim, way) {
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
	return decide.Of(op, outs, at)
}
