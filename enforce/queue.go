package enforce

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/rules"
)

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
