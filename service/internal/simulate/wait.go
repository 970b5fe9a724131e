package simulate

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// waitQueues are the wait queues in virtual time, as package enforce has them: a waiter that is denied has a position
// in the queue of each rule that denies it. Later waiters queue behind it, in the slowest of their queues.
type waitQueues struct {
	arrived uint64
	queues  map[queueID][]*position // each in the order of arrival
	wakes   upcoming[wake]
}

// defaultWaiters is how many requests of a client wait at once unless its rule says otherwise, as in package enforce.
const defaultWaiters = 100

// A queueID names a queue: a rule and a client.
type queueID struct {
	rule *tally
	key  string
}

// A waiter is a request that rules may hold.
type waiter struct {
	*request
	number    uint64
	deadline  stint.Instant
	positions []position
	until     stint.Instant // when all rules that deny it admit; 0: it is queued behind others
	done      bool
}

// A position is a waiter's in one queue.
type position struct {
	queueID
	waiter *waiter
	until  stint.Instant // when the rule admits, by its last denial; 0: it did not deny
	queued bool
}

// wait tries a request that rules may hold for the first time.
func (c *candidate) wait(r *request) {
	c.waiting.arrived++
	w := &waiter{request: r, number: c.waiting.arrived}
	longest := rules.MaxWaitLimit
	for i := range r.claims {
		rule := r.claims[i].rule
		if rule.rule.OnExceed == rules.Wait && (i == 0 || r.claims[i-1].rule != rule) {
			longest = min(longest, rule.rule.MaxWait)
			w.positions = append(w.positions, position{queueID: queueID{rule, strings.Clone(r.claims[i].Key)}, waiter: w})
		}
	}
	w.deadline = r.time.Add(longest)
	c.attempt(w, r.time)
}

// advance wakes the waiters that are due until an instant.
func (c *candidate) advance(now stint.Instant) {
	for len(c.waiting.wakes) > 0 && c.waiting.wakes[0].at <= now {
		next := heap.Pop(&c.waiting.wakes).(wake)
		if !next.waiter.done {
			c.wake(next.waiter, next.at)
		}
	}
}

func (c *candidate) wake(w *waiter, now stint.Instant) {
	switch {
	case w.until == 0 && now < w.deadline && c.waiting.ahead(w) != nil:
	case w.until == 0 && now >= w.deadline && c.waiting.ahead(w) != nil:
		c.giveUp(w, now)
	case now >= w.until:
		c.attempt(w, now)
	default: // some rules admit by now
		for i := range w.positions {
			if w.positions[i].until <= now {
				c.waiting.quit(&w.positions[i], now)
			}
		}
	}
}

// attempt tries to admit a request that has none ahead of it; any other is queued.
func (c *candidate) attempt(w *waiter, now stint.Instant) {
	q := &c.waiting
	if at := q.ahead(w); at != nil {
		if !q.fits(at) {
			c.giveUp(w, now)
			return
		}
		w.until = 0
		for i := range w.positions {
			w.positions[i].until = 0
		}
		q.enter(at)
		for i := range w.positions {
			if s := &w.positions[i]; s != at {
				q.quit(s, now)
			}
		}
		q.wakeAt(w, w.deadline)
		return
	}
	if c.isLate(w, now) {
		return
	}
	o := c.decide(w.request, stint.Try, now)
	if o.decision.Allowed {
		c.finishWait(w, now, o)
		return
	}
	retry := o.decision.RetryAfter
	if retry <= 0 || retry == stint.Never || retry > micros(int64(w.deadline-now)) || !c.enqueue(w, now) {
		c.giveUp(w, now)
	}
}

// enqueue queues a request that was just denied, for the rules that denied it. It reports false if one of these does
// not let requests wait, or if a queue is full.
func (c *candidate) enqueue(w *waiter, now stint.Instant) bool {
	w.until = 0
	for i := range w.positions {
		w.positions[i].until = 0
	}
	for i := range c.store.ops {
		if c.store.outs[i].Allowed {
			continue
		}
		rule := w.claims[c.store.ops[i].claim].rule
		at := slices.IndexFunc(w.positions, func(p position) bool { return p.rule == rule })
		if at < 0 {
			return false // a rule that lets none wait denies it as well
		}
		p := &w.positions[at]
		p.until = max(p.until, now.Add(c.store.outs[i].RetryAfter))
		w.until = max(w.until, p.until)
	}
	for i := range w.positions {
		if w.positions[i].until > 0 && !c.waiting.fits(&w.positions[i]) {
			return false
		}
	}
	for i := range w.positions {
		p := &w.positions[i]
		if p.until == 0 {
			c.waiting.quit(p, now)
			continue
		}
		c.waiting.enter(p)
		c.waiting.wakeAt(w, p.until)
	}
	return true
}

