package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/watchdog"
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

// noteAnswer notes that the store decided about a key of the shard. What all callers share is written when it changes.
func (sh *shard) noteAnswer() {
	if !sh.answered.Load() {
		sh.answered.Store(true)
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
	case decide.IsFault(err):
		return invalidOp
	case turnedAway(ctx) != nil:
		return overloaded
	case ended != nil:
		return callerLeft
	case errors.Is(err, stint.ErrOverloaded):
		return overloaded
	default:
		return storeFailed
	}
}

// turnedAway is why a caller was turned away for want of time before its call, which then comes with a context that has
// ended; nil if it was not.
func turnedAway(ctx context.Context) error {
	if err := context.Cause(ctx); errors.Is(err, stint.ErrOverloaded) {
		return err
	}
	return nil
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
		err = cmp.Or(turnedAway(ctx), err) // which says more than what the store found
		if down := s.downFor(&op); down != nil {
			return s.fallback(ctx, op, down.err)
		}
		s.counts.overloaded.Add(1)
		if s.admitsOverload(op.Verb) {
			return s.fallback(ctx, op, err)
		}
		clear(op.Each)
		return stint.Decision{}, err
	case storeFailed:
	}
	s.counts.failure(err)
	return s.fallback(ctx, op, err)
}

// decide has the wrapped store decide. A store that does not find out by itself when it can't be reached is watched by
// its calls.
func (s *Store) decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if s.watchdog == nil {
		return s.wrapped.Decide(ctx, op)
	}
	call := s.begin()
	d, err := s.wrapped.Decide(ctx, op)
	if op.Policy == s.probing && errors.Is(err, stint.ErrInvalid) && !errors.Is(err, stint.ErrUnavailable) {
		err = nil // it is there: a service has policies of its own, this one not among them
	}
	how, err := s.classify(ctx, call, op.Timeout, d.Source, err)
	s.report(call, how, err)
	return d, err
}

// decideAll is decide for several operations. The store has answered if it answered any of them; else the worst counts.
func (s *Store) decideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	if s.watchdog == nil {
		s.wrapped.DecideAll(ctx, ops, results)
		return
	}
	call := s.begin()
	s.wrapped.DecideAll(ctx, ops, results)
	var how callEnd
	var cause error
	for i := range ops {
		r := &results[i]
		var one callEnd
		if one, r.Err = s.classify(ctx, call, decide.LeastTimeout(ops), r.Decision.Source, r.Err); one > how {
			how, cause = one, r.Err
		}
	}
	s.report(call, how, cause)
}

// begin has the watchdog time a call. Calls are reused, as each operation has one.
func (s *Store) begin() *watchdog.Call {
	call, reused := s.calls.Get().(*watchdog.Call)
	if !reused {
		call = new(watchdog.Call)
	}
	s.watchdog.Begin(call)
	return call
}

// A callEnd is how a call ended, for the watchdog; of several the greatest counts.
type callEnd uint8

const (
	neutral   callEnd = iota // the store was not needed
	refused                  // it failed
	abandoned                // nobody waited for it any longer
	answered                 // it answered
)

// classify says how a call ended that the watchdog has not been told of yet, and which error callers get. If
// this process was awake for less than half of the timeout that has passed, it is this process's fault.
func (s *Store) classify(
	ctx context.Context, call *watchdog.Call, timeout time.Duration, source stint.Source, err error,
) (callEnd, error) {
	switch {
	case err == nil && source == stint.SourceStore:
		return answered, nil
	case err == nil, errors.Is(err, stint.ErrInvalid):
		return neutral, err
	case timedOut(err), ctx.Err() != nil:
		if ctx.Err() == nil && 2*s.watchdog.Age(call) < timeout {
			err = fmt.Errorf("%w: %w", stint.ErrOverloaded, errUnread)
		}
		return abandoned, err
	case errors.Is(err, stint.ErrOverloaded):
		return answered, err
	default:
		return refused, err
	}
}

// errUnread is that the Timeout has passed for want of a processor.
var errUnread = watchdog.Late(errors.New("the process had no time to read the store's answer"))

