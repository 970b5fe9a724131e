package simulate

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/waitqueue"
	"github.com/stint-go/stint/rules"
)

// waitQueues are the wait queues in virtual time, in microseconds. The queues are those of package
// enforce, with virtual microseconds in place of its clock: what they do is decided by the same
// code, so that a simulation and the service agree on who is next.
type waitQueues struct {
	queues  waitqueue.Queues[queueID]
	arrived uint64
	wakes   upcoming[wake]
}

// defaultWaiters is how many requests of a client wait at once unless its rule says otherwise, as
// in package enforce.
const defaultWaiters = 100

// A queueID names a queue: a rule, the client that it counts, and the class.
type queueID struct {
	rule       *tally
	key, class string
}

// A waiter is a request that rules may hold.
type waiter struct {
	*request
	waitqueue.Waiter[queueID]
	number   uint64 // of its arrival
	deadline stint.Instant
	done     bool
}

// wait tries a request that rules may hold for the first time.
func (c *candidate) wait(r *request) {
	c.waiting.arrived++
	w := &waiter{request: r, number: c.waiting.arrived}
	w.Turn = func(now int64) { c.waiting.wakeAt(w, stint.Instant(now)) }
	longest := rules.MaxWaitLimit
	for i := range r.claims {
		rule := r.claims[i].rule
		if rule.rule.OnExceed == rules.Wait && (i == 0 || r.claims[i-1].rule != rule) {
			longest = min(longest, rule.rule.MaxWait)
			w.Positions = append(w.Positions, waitqueue.Position[queueID]{
				Key:  queueID{rule, strings.Clone(r.claims[i].of), r.claims[i].class},
				Room: cmp.Or(rule.rule.MaxWaiters, defaultWaiters),
			})
		}
	}
	w.deadline = r.time.Add(longest)
	c.attempt(w, r.time)
}

// advance wakes the waiters, and ends the holds, that are due until an instant. A waiter that is
// done has left wakes in the heap; they are skipped when they come up, as removing them would cost
// a search.
func (c *candidate) advance(now stint.Instant) {
	for len(c.waiting.wakes) > 0 && c.waiting.wakes[0].at <= now {
		next := heap.Pop(&c.waiting.wakes).(wake)
		if next.holding != nil {
			c.end(next.holding, next.at)
		} else if !next.waiter.done {
			c.wake(next.waiter, next.at)
		}
	}
}

// wake looks at a waiter again: it is at its deadline while others are still ahead of it, or its
// time to ask has come, or some of the rules that denied it would admit it by now, in whose queues
// those behind it may move up.
func (c *candidate) wake(w *waiter, now stint.Instant) {
	behind := w.Until == 0 && c.waiting.queues.Ahead(&w.Waiter) >= 0
	switch {
	case behind && now < w.deadline:
	case behind:
		c.giveUp(w, now)
	case int64(now) >= w.Until:
		c.attempt(w, now)
	default: // some rules admit by now
		c.waiting.queues.Release(&w.Waiter, int64(now))
	}
}

// attempt tries to admit a request that has none ahead of it; any other is queued.
func (c *candidate) attempt(w *waiter, now stint.Instant) {
	q := &c.waiting
	if ahead := q.queues.Ahead(&w.Waiter); ahead >= 0 {
		if q.queues.Follow(&w.Waiter, ahead, int64(now)) {
			q.wakeAt(w, w.deadline)
		} else {
			c.giveUp(w, now)
		}
		return
	}
	if c.isLate(w, now) {
		return
	}
	o := c.decide(w.request, stint.VerbTry, now)
	if o.decision.Allowed {
		c.finishWait(w, now, o)
		return
	}
	retry := o.decision.RetryAfter
	if retry <= 0 || retry == stint.Never || retry > micros(int64(w.deadline-now)) || !c.enqueue(w, now) {
		c.giveUp(w, now)
	}
}

// enqueue queues a request that was just denied, for the rules that denied it. It reports false if
// one of these does not let requests wait, or if a queue is full. Each rule that denied says by
// itself when to ask again, and has a queue of its own; a request that several rules hold stands in
// all of their queues at once.
func (c *candidate) enqueue(w *waiter, now stint.Instant) bool {
	for i := range w.Positions {
		w.Positions[i].Until = 0
	}
	for from, to := 0, 0; from < len(c.store.ops); from = to {
		to = c.ofRule(w.claims, from)
		d := c.store.combine(from, to, now)
		if d.Allowed {
			continue
		}
		rule := w.claims[c.store.ops[from].claim].rule
		at := slices.IndexFunc(w.Positions, func(p waitqueue.Position[queueID]) bool { return p.Key.rule == rule })
		if at < 0 {
			return false // a rule that lets none wait denies it as well
		}
		p := &w.Positions[at]
		p.Until = max(p.Until, int64(now.Add(d.RetryAfter)))
	}
	if !c.waiting.queues.Deny(&w.Waiter, int64(now)) {
		return false
	}
	for i := range w.Positions {
		if until := w.Positions[i].Until; until > 0 {
			c.waiting.wakeAt(w, stint.Instant(until))
		}
	}
	return true
}

