package enforce

import (
	"context"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/internal/waitqueue"
	"github.com/stint-go/stint/rules"
)

// wait decides a request that rules may hold for so long at most: it takes the steps of a waiter by the clock.
func (l *Limiter) wait(ctx context.Context, v *Verdict, longest time.Duration) error {
	now := l.now()
	if end, bounded := ctx.Deadline(); bounded {
		longest = min(longest, time.Until(end))
	}
	w := l.waiter(v, now, longest, nil)
	defer func() {
		if w.queued.Queued() {
			w.leave(l.now())
		}
	}()
	var cause error // for which it pauses
	for {
		step, err := w.Step(now, cause)
		switch step.Do {
		case waitqueue.Done:
			if err != nil || !v.Allowed {
				return err
			}
			return w.hold(ctx)
		case waitqueue.Follow, waitqueue.Pause:
			early := w.turn
			if step.Do == waitqueue.Pause {
				early = nil
			}
			if err := v.pause(ctx, time.Duration(step.Until-l.now()), early); err != nil && cause != nil {
				return prefix.Errorf("%w: %w", err, cause)
			} else if err != nil {
				return err
			}
			cause = nil
		default:
			if cause = l.Steps().Ask(ctx, v, step.Do); cause != nil && (!decide.IsUndecided(cause) || ctx.Err() != nil) {
				return cause
			}
		}
		now = l.now()
	}
}

// patience is how long the least patient of the rules that wait does. The request can't be held
// longer than any of its rules allows.
func (v *Verdict) patience() time.Duration {
	longest := bounds.MaxWaitLimit
	for i := range v.claims {
		if rule := v.claims[i].Rule; rule.OnExceed == rules.Wait {
			longest = min(longest, rule.MaxWait)
		}
	}
	return longest
}

// lateness is by how much the turn of an admitted request comes too late, of which so much time is left; 0 or less when
// it is in time.
func (v *Verdict) lateness(left time.Duration) time.Duration {
	if !v.Allowed || v.Decision.Delay <= 0 {
		return 0
	}
	return v.Decision.Delay - left
}

// takeNow decides at once by rules of which none waits. A turn that comes after the context's
// deadline is not taken, unless others take turns between the look and the taking: then it stays
// taken. Of a caller that can't wait it is not known how long it would, so that it is to come
// back when the turn would have come.
func (l *Limiter) takeNow(ctx context.Context, v *Verdict) error {
	deadline, bounded := ctx.Deadline()
	if bounded && v.hasTurns() {
		// While the store is unreachable there is no look, and the failure policy decides.
		switch err := l.Steps().Ask(ctx, v, waitqueue.Peek); {
		case err != nil && (!decide.IsUndecided(err) || ctx.Err() != nil):
			return err
		case err == nil && v.lateness(time.Until(deadline)) > 0:
			v.denyLate(v.Decision.Delay)
			return l.Steps().Ask(ctx, v, waitqueue.Shadow)
		}
	}
	if err := l.Steps().Ask(ctx, v, waitqueue.Take); err != nil {
		return err
	}
	if bounded && v.lateness(time.Until(deadline)) > 0 {
		v.denyLate(v.Decision.Delay)
	}
	return nil
}

// denyLate makes an admission whose turn comes too late a denial for so long, by the limit whose turn
// is last.
func (v *Verdict) denyLate(retry time.Duration) {
	v.Turn = v.Decision.Delay
	slowest := int16(0)
	for i := range v.limits() {
		if v.each[i].Delay > v.each[slowest].Delay {
			slowest = int16(i)
		}
	}
	v.deny(slowest, retry)
}

// deny makes an admission that must not be used a denial by a limit, counted over all claims. The
// decision then describes that limit, as those who are denied are to be told what to wait for.
func (v *Verdict) deny(index int16, retry time.Duration) {
	o := &v.each[index]
	v.Allowed, v.Via = false, ""
	v.Decision.Allowed, v.Decision.RetryAfter, v.Decision.Delay = false, retry, 0
	v.Decision.Limit, v.Decision.Remaining, v.Decision.ResetAfter = o.Limit, o.Remaining, o.ResetAfter
	v.decideBy(index)
}

// limits is how many limits decide.
func (v *Verdict) limits() int {
	n := 0
	for i := range v.claims {
		n += v.claims[i].Claim.Policy.Len()
	}
	return n
}

// hold keeps an admitted request until its turn. Where a failure policy gave the turn, without
// having been looked at before, it may come too late: then it is lost, and the request denied. The
// delay is taken off the decision, as whoever gets it must not hold the request once more.
func (w *waiter) hold(ctx context.Context) error {
	v := w.verdict
	if v.Decision.Degraded {
		if late := v.lateness(w.left(w.limiter.now())); late > 0 {
			v.denyLate(late)
			return nil
		}
	}
	err := v.pause(ctx, v.Decision.Delay, nil)
	v.Decision.Delay = 0
	return err
}

// mayWait reports whether all that deny are rules that wait. A single rule that rejects ends the
// waiting, whatever the others would do.
func (v *Verdict) mayWait() bool {
	if v.Decision.RetryAfter == stint.Never {
		return false
	}
	for r := range v.byRule() {
		if r.claims[0].Rule.OnExceed != rules.Wait && !v.decisionOf(r).Allowed {
			return false
		}
	}
	return true
}

// hasTurns reports whether a limit gives out turns.
func (v *Verdict) hasTurns() bool {
	for i := range v.claims {
		policy := v.claims[i].Claim.Policy
		for j := range policy.Len() {
			if policy.Limit(j).Algorithm == stint.AlgorithmLeakyBucket {
				return true
			}
		}
	}
	return false
}

// pause holds the request, unless its turn comes early. Held sums up all pauses of a request.
func (v *Verdict) pause(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	if d <= 0 {
		return ctx.Err()
	}
	if v.OnHold != nil {
		v.OnHold()
	}
	begin := time.Now()
	defer func() { v.Held += time.Since(begin) }()
	return sleep.Until(ctx, d, early)
}

// A client is one that a rule counts, with the class of its requests: those of a class that leaves less
// to others don't wait behind those that leave more.
type client struct{ rule, key, class string }

// waitQueues are the queues of the clients that have requests waiting, of each rule its own. The
// zero value has none. One mutex guards all queues; it is never held while a store is asked.
type waitQueues struct {
	mu     sync.Mutex
	queues waitqueue.Queues[client]
}

// now is the time in the queues. It begins at 1, as 0 stands for no time in a position.
func (l *Limiter) now() int64 { return int64(time.Since(l.begun)) + 1 }