// report tells the watchdog how a call ended, and keeps the call for another one. A call for which the
// store was not needed is forgotten.
func (s *Store) report(call *watchdog.Call, how callEnd, cause error) {
	switch how {
	case answered:
		s.watchdog.Answered(call)
	case refused:
		s.watchdog.Refused(call, cause)
	case abandoned:
		s.watchdog.Abandoned(call)
	case neutral:
		s.watchdog.Forget(call)
	}
	s.calls.Put(call)
}

// resetLocally clears the shares of an operation's clients, once the store has cleared their states.
func (s *Store) resetLocally(ctx context.Context, op *stint.Op) error {
	if op.Verb != stint.VerbReset || s.config.Local == nil {
		return nil
	}
	_, err := s.config.Local.Decide(
		context.WithoutCancel(ctx), stint.Op{Verb: stint.VerbReset, Claim: op.Claim, And: op.And, Extra: op.Extra},
	)
	return err
}

// shard is the part of the store that decides about a key.
func (s *Store) shard(key string) *shard {
	if s.shardOf == nil {
		return s.shards[0]
	}
	return s.shards[s.shardOf(key)]
}

// A plan is what holds for a policy while the store is unreachable. It is kept with the
// policy.
type plan struct {
	policy   *stint.Policy
	mode     Mode
	timeout  time.Duration
	fault    error                 // what is wrong with the policy's options, if anything
	least    int16                 // the limit of the least capacity, of those that don't count denials if there are any
	capacity int64                 // that one's
	life     time.Duration         // the longest for which a permit counts
	share    atomic.Pointer[share] // the one last used
}

// plan returns the policy's plan.
func (s *Store) plan(policy *stint.Policy) *plan {
	return policy.Prepared(&s.owner, func() any { return s.newPlan(policy) }).(*plan)
}

// newPlan prepares what a policy's answers need when the store is away: the mode, the timeout, the
// limit with the least capacity, whose figures such an answer has, and for how long a state can
// matter.
func (s *Store) newPlan(policy *stint.Policy) *plan {
	p := &plan{policy: policy, mode: s.config.Mode, timeout: s.config.Timeout}
	for i := range policy.Len() {
		limit, least := policy.Limit(i), policy.Limit(int(p.least))
		if limit.Denials == least.Denials && limit.Capacity < least.Capacity || least.Denials && !limit.Denials {
			p.least = int16(i)
		}
		p.life = max(p.life, longestLife(limit))
	}
	p.capacity = policy.Limit(int(p.least)).Capacity
	if s.config.ForPolicy == nil {
		return p
	}
	options, ok := s.config.ForPolicy(policy)
	if !ok {
		return p
	}
	p.mode = options.Mode
	if options.Timeout != 0 {
		p.timeout = options.Timeout
	}
	switch {
	case options.Mode > Local:
		p.fault = stint.Invalid("ForPolicy: Mode", uint8(options.Mode), "open, closed or local")
	case options.Mode == Local && s.config.Local == nil:
		p.fault = stint.Invalid("ForPolicy: Mode", options.Mode, "open or closed, as there is no local store")
	case options.Mode == Local && !s.counted:
		p.fault = stint.Invalid("ForPolicy: Mode", options.Mode, "open or closed, as nobody counts the processes")
	case options.Timeout < 0:
		p.fault = stint.Invalid("ForPolicy: Timeout", options.Timeout, "0 or more")
	}
	return p
}

// timeout is the least of those of the operation's policies. The error is what is
// wrong with a policy's options.
func (s *Store) timeout(op *stint.Op) (time.Duration, error) {
	if s.config.ForPolicy == nil {
		return s.config.Timeout, nil
	}
	timeout, first := s.config.Timeout, true
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		if claim.Policy == nil {
			continue // which is refused
		}
		p := s.plan(claim.Policy)
		if p.fault != nil {
			return timeout, p.fault
		}
		if first || p.timeout < timeout {
			timeout, first = p.timeout, false
		}
	}
	return timeout, nil
}
