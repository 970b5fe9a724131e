package failover

import (
	"cmp"
	"context"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/decide"
)

// retryUnreachable is when a cost above this process's share may be asked for again.
const retryUnreachable = time.Second

// fallback answers an operation that the store can't decide because of cause. Of a caller that was turned away it
// depends on AdmitOnOverload, also while the store is unreachable.
func (s *Store) fallback(ctx context.Context, op stint.Op, cause error) (stint.Decision, error) {
	if err := turnedAway(ctx); err != nil {
		if !s.admitsOverload(op.Verb) {
			clear(op.Each)
			return stint.Decision{}, err
		}
		ctx = context.WithoutCancel(ctx)
	}
	d, err := s.byMode(ctx, &op, cause)
	if err != nil {
		clear(op.Each)
	}
	return d, err
}

// byMode decides by the modes of an operation's policies. The modes of an operation over several
// policies count in this order: Closed, Local, Open. An operation that only looks or ends something
// is not answered.
func (s *Store) byMode(ctx context.Context, op *stint.Op, cause error) (d stint.Decision, err error) {
	if err = op.Validate(); err == nil {
		_, err = s.timeout(op)
	}
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return d, err
	}
	if !takes(op.Verb) {
		return stint.Decision{}, s.endLocally(ctx, op, cause)
	}
	if h := op.Hold(); h != nil {
		// The store does not know the hold: its commit is charged late.
		*h = stint.HoldOp{Hold: h.Hold}
		h.ExpiresAt = stint.Instant(time.Now().UnixMicro()).Add(bounds.HoldTTL(h.TTL))
	}
	modes := s.modes(op)
	switch {
	case modes&modesOf(Closed) != 0:
		s.counts.closed.Add(1)
		s.answered(op, false, cause)
		return d, unavailable(cause)
	case modes&modesOf(Local) != 0:
		if d, err = s.decideLocally(ctx, op, modes); err == nil {
			s.counts.local.Add(1)
			s.answered(op, d.Allowed, cause)
		}
		return d, err
	}
	s.counts.open.Add(1)
	at := stint.Instant(time.Now().UnixMicro())
	if op.And == nil && op.Groups() == nil && op.Each == nil && op.Keep == 0 {
		if p := s.plan(op.Policy); op.Permits <= p.capacity {
			s.answered(op, true, cause)
			return degraded(stint.Decision{Allowed: true, Index: p.least, Limit: p.capacity, Remaining: p.capacity, At: at}), nil
		}
	}
	outs := outcomes(op)
	next := outs
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		untouched(next, claim)
		next = next[claim.Policy.Len():]
	}
	d = degraded(decide.Of(op, outs, at))
	s.answered(op, d.Allowed, cause)
	return d, nil
}

// answered tells that a mode answered.
func (s *Store) answered(op *stint.Op, allowed bool, cause error) {
	if tell := s.config.Answered; tell != nil {
		tell(op.First().Key, allowed, cause)
	}
}

// modes is the set of the modes of an operation's policies. A claim that may be left uncharged denies nothing, so that
// it does not close either.
func (s *Store) modes(op *stint.Op) (modes uint8) {
	for nth := range op.Len() {
		claim, way := op.NthClaim(nth)
		if mode := s.plan(claim.Policy).mode; mode != Closed || !decide.IsOptional(way) {
			modes |= modesOf(mode)
		}
	}
	return modes
}

// modesOf is a set of one mode.
func modesOf(m Mode) uint8 { return 1 << m }

// degraded marks a decision.
func degraded(d stint.Decision) stint.Decision {
	d.Degraded, d.Source = true, stint.SourceFailurePolicy
	return d
}

// outcomes is room for an operation's outcomes: the caller's, if it wants them.
func outcomes(op *stint.Op) []stint.Outcome {
	if op.Each != nil {
		return op.Each[:op.Limits()]
	}
	return make([]stint.Outcome, op.Limits())
}

// takes reports whether a verb asks for permits, which is what the modes answer.
func takes(verb stint.Verb) bool { return verb <= stint.VerbTry || verb == stint.VerbReserve }

// admitsOverload reports whether the mode answers a verb that this process had no time for.
func (s *Store) admitsOverload(verb stint.Verb) bool { return s.config.AdmitOnOverload && takes(verb) }

// untouched tells of limits that admit whatever they can ever admit.
func untouched(outs []stint.Outcome, claim *stint.Claim) {
	for i := range claim.Policy.Len() {
		limit := claim.Policy.Limit(i)
		room := limit.Capacity - claim.Keep
		outs[i] = stint.Outcome{
			Allowed: limit.Takes(claim.Permits) <= room, Denials: limit.Denials, Limit: limit.Capacity, Remaining: max(0, room),
		}
		if !outs[i].Allowed {
			outs[i].RetryAfter = stint.Never
		}
	}
}
