package enforce

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/rules"
)

// defaultWaiters is how many requests of a client wait at once unless its rule says otherwise.
const defaultWaiters = 100

// wait decides a request that rules may hold for so long at most.
func (l *Limiter) wait(ctx context.Context, v *Verdict, longest time.Duration) error {
	deadline := time.Now().Add(min(longest, v.patience()))
	if end, bounded := ctx.Deadline(); bounded && end.Before(deadline) {
		deadline = end
	}
	waiter := l.queues.waiter(v.claims)
	defer waiter.leave()
	for {
		if waiter.behind() != nil {
			begin := time.Now()
			v.onHold()
			in, err := waiter.await(ctx, deadline)
			v.Held += time.Since(begin)
			if err != nil {
				return err
			}
			if !in {
				return l.giveUp(ctx, v, waiter, deadline)
			}
		}
		if late, err := l.isLate(ctx, v, deadline, true); err != nil || late {
			return err
		}
		if err := l.decide(ctx, v, stint.Try, false); err != nil {
			return err
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
		if !waiter.join(v) {
			return l.giveUp(ctx, v, waiter, deadline)
		}
		if err := v.holdDenied(ctx, waiter); err != nil {
			return err
		}
	}
}

// denied notes until when each rule that waits denies, with the queues locked.
func (v *Verdict) denied(waiter *waiter) {
	now := time.Now()
	for i := range waiter.positions {
		s := &waiter.positions[i]
		retry := time.Duration(0)
		for _, outcome := range v.each[s.limit : s.limit+s.limits] {
			if !outcome.Allowed {
				retry = max(retry, outcome.RetryAfter)
			}
		}
		if s.rule == v.Rule { // whatever the outcomes are, of a failure policy for example
			retry = max(retry, v.Decision.RetryAfter)
		}
		s.until = time.Time{}
		if retry > 0 {
			s.until = now.Add(retry)
		}
	}
}

// holdDenied holds a denied request until all of its rules that wait would admit it, in the queues of
// those that don't yet.
func (v *Verdict) holdDenied(ctx context.Context, waiter *waiter) error {
	for now := time.Now(); now.Before(waiter.until); now = time.Now() {
		if err := v.pause(ctx, waiter.next(now).Sub(now)); err != nil {
			return err
		}
	}
	return nil
}

// patience is how long the least patient of the rules that wait does.
func (v *Verdict) patience() time.Duration {
	longest := rules.MaxWaitLimit
	for i := range v.claims {
		if rule := v.claims[i].Rule; rule.OnExceed == rules.Wait {
			longest = min(longest, rule.MaxWait)
		}
	}
	return longest
}

// isLate looks whether the request's turn comes in time where limits give out turns: a turn, once taken, is kept. If
// not, that is the verdict. A turn that has come is in time, however late the store was to say so. While the store is
// unreachable there is no look, and the failure policy decides. Of a caller that can't wait it is not known how long it
// would, so that it is to come back when the turn would have come.
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

// takeNow decides at once by rules of which none waits. A turn that comes after the context's deadline is
// not taken, unless others take turns between the look and the taking: then it stays taken.
func (l *Limiter) takeNow(ctx context.Context, v *Verdict) error {
	deadline, bounded := ctx.Deadline()
	if bounded {
		if late, err := l.isLate(ctx, v, deadline, false); err != nil || late {
			return err
		}
	}
	if err := l.decide(ctx, v, stint.Take, true); err != nil {
		return err
	}
	if bounded && v.lateness(deadline) > 0 {
		v.denyLate(v.Decision.Delay)
	}
	return nil
}

// preview decides without taking anything. It reports false when the store can't tell.
func (l *Limiter) preview(ctx context.Context, v *Verdict) (seen bool, err error) {
	err = l.decide(ctx, v, stint.Peek, false)
	if (errors.Is(err, stint.ErrUnavailable) || errors.Is(err, stint.ErrOverloaded)) && ctx.Err() == nil {
		return false, nil
	}
	return err == nil, err
}

// denyLate makes an admission whose turn comes too late a denial for so long, by the limit whose turn
// is last.
func (v *Verdict) denyLate(retry time.Duration) {
	v.Turn = v.Decision.Delay
	slowest := int32(0)
	for i := range v.limits() {
		if v.each[i].Delay > v.each[slowest].Delay {
			slowest = int32(i)
		}
	}
	v.deny(slowest, retry)
}

// deny makes an admission that must not be used a denial by a limit, counted over all claims.
func (v *Verdict) deny(index int32, retry time.Duration) {
	o := &v.each[index]
	v.Allowed = false
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
// having been looked at before, it may come too late: then it is lost, and the request denied.
func (v *Verdict) hold(ctx context.Context, deadline time.Time) error {
	if late := v.lateness(deadline); v.Decision.Degraded && late > 0 {
		v.denyLate(late)
		return nil
	}
	err := v.pause(ctx, v.Decision.Delay)
	v.Decision.Delay = 0
	return err
}

// shadow decides the rules in shadow of a request that waited.
func (l *Limiter) shadow(ctx context.Context, v *Verdict) {
	for i := range v.shadows {
		d, err := l.store.Decide(ctx, v.shadows[i].op)
		v.noteShadow(i, d, err)
	}
}

// giveUp decides a last time without waiting, which limits that count denied requests record. A request that
// is behind others is not admitted before them. It is denied by the rule that those wait for, for as
// long as that may hold them.
func (l *Limiter) giveUp(ctx context.Context, v *Verdict, waiter *waiter, deadline time.Time) error {
	if behind := waiter.behind(); behind != nil {
		seen, err := l.preview(ctx, v)
		if err != nil {
			return err
		}
		if seen && v.Allowed {
			v.deny(behind.limit, behind.rule.MaxWait)
			l.shadow(ctx, v)
			return nil
		}
	}
	if late, err := l.isLate(ctx, v, deadline, true); err != nil || late {
		return err
	}
	if err := l.decide(ctx, v, stint.Take, true); err != nil || !v.Allowed {
		return err
	}
	waiter.leave()
	return v.hold(ctx, deadline)
}

// mayWait reports whether all that deny are rules that wait.
func (v *Verdict) mayWait() bool {
	if v.Decision.RetryAfter == stint.Never {
		return false
	}
	at := 0
	for i := range v.claims {
		n := v.claims[i].Claim.Policy.Len()
		for _, outcome := range v.each[at : at+n] {
			if !outcome.Allowed && v.claims[i].Rule.OnExceed != rules.Wait {
				return false
			}
		}
		at += n
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

func (v *Verdict) onHold() {
	if v.OnHold != nil {
		v.OnHold()
	}
}

// pause holds the request.
func (v *Verdict) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	v.onHold()
	begin := time.Now()
	defer func() { v.Held += time.Since(begin) }()
	return sleep.For(ctx, d)
}

// A client is one that a rule counts.
type client struct{ policy, key string }

// waitQueues are the queues of the clients that have requests waiting, each in the order of arrival at the
// limiter. A queue has the requests that its rule denied, until it would admit them, and the requests that arrived
// after them. The zero value has none.
//
// A request may try when no older one is in any queue of its rules. So a request waits for older ones only,
// never in a circle, whichever queues they are in; the oldest of all waits for none.
type waitQueues struct {
	mu      sync.Mutex
	arrived uint64 // how many numbers were given out
	all     map[client][]*position
}

// A waiter is a request with rules that wait. One that is denied is in the queues of the rules that deny it. One that
// is behind others is in one queue, theirs.
type waiter struct {
	queues    *waitQueues
	number    uint64 // of its arrival; 0 until it is compared
	positions []position
	until     time.Time     // when the last of the rules that deny it admits
	turn      chan struct{} // closed, and nil again, when it becomes the first where it is behind
}

// A position is a waiter's in the queue of one rule.
type position struct {
	waiter *waiter
	client client
	rule   *rules.Rule
	limit  int32     // the rule's first, counted over all claims
	limits int32     // how many it has
	until  time.Time // when the rule admits, by its last denial; zero: it did not deny
	in     bool
}

// waiter makes one for the claims of rules that wait, which is in no queue yet.
func (q *waitQueues) waiter(claims []Claimed) *waiter {
	w := &waiter{queues: q}
	first := int32(0)
	for i := range claims {
		rule, claim := claims[i].Rule, &claims[i].Claim
		n := int32(claim.Policy.Len())
		if i > 0 && claims[i-1].Rule == rule && rule.OnExceed == rules.Wait {
			w.positions[len(w.positions)-1].limits += n
		} else if rule.OnExceed == rules.Wait {
			at := client{claim.Policy.Name(), claim.Key}
			w.positions = append(w.positions, position{waiter: w, client: at, rule: rule, limit: first, limits: n})
		}
		first += n
	}
	return w
}

// behind is the position whose queue has an older request, which comes before; nil if there is none.
func (w *waiter) behind() *position {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.ahead()
}

// ahead is behind with the lock held. Of several queues it is the one whose first request has the longest
// to wait, so that no request uses room in a queue that is about to move while another one holds it up.
func (w *waiter) ahead() *position {
	if w.number == 0 {
		w.queues.arrived++
		w.number = w.queues.arrived
	}
	var slowest *position
	var until time.Time
	for i := range w.positions {
		queue := w.queues.all[w.positions[i].client]
		if len(queue) == 0 || queue[0].waiter.number >= w.number {
			continue
		}
		if slowest == nil || queue[0].until.After(until) {
			slowest, until = &w.positions[i], queue[0].until
		}
	}
	return slowest
}

// enqueue enters one queue behind the older requests and leaves all others. The channel is closed when the waiter
// is the first there. It is nil when no request is ahead, or, with false, when the queue is full.
func (w *waiter) enqueue() (turn <-chan struct{}, room bool) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	behind := w.ahead()
	if behind == nil {
		return nil, true
	}
	if !w.fits(behind) {
		return nil, false
	}
	w.enter(behind)
	for i := range w.positions {
		s := &w.positions[i]
		s.until = time.Time{}
		if s != behind {
			w.quit(s)
		}
	}
	w.turn = make(chan struct{})
	return w.turn, true
}

// await waits until no older request is in the queues of the waiter's rules. It reports false when a
// queue is full, or the deadline comes before.
func (w *waiter) await(ctx context.Context, deadline time.Time) (bool, error) {
	left := time.Until(deadline)
	if left <= 0 {
		return w.behind() == nil, nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	for {
		turn, room := w.enqueue()
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

// join enters the queues of the rules that deny, as the verdict says, and leaves all others. It reports
// whether there was room in all.
func (w *waiter) join(v *Verdict) bool {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	v.denied(w)
	w.until = time.Time{}
	for i := range w.positions {
		s := &w.positions[i]
		if s.until.IsZero() {
			continue
		}
		if !w.fits(s) {
			return false
		}
		if s.until.After(w.until) {
			w.until = s.until
		}
	}
	for i := range w.positions {
		if s := &w.positions[i]; s.until.IsZero() {
			w.quit(s)
		} else {
			w.enter(s)
		}
	}
	return true
}

// next leaves the queues of rules that admit by now, and returns when the next one will.
func (w *waiter) next(now time.Time) time.Time {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	next := w.until
	for i := range w.positions {
		s := &w.positions[i]
		switch {
		case !s.in:
		case !s.until.After(now):
			w.quit(s)
		case s.until.Before(next):
			next = s.until
		}
	}
	return next
}

// leave leaves all queues.
func (w *waiter) leave() {
	if !slices.ContainsFunc(w.positions, func(s position) bool { return s.in }) {
		return
	}
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.turn = nil
	for i := range w.positions {
		w.quit(&w.positions[i])
	}
}

// fits reports whether the queue of a position has it, or has room for it.
func (w *waiter) fits(s *position) bool {
	return s.in || len(w.queues.all[s.client]) < cmp.Or(s.rule.MaxWaiters, defaultWaiters)
}

// enter puts the position into its queue, before those that arrived later.
func (w *waiter) enter(s *position) {
	if s.in {
		return
	}
	if w.queues.all == nil {
		w.queues.all = map[client][]*position{}
	}
	// The queue may outlast the waiter, and with it the memory of the key.
	s.client.key = strings.Clone(s.client.key)
	queue := w.queues.all[s.client]
	at, _ := slices.BinarySearchFunc(queue, w.number, (*position).compare)
	w.queues.all[s.client], s.in = slices.Insert(queue, at, s), true
}

// quit takes the position out of its queue. It is then the turn of the one that is the first.
func (w *waiter) quit(s *position) {
	if !s.in {
		return
	}
	queue := w.queues.all[s.client]
	at, _ := slices.BinarySearchFunc(queue, w.number, (*position).compare)
	queue, s.in = slices.Delete(queue, at, at+1), false
	if len(queue) == 0 {
		delete(w.queues.all, s.client)
		return
	}
	w.queues.all[s.client] = queue
	if first := queue[0].waiter; at == 0 && first.turn != nil {
		close(first.turn)
		first.turn = nil
	}
}

// compare orders positions by arrival.
func (s *position) compare(number uint64) int { return cmp.Compare(s.waiter.number, number) }
