package failover

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint"
)

// Decide implements [stint.Store]. It costs, while the store can be reached, a load of an atomic
// for each claim.
func (s *Store) Decide(ctx context.Context, op stint.Op) (d stint.Decision, err error) {
	timeout, err := s.timeout(&op)
	if err != nil {
		return d, err
	}
	if down := s.downFor(&op); down != nil {
		return s.fallback(ctx, op, down.err)
	}
	limitTime(&op, timeout)
	d, err = s.decide(ctx, op)
	if err == nil {
		s.noteAnswer(&op, &d)
		return d, s.resetLocally(ctx, &op)
	}
	return s.answer(ctx, op, err)
}

// noteAnswer notes which shards the store has answered by. An answer that needed no store, as of a denial cache, says
// nothing.
func (s *Store) noteAnswer(op *stint.Op, d *stint.Decision) {
	if d.Source != stint.SourceStore {
		return
	}
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		s.shard(claim.Key).noteAnswer()
	}
}

// Take implements [stint.Store]. A store that watches itself has the timeout from Watch.
func (s *Store) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	op := func() stint.Op { return stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}} }
	if s.watchdog != nil || !s.usual(policy) {
		return s.Decide(ctx, op())
	}
	sh := s.shard(key)
	if sh.down.Load() != nil {
		return s.Decide(ctx, op())
	}
	d, err := s.wrapped.Take(ctx, policy, key, n)
	if err != nil {
		return s.answer(ctx, op(), err)
	}
	if d.Source == stint.SourceStore {
		sh.noteAnswer()
	}
	return d, nil
}

// usual reports whether a policy has no timeout of its own, and nothing is wrong with it.
func (s *Store) usual(policy *stint.Policy) bool {
	if s.config.ForPolicy == nil || policy == nil {
		return true
	}
	p := s.plan(policy)
	return p.fault == nil && p.timeout == s.config.Timeout
}

// DecideAll implements [stint.Store]. Operations whose shard is unreachable are answered at once,
// the others go to the store in order, in one call with the least of their timeouts. Without shards
// and modes of policies, which is the usual case, the operations are copied once and sent; the copy
// is needed since timeouts are written into it.
func (s *Store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	if s.shardOf == nil && s.config.ForPolicy == nil && s.shards[0].down.Load() == nil {
		up, _ := s.copies.Get().(*[]stint.Op)
		if up == nil {
			up = new([]stint.Op)
		}
		*up = append((*up)[:0], ops...)
		s.send(ctx, s.config.Timeout, *up, results)
		clear(*up)
		s.copies.Put(up)
		return
	}
	var up []stint.Op
	var places []int
	least := time.Duration(-1)
	for i := range ops {
		timeout, err := s.timeout(&ops[i])
		if err != nil {
			results[i] = stint.Result{Err: err}
			continue
		}
		if down := s.downFor(&ops[i]); down != nil {
			d, err := s.fallback(ctx, ops[i], down.err)
			results[i] = stint.Result{Decision: d, Err: err}
			continue
		}
		if least < 0 || timeout < least {
			least = timeout
		}
		up, places = append(up, ops[i]), append(places, i)
	}
	answers := make([]stint.Result, len(up))
	s.send(ctx, least, up, answers)
	for i, place := range places {
		results[place] = answers[i]
	}
}

// send carries out operations, which are a copy of the caller's, in one call of the store. What the store failed to
// decide is answered by the modes.
func (s *Store) send(ctx context.Context, timeout time.Duration, ops []stint.Op, results []stint.Result) {
	if len(ops) == 0 {
		return
	}
	limitTime(&ops[0], timeout) // the least counts for all
	s.decideAll(ctx, ops, results)
	for i := range ops {
		if r := &results[i]; r.Err != nil {
			r.Decision, r.Err = s.answer(ctx, ops[i], r.Err)
		} else {
			s.noteAnswer(&ops[i], &r.Decision)
			r.Err = s.resetLocally(ctx, &ops[i])
		}
	}
}

// limitTime bounds an operation in time, unless its own timeout is shorter.
func limitTime(op *stint.Op, timeout time.Duration) {
	if op.Timeout == 0 || op.Timeout > timeout {
		op.Timeout = timeout
	}
}

// downFor is the outage of a shard that the operation needs, or nil.
func (s *Store) downFor(op *stint.Op) *outage {
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		if down := s.shard(claim.Key).down.Load(); down != nil {
			return down
		}
	}
	return nil
}

// An origin says whose fault a call's error is. Only the first of them is decided by a mode.
type origin uint8

const (
	storeFailed origin = iota // the store's
	overloaded                // this process's, or the service's that was asked
	invalidOp                 // the operation's, or the hold's that it names
	callerLeft                // the caller's, whose context has ended
)

// originOf says whose fault an error is. A store may find that the caller's deadline has passed before the context says
// so.
func originOf(ctx context.Context, err error) origin {
	ended := ctx.Err()
	if deadline, bounded := ctx.Deadline(); ended == nil && bounded && !time.Now().Before(deadline) {
		ended = context.DeadlineExceeded
	}
	switch {
	case errors.Is(err, stint.ErrInvalid), errors.Is(err, stint.ErrResolved),
		errors.Is(err, stint.ErrOtherClaims), errors.Is(err, stint.ErrUnknownReservation):
		return invalidOp
	case ended != nil && errors.Is(context.Cause(ctx), stint.ErrOverloaded):
		return overloaded
	case ended != nil:
		return callerLeft
	case errors.Is(err, stint.ErrOverloaded):
		return overloaded
	default:
		return storeFailed
	}
}

// answer answers an operation in the store's place, by the origin of its error.
func (s *Store) answer(ctx context.Context, op stint.Op, err error) (stint.Decision, error) {
	switch originOf(ctx, err) {
	case callerLeft:
		if !errors.Is(err, context.DeadlineExceeded) && timedOut(err) {
			err = cmp.Or(ctx.Err(), context.DeadlineExceeded) // the store gave up at the caller's own deadline
		}
		clear(op.Each)
		return stint.Decision{}, err
	case invalidOp:
		clear(op.Each)
		return stint.Decision{}, err
	case overloaded:
		if down := s.downFor(&op); down != nil {
			return s.fallback(ctx, op, down.err)
		}
		s.counts.overloaded.Add(1)
		if s.config.OnOverload == Admit && takes(op.Verb) {
			// A caller that is turned away before its call comes with a context that has ended.
			return s.fallback(context.WithoutCancel(ctx), op, err)
		}
		clear(op.Each)
		return stint.Decision{}, err
	case storeFailed:
	}
	s.counts.failure(err)
	return s.fallback(ctx, op, err)
}
