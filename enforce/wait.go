package enforce

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/internal/waitqueue"
	"github.com/stint-go/stint/rules"
)

// defaultWaiters is how many requests of a client wait at once unless its rule says otherwise.
const defaultWaiters = 100

// wait decides a request that rules may hold for so long at most. Each turn of the loop is one
// attempt: wait for those ahead, look whether a turn of a leaky bucket would be in time, try. A Try
// counts no denial, so that limits which count denied requests see only the last one.
func (l *Limiter) wait(ctx context.Context, v *Verdict, longest time.Duration) error {
	deadline := time.Now().Add(min(longest, v.patience()))
	if end, bounded := ctx.Deadline(); bounded && end.Before(deadline) {
		deadline = end
	}
	waiter := l.waiter(v.claims)
	defer waiter.leave()
	again := retries{deadline: deadline}
	for {
		if waiter.behind() != nil {
			begin := time.Now()
			v.onHold()
			in, err := waiter.await(ctx, deadline)
			v.Held += time.Since(begin)
			if err != nil {
				return err
			}
			again.waits = true
			if !in {
				return l.giveUp(ctx, v, waiter, deadline)
			}
		}
		if late, err := l.isLate(ctx, v, deadline, true); err != nil || late {
			return err
		}
		if err := l.decide(ctx, v, stint.VerbTry, false); err != nil {
			if err = again.pause(ctx, v, err); err != nil {
				return err
			}
			continue
		}
		if v.Allowed {
			waiter.leave()
			l.shadow(ctx, v)
			return v.hold(ctx, deadline)
		}
		retry := v.Decision.RetryAfter
		if !v.mayWait() || retry <= 0 || retry > time.Until(deadline) {
			return l.giveUp(ctx, v, waiter, deadline)
		}
		if !waiter.deny(v) {
			return l.giveUp(ctx, v, waiter, deadline)
		}
		if err := v.holdDenied(ctx, waiter); err != nil {
			return err
		}
		again.waits = true
	}
}

// How long a request that waits pauses before it tries again, after the store could not decide: the first time, and at
// most. Half of it, or more, by chance.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// retries are the further tries of a request after the store could not decide. A request that waits already has a place
// in a queue, which it loses for no outage. The first try of another one fails at once: a service whose store is
// away is not to hold all requests.
type retries struct {
	waits    bool
	deadline time.Time
	last     time.Duration
}

// pause returns when the request may try again, or why it may not: the error, or that the context has ended.
func (a *retries) pause(ctx context.Context, v *Verdict, cause error) error {
	if !a.waits || !undecided(cause) || ctx.Err() != nil {
		return cause
	}
	a.last = min(max(2*a.last, firstPause), lastPause)
	d := a.last/2 + rand.N(a.last/2) //nolint:gosec // it spreads requests
	if d > time.Until(a.deadline) {
		return cause
	}
	if err := v.pause(ctx, d); err != nil {
		return prefix.Errorf("%w: %w", err, cause)
	}
	return nil
}

// undecided reports whether the store could not decide, or was not asked for want of time.
func undecided(err error) bool {
	return errors.Is(err, stint.ErrUnavailable) || errors.Is(err, stint.ErrOverloaded)
}

// holdDenied holds a denied request until all of its rules that wait would admit it, in the queues
// of those that don't yet. It may ask again only when no rule that denied it would still deny it,
// each by its own time.
func (v *Verdict) holdDenied(ctx context.Context, w *waiter) error {
	for now := w.limiter.now(); now < w.Until; now = w.limiter.now() {
		if err := v.pause(ctx, time.Duration(w.release(now)-now)); err != nil {
			return err
		}
	}
	return nil
}

// patience is how long the least patient of the rules that wait does. The request can't be held
// longer than any of its rules allows.
func (v *Verdict) patience() time.Duration {
	longest := rules.MaxWaitLimit
	for i := range v.claims {
		if rule := v.claims[i].Rule; rule.OnExceed == rules.Wait {
			longest = min(longest, rule.MaxWait)
		}
	}
	return longest
}

// isLate looks whether the request's turn comes in time where limits give out turns: a turn, once
// taken, is kept. If not, that is the verdict. A turn that has come is in time, however late the
// store was to say so. While the store is unreachable there is no look, and the failure policy
// decides. Of a caller that can't wait it is not known how long it would, so that it is to come
// back when the turn would have come.
func (l *Limiter) isLate(ctx context.Context, v *Verdict, deadline time.Time, waits bool) (bool, error) {
	if !v.hasTurns() {
		return false, nil
	}
	if seen, err := l.preview(ctx, v); err != nil || !seen {
		return false, err
	}
	retry := v.lateness(deadline)
	if retry <= 0 {
		return false, nil
	}
	if !waits {
		retry = v.Decision.Delay
	}
	v.denyLate(retry)
	l.shadow(ctx, v)
	return true, nil
}

