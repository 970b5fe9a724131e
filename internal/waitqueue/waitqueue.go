// Package waitqueue orders requests that wait for permits: which of them may try, and which wait
// for others. It is a state machine without a clock, a lock or a channel. Times are arguments, in
// the unit of its user, and a waiter whose turn comes is told by a function of its own. So requests
// in real time and those of a simulation wait alike.
//
// A waiter is a request that counts in one or more queues, such as those of the rules that may hold it, for the client
// whom each counts. A queue has the waiters that were denied on its behalf, until it would admit them, and the waiters
// that arrived after them.
//
//   - A waiter may try when no older one is in any of its queues.
//   - One that is denied enters the queues that deny it (Deny). It may try again when the last of them admits it, and
//     leaves the others as they do (Release).
//   - One that is behind others enters one queue, theirs (Follow). Its turn comes when it is the first there.
//
// All queues are in the order of arrival. So a waiter waits for older ones only, never in a circle, whichever queues
// they are in, and the oldest of all waits for none.
package waitqueue

import (
	"cmp"
	"slices"
)

// Queues are those that have waiters, by what they are of. The zero value has none. They are not safe for concurrent
// use.
type Queues[K comparable] struct {
	arrived uint64 // how many numbers were given out
	byKey   map[K][]*Position[K]
}

// A Waiter is a request in queues, or on its way there. It must not be copied once it was compared
// with others.
type Waiter[K comparable] struct {
	// Positions are its places in the queues that it counts in. They don't change.
	Positions []Position[K]
	// Until is when the last queue that denies it admits. It is 0 of one that is behind others.
	Until int64
	// Turn is called when the waiter becomes the first of the queue in which it is behind others, at most once for each
	// time that it leaves a queue. It must not use the queues.
	Turn func(now int64)

	number uint64 // of its arrival; 0 until it is compared with others
}

// A Position is a waiter's place in one queue.
type Position[K comparable] struct {
	// Key names the queue.
	Key K
	// Room is how many the queue holds.
	Room int
	// Until is when the queue admits the waiter, by its last denial. Default: 0, it did not deny.
	Until int64

	waiter *Waiter[K]
	queued bool
}

func (p *Position[K]) compare(number uint64) int { return cmp.Compare(p.waiter.number, number) }

// Len is how many queues have waiters.
func (q *Queues[K]) Len() int { return len(q.byKey) }

// Ahead is a position in whose queue an older waiter is the first, by its index; -1 if there is
// none. Of several it is the one whose first has the longest to wait, so that nobody uses room in a
// queue that is about to move while another one holds it up. It is by the first look that a waiter
// arrives.
func (q *Queues[K]) Ahead(w *Waiter[K]) int {
	if w.number == 0 {
		q.arrived++
		w.number = q.arrived
		for i := range w.Positions {
			w.Positions[i].waiter = w
		}
	}
	slowest, until := -1, int64(0)
	for i := range w.Positions {
		queue := q.byKey[w.Positions[i].Key]
		if len(queue) == 0 || queue[0].waiter.number >= w.number {
			continue
		}
		if slowest < 0 || queue[0].Until > until {
			slowest, until = i, queue[0].Until
		}
	}
	return slowest
}

// First is when the first of a position's queue may try again; 0 if it tries now, or there is none.
func (q *Queues[K]) First(p *Position[K]) int64 {
	if queue := q.byKey[p.Key]; len(queue) > 0 {
		return queue[0].Until
	}
	return 0
}

// Follow has a waiter queue behind the older ones that Ahead found, and leave all other queues. It reports false, and
// changes nothing, if there is no room.
func (q *Queues[K]) Follow(w *Waiter[K], ahead int, now int64) bool {
	if !q.fits(&w.Positions[ahead]) {
		return false
	}
	w.Until = 0
	for i := range w.Positions {
		w.Positions[i].Until = 0
	}
	q.Enter(&w.Positions[ahead])
	for i := range w.Positions {
		if i != ahead {
			q.quit(&w.Positions[i], now)
		}
	}
	return true
}

// Deny has a waiter queue where its positions have an Until, and leave all other queues. It reports false, and changes
// nothing but Until, if there is no room in one of them.
func (q *Queues[K]) Deny(w *Waiter[K], now int64) bool {
	w.Until = 0
	for i := range w.Positions {
		p := &w.Positions[i]
		if p.Until > 0 && !q.fits(p) {
			return false
		}
		w.Until = max(w.Until, p.Until)
	}
	for i := range w.Positions {
		if p := &w.Positions[i]; p.Until > 0 {
			q.Enter(p)
		} else {
			q.quit(p, now)
		}
	}
	return true
}

// Release has a denied waiter leave the queues that admit it by now, and returns when the next one
// will.
func (q *Queues[K]) Release(w *Waiter[K], now int64) (next int64) {
	next = w.Until
	for i := range w.Positions {
		p := &w.Positions[i]
		switch {
		case !p.queued:
		case p.Until <= now:
			q.quit(p, now)
		default:
			next = min(next, p.Until)
		}
	}
	return next
}

// Leave has a waiter leave all queues.
func (q *Queues[K]) Leave(w *Waiter[K], now int64) {
	for i := range w.Positions {
		q.quit(&w.Positions[i], now)
	}
}

// Queued reports whether the waiter is in a queue.
func (w *Waiter[K]) Queued() bool {
	return slices.ContainsFunc(w.Positions, func(p Position[K]) bool { return p.queued })
}

// fits reports whether a position is in its queue, or the queue has room for it.
func (q *Queues[K]) fits(p *Position[K]) bool { return p.queued || len(q.byKey[p.Key]) < p.Room }

// Enter puts a position of a waiter that has arrived into its queue, before those of later waiters, whether there is
// room or not.
func (q *Queues[K]) Enter(p *Position[K]) {
	if p.queued {
		return
	}
	if q.byKey == nil {
		q.byKey = map[K][]*Position[K]{}
	}
	queue := q.byKey[p.Key]
	at, _ := slices.BinarySearchFunc(queue, p.waiter.number, (*Position[K]).compare)
	q.byKey[p.Key], p.queued = slices.Insert(queue, at, p), true
}

// quit takes a position out of its queue. If that was the first, it is the next waiter's turn.
func (q *Queues[K]) quit(p *Position[K], now int64) {
	if !p.queued {
		return
	}
	queue := q.byKey[p.Key]
	at, _ := slices.BinarySearchFunc(queue, p.waiter.number, (*Position[K]).compare)
	queue, p.queued = slices.Delete(queue, at, at+1), false
	if len(queue) == 0 {
		delete(q.byKey, p.Key)
		return
	}
	q.byKey[p.Key] = queue
	if first := queue[0].waiter; at == 0 && first.Until == 0 {
		first.Turn(now)
	}
}