// isLate denies a request whose turn in a leaky bucket would come after its deadline. A leaky
// bucket admits with a delay. If the delay does not fit before the deadline, taking would spend
// permits on a request that nobody awaits any more, so that a peek comes first.
func (c *candidate) isLate(w *waiter, now stint.Instant) bool {
	if !slices.ContainsFunc(w.claims, func(cl claim) bool { return cl.table.leaky }) {
		return false
	}
	o := c.decide(w.request, stint.VerbPeek, now)
	late := o.decision.Delay - micros(int64(w.deadline-now))
	if !o.decision.Allowed || late <= 0 || o.decision.Delay == 0 {
		return false
	}
	slowest := 0
	for i := range c.store.Outs {
		if c.store.Outs[i].Delay > c.store.Outs[slowest].Delay {
			slowest = i
		}
	}
	c.deny(w, now, o, slowest, late)
	return true
}

// giveUp decides a request that waits no longer. It is not admitted before those ahead of it. If
// its limits would admit it by now but one ahead of it still waits, it is denied in the name of the
// rule whose queue it stands in; else the limits decide for the last time.
func (c *candidate) giveUp(w *waiter, now stint.Instant) {
	if at := c.waiting.queues.Ahead(&w.Waiter); at >= 0 {
		ahead := w.Positions[at].Key.rule
		if o := c.decide(w.request, stint.VerbPeek, now); o.decision.Allowed {
			first := slices.IndexFunc(c.store.ops, func(p limitOp) bool { return w.claims[p.claim].rule == ahead })
			c.deny(w, now, o, max(first, 0), ahead.rule.MaxWait)
			return
		}
	}
	if !c.isLate(w, now) {
		c.finishWait(w, now, c.decide(w.request, stint.VerbTake, now))
	}
}

// deny turns an admission that a peek found, and that must not be used, into a denial by a limit.
func (c *candidate) deny(w *waiter, now stint.Instant, o *outcome, index int, retry time.Duration) {
	if len(c.store.ops) > 0 {
		p, out := &c.store.ops[index], &c.store.Outs[index]
		for i := range c.store.ops { // whichever of the rule's ways admits
			if len(c.store.Ways) > 0 && w.claims[c.store.ops[i].claim].rule == w.claims[p.claim].rule {
				c.store.Outs[i].Allowed = false
			}
		}
		out.Allowed = false
		o.rule, o.key, o.permits = w.claims[p.claim].rule, w.claims[p.claim].of, p.permits
		o.decision.Index, o.decision.Limit, o.decision.Remaining, o.decision.ResetAfter = int16(index), out.Limit,
			out.Remaining, out.ResetAfter
	}
	o.decision.Allowed, o.decision.RetryAfter, o.decision.Delay = false, retry, 0
	c.record(w.request, false, now)
	c.finishWait(w, now, o)
}

// finishWait ends the wait. It tells the queues, which wakes the next ones.
func (c *candidate) finishWait(w *waiter, now stint.Instant, o *outcome) {
	w.done = true
	o.waited = int64(now - w.time)
	c.finish(w.request, o)
	c.waiting.queues.Leave(&w.Waiter, int64(now))
}

func (q *waitQueues) wakeAt(w *waiter, at stint.Instant) {
	heap.Push(&q.wakes, wake{at, 1, w.number, w, nil})
}

// A wake is when a waiter is to be woken, or a hold ends. At one instant all holds end first, and
// the older one is first. Holds end first, so that what they give back is there for those that wake
// at the same instant.
type wake struct {
	at      stint.Instant
	kind    uint8 // 0: of a hold
	number  uint64
	waiter  *waiter
	holding *holding
}

// Before orders wakes.
func (w wake) Before(other wake) bool {
	return cmp.Or(cmp.Compare(w.at, other.at), cmp.Compare(w.kind, other.kind), cmp.Compare(w.number, other.number)) < 0
}

// upcoming is a heap of future events, the next one first. It implements heap.Interface; nothing
// else about it is of interest.
type upcoming[T interface{ Before(other T) bool }] []T

func (h upcoming[T]) Len() int           { return len(h) }
func (h upcoming[T]) Less(i, j int) bool { return h[i].Before(h[j]) }
func (h upcoming[T]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *upcoming[T]) Push(x any)        { *h = append(*h, x.(T)) }
func (h *upcoming[T]) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// micros are microseconds as a duration.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