// lateness is by how much the turn of an admitted request comes too late, 0 or less when it is in
// time.
func (v *Verdict) lateness(deadline time.Time) time.Duration {
	if !v.Allowed || v.Decision.Delay <= 0 {
		return 0
	}
	return v.Decision.Delay - time.Until(deadline)
}

// takeNow decides at once by rules of which none waits. A turn that comes after the context's
// deadline is not taken, unless others take turns between the look and the taking: then it stays
// taken.
func (l *Limiter) takeNow(ctx context.Context, v *Verdict) error {
	deadline, bounded := ctx.Deadline()
	if bounded {
		if late, err := l.isLate(ctx, v, deadline, false); err != nil || late {
			return err
		}
	}
	if err := l.decide(ctx, v, stint.VerbTake, true); err != nil {
		return err
	}
	if bounded && v.lateness(deadline) > 0 {
		v.denyLate(v.Decision.Delay)
	}
	return nil
}

// preview decides without taking anything. It reports false when the store can't tell. It is a
// Peek: a request that gives up after it has left no trace.
func (l *Limiter) preview(ctx context.Context, v *Verdict) (seen bool, err error) {
	err = l.decide(ctx, v, stint.VerbPeek, false)
	if undecided(err) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
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
func (v *Verdict) hold(ctx context.Context, deadline time.Time) error {
	if late := v.lateness(deadline); v.Decision.Degraded && late > 0 {
		v.denyLate(late)
		return nil
	}
	err := v.pause(ctx, v.Decision.Delay)
	v.Decision.Delay = 0
	return err
}

// shadow decides the rules in shadow of a request that waited. Errors are left out, as a rule in
// shadow must not change what becomes of a request.
func (l *Limiter) shadow(ctx context.Context, v *Verdict) {
	for i := range v.shadows {
		d, err := l.store.Decide(ctx, v.shadows[i].op(stint.VerbTake))
		v.noteShadow(i, d, err)
	}
}

// giveUp decides a last time without waiting, which limits that count denied requests record. A
// request that is behind others is not admitted before them. It is denied by the rule that those
// wait for, for as long as that may hold them. A Take at the end records the denial where limits
// count denied requests, and may still admit: then the request goes on.
func (l *Limiter) giveUp(ctx context.Context, v *Verdict, waiter *waiter, deadline time.Time) error {
	if behind := waiter.behind(); behind != nil {
		seen, err := l.preview(ctx, v)
		if err != nil {
			return err
		}
		if seen && v.Allowed {
			v.deny(behind.first, behind.MaxWait)
			l.shadow(ctx, v)
			return nil
		}
	}
	if late, err := l.isLate(ctx, v, deadline, true); err != nil || late {
		return err
	}
	if err := l.decide(ctx, v, stint.VerbTake, true); err != nil || !v.Allowed {
		return err
	}
	waiter.leave()
	return v.hold(ctx, deadline)
}

// mayWait reports whether all that deny are rules that wait. A single rule that rejects ends the
// waiting, whatever the others would do.
func (v *Verdict) mayWait() bool {
	if v.Decision.RetryAfter == stint.Never {
		return false
	}
	for at, i := 0, 0; i < len(v.claims); {
		n, limits := v.ofRule(i)
		if v.claims[i].Rule.OnExceed != rules.Wait && !v.decisionOf(i, n, v.each[at:at+limits]).Allowed {
			return false
		}
		at, i = at+limits, i+n
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

// onHold tells the caller, if it wants to know, that the request begins to wait.
func (v *Verdict) onHold() {
	if v.OnHold != nil {
		v.OnHold()
	}
}

// pause holds the request. Held sums up all pauses of a request.
func (v *Verdict) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	v.onHold()
	begin := time.Now()
	defer func() { v.Held += time.Since(begin) }()
	return sleep.For(ctx, d)
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

// A waiter is a request with rules that wait. Its place in all queues is the order of arrival,
// which it gets with the first queue that it enters.
type waiter struct {
	waitqueue.Waiter[client]
	limiter *Limiter
	rules   []waitingRule // of its positions
	// closed when it becomes the first where it is behind
	turn chan struct{}
}

// A waitingRule is a rule that waits, with its place among the limits of all claims. first and
// limits find the rule's outcomes among those of all claims, in Verdict.each.
type waitingRule struct {
	*rules.Rule
	first, limits int16
	claim, claims int // and its claims
}

// waiter makes one for the claims of rules that wait, which is in no queue yet.
func (l *Limiter) waiter(claims []Claimed) *waiter {
	w := &waiter{limiter: l}
	w.Turn = func(int64) { close(w.turn) }
	first := int16(0)
	for i := range claims {
		rule, claim := claims[i].Rule, &claims[i].Claim
		n := int16(claim.Policy.Len())
		if i > 0 && claims[i-1].Rule == rule && rule.OnExceed == rules.Wait {
			w.rules[len(w.rules)-1].limits += n
			w.rules[len(w.rules)-1].claims++
		} else if rule.OnExceed == rules.Wait {
			w.rules = append(w.rules, waitingRule{rule, first, n, i, 1})
			w.Positions = append(w.Positions, waitqueue.Position[client]{
				Key: client{rule.ID, claims[i].key, claims[i].class}, Room: cmp.Or(rule.MaxWaiters, defaultWaiters),
			})
		}
		first += n
	}
	return w
}

// behind is the rule in whose queue an older request comes before; nil if there is none.
func (w *waiter) behind() *waitingRule {
	w.limiter.waiting.mu.Lock()
	defer w.limiter.waiting.mu.Unlock()
	if at := w.limiter.waiting.queues.Ahead(&w.Waiter); at >= 0 {
		return &w.rules[at]
	}
	return nil
}

// keep makes the memory of the keys its own, as queues may outlast the request.
func (w *waiter) keep() {
	for i := range w.Positions {
		if p := &w.Positions[i]; !w.Queued() {
			p.Key.key, p.Key.class = strings.Clone(p.Key.key), strings.Clone(p.Key.class)
		}
	}
}

// follow queues behind the older requests. The channel is closed when the waiter is the first there. It is nil when no
// request is ahead, or, with false, when the queue is full.
func (w *waiter) follow() (turn <-chan struct{}, room bool) {
	w.limiter.waiting.mu.Lock()
	defer w.limiter.waiting.mu.Unlock()
	q := &w.limiter.waiting.queues
	ahead := q.Ahead(&w.Waiter)
	if ahead < 0 {
		return nil, true
	}
	w.keep()
	if !q.Follow(&w.Waiter, ahead, w.limiter.now()) {
		return nil, false
	}
	w.turn = make(chan struct{})
	return w.turn, true
}

// await waits until no older request is in the queues of the waiter's rules. It reports false when
// a queue is full, or the deadline comes before. A turn may be lost again to nobody: each time that
// one comes, the queues are looked at anew.
func (w *waiter) await(ctx context.Context, deadline time.Time) (bool, error) {
	left := time.Until(deadline)
	if left <= 0 {
		return w.behind() == nil, nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	for {
		turn, room := w.follow()
		if turn == nil {
			return room, nil
		}
		select {
		case <-turn:
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// deny queues where rules deny, as the verdict says, and leaves all other queues. It reports whether there was room in
// all.
func (w *waiter) deny(v *Verdict) bool {
	w.limiter.waiting.mu.Lock()
	defer w.limiter.waiting.mu.Unlock()
	now := w.limiter.now()
	for i, rule := range w.rules {
		retry := time.Duration(0)
		d := v.decisionOf(rule.claim, rule.claims, v.each[rule.first:rule.first+rule.limits])
		if !d.Allowed {
			retry = d.RetryAfter
		}
		if rule.Rule == v.Rule { // whatever the outcomes are, of a failure policy for example
			retry = max(retry, v.Decision.RetryAfter)
		}
		w.Positions[i].Until = 0
		if retry > 0 {
			w.Positions[i].Until = now + int64(retry)
		}
	}
	w.keep()
	return w.limiter.waiting.queues.Deny(&w.Waiter, now)
}

// release leaves the queues of rules that admit by now, and returns when the next one will.
func (w *waiter) release(now int64) (next int64) {
	w.limiter.waiting.mu.Lock()
	defer w.limiter.waiting.mu.Unlock()
	return w.limiter.waiting.queues.Release(&w.Waiter, now)
}

// leave leaves all queues. Without a queue nothing is to be done, and the mutex is left alone; most
// requests never wait.
func (w *waiter) leave() {
	if !w.Queued() {
		return
	}
	w.limiter.waiting.mu.Lock()
	defer w.limiter.waiting.mu.Unlock()
	w.limiter.waiting.queues.Leave(&w.Waiter, w.limiter.now())
}
