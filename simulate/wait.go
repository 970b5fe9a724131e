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

// queue holds requests in virtual time, as package enforce holds them: whoever is denied stands in the lines of the rules that
// deny it; whoever comes later stands behind, in the line that is the slowest.
type queue struct {
	arrived uint64
	lines   map[spotID][]*spot // each in the order of arrival
	wakes   upcoming[wake]
}

// defaultWaiters is how many requests of a client wait at once unless its rule says otherwise, as in package enforce.
const defaultWaiters = 100

// spotID is a line: a rule and a client.
type spotID struct {
	rule *tally
	key  string
}

// A waiter is a request that rules may hold.
type waiter struct {
	*request
	number   uint64
	deadline stint.Instant
	spots    []spot
	until    stint.Instant // when all rules that deny it admit; 0: it stands behind others
	done     bool
}

// A spot is a waiter's in one line.
type spot struct {
	spotID
	waiter *waiter
	until  stint.Instant // when the rule admits, by its last denial; 0: it did not deny
	in     bool
}

// wait has a request that rules may hold tried for the first time.
func (c *candidate) wait(r *request) {
	c.queue.arrived++
	w := &waiter{request: r, number: c.queue.arrived}
	longest := rules.MaxWaitLimit
	for i := range r.claims {
		rule := r.claims[i].rule
		if rule.rule.OnExceed == rules.Wait && (i == 0 || r.claims[i-1].rule != rule) {
			longest = min(longest, rule.rule.MaxWait)
			w.spots = append(w.spots, spot{spotID: spotID{rule, strings.Clone(r.claims[i].Key)}, waiter: w})
		}
	}
	w.deadline = r.time.Add(longest)
	c.attempt(w, r.time)
}

// advance wakes whoever waits until an instant.
func (c *candidate) advance(now stint.Instant) {
	for len(c.queue.wakes) > 0 && c.queue.wakes[0].at <= now {
		next := heap.Pop(&c.queue.wakes).(wake)
		if !next.waiter.done {
			c.wake(next.waiter, next.at)
		}
	}
}

func (c *candidate) wake(w *waiter, now stint.Instant) {
	switch {
	case w.until == 0 && now < w.deadline && c.queue.ahead(w) != nil:
	case w.until == 0 && now >= w.deadline && c.queue.ahead(w) != nil:
		c.giveUp(w, now)
	case now >= w.until:
		c.attempt(w, now)
	default: // some rules admit by now
		for i := range w.spots {
			if w.spots[i].until <= now {
				c.queue.quit(&w.spots[i], now)
			}
		}
	}
}