// isLate denies a request whose turn in a leaky bucket would come after its deadline.
func (c *candidate) isLate(w *waiter, now stint.Instant) bool {
	if !slices.ContainsFunc(w.claims, func(cl claim) bool { return cl.table.leaky }) {
		return false
	}
	o := c.decide(w.request, stint.Peek, now)
	late := o.decision.Delay - micros(int64(w.deadline-now))
	if !o.decision.Allowed || late <= 0 || o.decision.Delay == 0 {
		return false
	}
	slowest := 0
	for i := range c.store.outs {
		if c.store.outs[i].Delay > c.store.outs[slowest].Delay {
			slowest = i
		}
	}
	c.deny(w, now, o, slowest, late)
	return true
}

// giveUp decides a request that waits no longer. It is not admitted before those ahead of it.
func (c *candidate) giveUp(w *waiter, now stint.Instant) {
	if at := c.waiting.ahead(w); at != nil {
		if o := c.decide(w.request, stint.Peek, now); o.decision.Allowed {
			first := slices.IndexFunc(c.store.ops, func(p limitOp) bool { return w.claims[p.claim].rule == at.rule })
			c.deny(w, now, o, max(first, 0), at.rule.rule.MaxWait)
			return
		}
	}
	if !c.isLate(w, now) {
		c.finishWait(w, now, c.decide(w.request, stint.Take, now))
	}
}

// deny turns an admission that a peek found, and that must not be used, into a denial by a limit.
func (c *candidate) deny(w *waiter, now stint.Instant, o *outcome, index int, retry time.Duration) {
	if len(c.store.ops) > 0 {
		p, out := &c.store.ops[index], &c.store.outs[index]
		out.Allowed = false
		o.rule, o.key, o.permits = w.claims[p.claim].rule, w.claims[p.claim].Key, p.permits
		o.decision.Index, o.decision.Limit, o.decision.Remaining, o.decision.ResetAfter = int32(index), out.Limit, out.Remaining, out.ResetAfter
	}
	o.decision.Allowed, o.decision.RetryAfter, o.decision.Delay = false, retry, 0
	c.record(w.request, false, now)
	c.finishWait(w, now, o)
}

// finishWait ends the wait.
func (c *candidate) finishWait(w *waiter, now stint.Instant, o *outcome) {
	w.done = true
	o.waited = int64(now - w.time)
	c.finish(w.request, o)
	for i := range w.positions {
		c.waiting.quit(&w.positions[i], now)
	}
}

// ahead is a position in a queue where an older waiter is first: of several, in the queue whose first waits longest. It
// is nil if there is none.
func (q *waitQueues) ahead(w *waiter) (slowest *position) {
	var until stint.Instant
	for i := range w.positions {
		queue := q.queues[w.positions[i].queueID]
		if len(queue) == 0 || queue[0].waiter.number >= w.number {
			continue
		}
		if slowest == nil || queue[0].until > until {
			slowest, until = &w.positions[i], queue[0].until
		}
	}
	return slowest
}

// fits reports whether a position is in its queue, or the queue has room for it.
func (q *waitQueues) fits(p *position) bool {
	return p.queued || len(q.queues[p.queueID]) < cmp.Or(p.rule.rule.MaxWaiters, defaultWaiters)
}

func (p *position) compare(number uint64) int { return cmp.Compare(p.waiter.number, number) }

// enter inserts a position into its queue, before those of later waiters.
func (q *waitQueues) enter(p *position) {
	if p.queued {
		return
	}
	queue := q.queues[p.queueID]
	at, _ := slices.BinarySearchFunc(queue, p.waiter.number, (*position).compare)
	q.queues[p.queueID], p.queued = slices.Insert(queue, at, p), true
}

// quit removes a position from its queue. If that was the first, it is the next waiter's turn.
func (q *waitQueues) quit(p *position, now stint.Instant) {
	if !p.queued {
		return
	}
	queue := q.queues[p.queueID]
	at, _ := slices.BinarySearchFunc(queue, p.waiter.number, (*position).compare)
	queue, p.queued = slices.Delete(queue, at, at+1), false
	if len(queue) == 0 {
		delete(q.queues, p.queueID)
		return
	}
	q.queues[p.queueID] = queue
	if first := queue[0].waiter; at == 0 && first.until == 0 {
		q.wakeAt(first, now)
	}
}

func (q *waitQueues) wakeAt(w *waiter, at stint.Instant) { heap.Push(&q.wakes, wake{at, w}) }

// A wake is when a waiter is to be woken; at one instant the older waiter is first.
type wake struct {
	at     stint.Instant
	waiter *waiter
}

// Before orders wakes.
func (w wake) Before(other wake) bool {
	return cmp.Or(cmp.Compare(w.at, other.at), cmp.Compare(w.waiter.number, other.waiter.number)) < 0
}

// upcoming is a heap of future events, the next one first.
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
