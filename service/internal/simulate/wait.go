package simulate

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/waitqueue"
)

// ticks are an instant on the limiter's clock, which is in nanoseconds above 0, and instant is when a time of it has
// come.
func (c *candidate) ticks(at stint.Instant) int64 { return int64(at-c.begun)*1000 + 1 }

func (c *candidate) instant(ticks int64) stint.Instant {
	return c.begun + stint.Instant((ticks+998)/1000)
}

// wait has a request wait that rules may hold, and reports whether it is decided already.
func (c *candidate) wait(r *request) bool {
	r.number = c.arrive()
	turn := func(now int64) { c.wakeAt(r, now) }
	r.waiter = c.limiter.Steps().Waiter(&r.verdict, c.ticks(r.time), bounds.MaxWaitLimit, turn)
	return c.step(r, r.time)
}

// step takes the steps of a waiter up to the next one that takes time, and reports whether it is decided.
func (c *candidate) step(r *request, now stint.Instant) bool {
	for {
		step, _ := r.waiter.Step(c.ticks(now), nil) // the tables can always decide
		if c.verb == stint.VerbPeek && (step.Do == waitqueue.Shadow || step.Do == waitqueue.Done) {
			c.denyPeeked(r)
		}
		switch step.Do {
		case waitqueue.Done:
			c.finish(r, now)
			return true
		case waitqueue.Follow, waitqueue.Pause:
			c.wakeAt(r, step.Until)
			return false
		default:
			c.ask(r, step.Do, now)
		}
	}
}

// denyPeeked records the denial of a request whose limits would admit it, by the rule that the waiter named: whichever
// of the rule's ways admits.
func (c *candidate) denyPeeked(r *request) {
	c.verb = stint.VerbTake
	v := &r.verdict
	if !c.known || v.Allowed {
		return
	}
	for i := range c.store.ops {
		p := &c.store.ops[i]
		ofRule := r.claims[p.claim].rule.rule.ID == v.Rule.ID
		if ofRule && (len(c.store.Ways) > 0 || p.table.policy == v.Claim.Policy) {
			c.store.Outs[i].Allowed = false
		}
	}
	c.record(false)
}

// wakeAt wakes a waiter at a time of the limiter's clock, and not at one that was said before.
func (c *candidate) wakeAt(r *request, ticks int64) {
	r.wakes = c.instant(ticks)
	heap.Push(&c.wakes, wake{at: r.wakes, kind: 1, number: r.number, waiter: r})
}

// advance wakes the waiters, and ends the holds, that are due until an instant.
func (c *candidate) advance(now stint.Instant) {
	for len(c.wakes) > 0 && c.wakes[0].at <= now {
		next := heap.Pop(&c.wakes).(wake)
		if next.holding != nil {
			c.end(next.holding, next.at)
		} else if next.waiter.wakes == next.at {
			next.waiter.wakes = -1
			c.step(next.waiter, next.at)
		}
	}
}

// arrive numbers what waits or holds.
func (c *candidate) arrive() uint64 {
	c.arrived++
	return c.arrived
}

// A wake is when a waiter is to be woken, or a hold ends. At one instant all holds end first, and
// the older one is first. Holds end first, so that what they give back is there for those that wake
// at the same instant.
type wake struct {
	at      stint.Instant
	kind    uint8 // 0: of a hold
	number  uint64
	waiter  *request
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