// attempt tries to admit a request that need not stand behind others, or else has it stand.
func (c *candidate) attempt(w *waiter, now stint.Instant) {
	q := &c.queue
	if behind := q.ahead(w); behind != nil {
		if !q.fits(behind) {
			c.giveUp(w, now)
			return
		}
		w.until = 0
		for i := range w.spots {
			w.spots[i].until = 0
		}
		q.enter(behind)
		for i := range w.spots {
			if s := &w.spots[i]; s != behind {
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
		c.leave(w, now, o)
		return
	}
	retry := o.decision.RetryAfter
	if retry <= 0 || retry == stint.Never || retry > micros(int64(w.deadline-now)) || !c.stand(w, now) {
		c.giveUp(w, now)
	}
}

// stand has a request that was denied last stand in the lines of the rules that did. It reports whether it may, and there is room.
func (c *candidate) stand(w *waiter, now stint.Instant) bool {
	w.until = 0
	for i := range w.spots {
		w.spots[i].until = 0
	}
	for i := range c.ledger.parts {
		if c.ledger.outs[i].Allowed {
			continue
		}
		rule := w.claims[c.ledger.parts[i].claim].rule
		at := slices.IndexFunc(w.spots, func(s spot) bool { return s.rule == rule })
		if at < 0 {
			return false // a rule that does not wait denies it as well
		}
		s := &w.spots[at]
		s.until = max(s.until, now.Add(c.ledger.outs[i].RetryAfter))
		w.until = max(w.until, s.until)
	}
	for i := range w.spots {
		if w.spots[i].until > 0 && !c.queue.fits(&w.spots[i]) {
			return false
		}
	}
	for i := range w.spots {
		s := &w.spots[i]
		if s.until == 0 {
			c.queue.quit(s, now)
			continue
		}
		c.queue.enter(s)
		c.queue.wakeAt(w, s.until)
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
	for i := range c.ledger.outs {
		if c.ledger.outs[i].Delay > c.ledger.outs[slowest].Delay {
			slowest = i
		}
	}
	c.deny(w, now, o, slowest, late)
	return true
}

// giveUp decides a request that waits no longer. Behind others it is not admitted before them.
func (c *candidate) giveUp(w *waiter, now stint.Instant) {
	if behind := c.queue.ahead(w); behind != nil {
		if o := c.decide(w.request, stint.Peek, now); o.decision.Allowed {
			first := slices.IndexFunc(c.ledger.parts, func(p part) bool { return w.claims[p.claim].rule == behind.rule })
			c.deny(w, now, o, max(first, 0), behind.rule.rule.MaxWait)
			return
		}
	}
	if !c.isLate(w, now) {
		c.leave(w, now, c.decide(w.request, stint.Take, now))
	}
}

// deny makes an admission that was looked for, and must not be used, a denial by a limit.
func (c *candidate) deny(w *waiter, now stint.Instant, o *outcome, index int, retry time.Duration) {
	if len(c.ledger.parts) > 0 {
		p, out := &c.ledger.parts[index], &c.ledger.outs[index]
		out.Allowed = false
		o.rule, o.key, o.permits = w.claims[p.claim].rule, w.claims[p.claim].Key, p.permits
		o.decision.Index, o.decision.Limit, o.decision.Remaining, o.decision.ResetAfter = int32(index), out.Limit, out.Remaining, out.ResetAfter
	}
	o.decision.Allowed, o.decision.RetryAfter, o.decision.Delay = false, retry, 0
	c.note(w.request, false, now)
	c.leave(w, now, o)
}

// leave ends the wait.
func (c *candidate) leave(w *waiter, now stint.Instant, o *outcome) {
	w.done = true
	o.waited = int64(now - w.time)
	c.finish(w.request, o)
	for i := range w.spots {
		c.queue.quit(&w.spots[i], now)
	}
}

// ahead is where somebody older waits: of several lines that whose first has the longest to wait; nil: nowhere.
func (q *queue) ahead(w *waiter) (slowest *spot) {
	var until stint.Instant
	for i := range w.spots {
		line := q.lines[w.spots[i].spotID]
		if len(line) == 0 || line[0].waiter.number >= w.number {
			continue
		}
		if slowest == nil || line[0].until > until {
			slowest, until = &w.spots[i], line[0].until
		}
	}
	return slowest
}

// fits reports whether the line of a spot has it, or has room for it.
func (q *queue) fits(s *spot) bool {
	return s.in || len(q.lines[s.spotID]) < cmp.Or(s.rule.rule.MaxWaiters, defaultWaiters)
}

func (s *spot) compare(number uint64) int { return cmp.Compare(s.waiter.number, number) }

// enter takes a spot in its line, before those who came later.
func (q *queue) enter(s *spot) {
	if s.in {
		return
	}
	line := q.lines[s.spotID]
	at, _ := slices.BinarySearchFunc(line, s.waiter.number, (*spot).compare)
	q.lines[s.spotID], s.in = slices.Insert(line, at, s), true
}

// quit gives a spot up; who is the first in its line then has its turn.
func (q *queue) quit(s *spot, now stint.Instant) {
	if !s.in {
		return
	}
	line := q.lines[s.spotID]
	at, _ := slices.BinarySearchFunc(line, s.waiter.number, (*spot).compare)
	line, s.in = slices.Delete(line, at, at+1), false
	if len(line) == 0 {
		delete(q.lines, s.spotID)
		return
	}
	q.lines[s.spotID] = line
	if first := line[0].waiter; at == 0 && first.until == 0 {
		q.wakeAt(first, now)
	}
}

func (q *queue) wakeAt(w *waiter, at stint.Instant) { heap.Push(&q.wakes, wake{at, w}) }

// A wake is to come; of those at one instant, that of whoever came first.
type wake struct {
	at     stint.Instant
	waiter *waiter
}

// Before orders wakes.
func (w wake) Before(other wake) bool {
	return cmp.Or(cmp.Compare(w.at, other.at), cmp.Compare(w.waiter.number, other.waiter.number)) < 0
}

// upcoming is a heap of what is to come, the next one first.
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
