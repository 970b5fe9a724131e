package server

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/server/problem"
)

const (
	// admissionWait is how long a request waits at most until its work may begin.
	admissionWait = 100 * time.Millisecond
	// admissionRoom is how many requests may wait.
	admissionRoom = 1024
	// bytesPerOperation is how much text is as much work to read as an operation is to decide.
	bytesPerOperation = 64
	// keptClients is how many clients' shares are remembered before old ones are dropped, and mostClients
	// how many are at most: then all are forgotten.
	keptClients = 1024
	mostClients = 16 * keptClients
)

// An admission bounds the work under way: operations to be decided, and text to be read, of
// which [bytesPerOperation] count as one. What exceeds it waits for its turn.
//
// Turns are fair between clients, by start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM
// 1996): a request's start tag is the later of the virtual time and the finish tag of its
// client's previous one, its finish tag is its start tag and its cost, the smallest start tag goes
// first, and the virtual time is the start tag that went last. So a client that asks for little goes
// before all but one request of each that asks for much, and when too many wait, the
// largest start tag, the heaviest client's, is refused.
//
// It is safe for concurrent use.
type admission struct {
	most  int64        // operations under way
	under atomic.Int64 // now

	waits   atomic.Int64 // requests that wait, to be read without the lock
	mu      sync.Mutex
	waiting waiters
	virtual int64
	finish  map[string]int64 // tags, by client
	kept    int              // how many there may be before old ones are dropped
	last    uint64
}

// A waiter is a request that waits.
type waiter struct {
	cost     int64
	start    int64
	sequence uint64
	index    int        // in the heap; -1 when it waits no more
	answer   chan error // nil: it may begin
}

// A ticket is an admitted request's part of the work under way. The zero ticket has none.
type ticket struct {
	admission *admission
	cost      int64
}

// leave ends the work. It may be called again.
func (t *ticket) leave() {
	if t.cost > 0 {
		t.admission.leave(t.cost)
		t.cost = 0
	}
}

func newAdmission(most int) *admission {
	return &admission{most: int64(most), finish: map[string]int64{}, kept: keptClients}
}

// costOf is the work of so many operations and so much text.
func costOf(operations, text int) int64 { return int64(max(operations, 1) + text/bytesPerOperation) }

// enter waits until a client's work may begin. While less than half of the work that may be
// under way is, nobody asks whose it is. An error wraps stint.ErrOverloaded, or is the context's.
func (a *admission) enter(ctx context.Context, cost int64, client func() string) (ticket, error) {
	cost = min(cost, a.most)
	if a.waits.Load() == 0 && a.take(cost, a.most/2) {
		return ticket{a, cost}, nil
	}
	return a.queue(ctx, cost, client())
}

// take takes a part of the work, if no more than most is under way then.
func (a *admission) take(cost, most int64) bool {
	for {
		under := a.under.Load()
		if under > 0 && under+cost > most {
			return false
		}
		if a.under.CompareAndSwap(under, under+cost) {
			return true
		}
	}
}

// queue is enter for a client whose share counts.
func (a *admission) queue(ctx context.Context, cost int64, client string) (ticket, error) {
	a.mu.Lock()
	if len(a.waiting) == 0 && a.take(cost, a.most) {
		a.mu.Unlock()
		return ticket{a, cost}, nil
	}
	w := &waiter{cost: cost, start: max(a.virtual, a.finish[client]), sequence: a.last, answer: make(chan error, 1)}
	a.last++
	a.remember(client, w.start+cost)
	heap.Push(&a.waiting, w)
	a.waits.Add(1)
	if len(a.waiting) > admissionRoom {
		heaviest := a.waiting.heaviest()
		a.remove(heaviest)
		heaviest.answer <- errOverload(fmt.Sprintf("%d requests wait already", admissionRoom))
	}
	a.begin() // work may have ended since it was too much
	a.mu.Unlock()

	timer := time.NewTimer(admissionWait)
	defer timer.Stop()
	err := error(nil)
	select {
	case err = <-w.answer:
		return ticketOf(a, cost, err)
	case <-timer.C:
		err = errOverload(fmt.Sprintf("its turn did not come within %s", admissionWait))
	case <-ctx.Done():
		err = ctx.Err()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.index < 0 { // its turn came at this moment
		return ticketOf(a, cost, <-w.answer)
	}
	a.remove(w)
	a.begin() // what it kept waiting may fit
	return ticket{}, err
}

// enter waits until the request's work may begin. Where overload admits, a request that may not
// begin gets a context that says so, by which the store decides without being asked.
func (s *service) enter(r *http.Request, cost int64) (*http.Request, ticket, error) {
	t, err := s.admission.enter(r.Context(), cost, func() string { return s.clients.Key(r.RemoteAddr, r.Header) })
	switch {
	case err == nil:
		return r, t, nil
	case !errors.Is(err, stint.ErrOverloaded):
		return r, ticket{}, errGone
	}
	if !s.config.OverloadAdmits {
		return r, ticket{}, err
	}
	s.noteOverload(r, err)
	ctx, cancel := context.WithCancelCause(r.Context())
	cancel(err)
	return r.WithContext(ctx), ticket{}, nil
}

func ticketOf(a *admission, cost int64, err error) (ticket, error) {
	if err != nil {
		return ticket{}, err
	}
	return ticket{a, cost}, nil
}

func errOverload(why string) error {
	overloaded := problem.ReducedCapacity("the service is overloaded, and " + why + "; nothing was consumed")
	overloaded.Cause = stint.ErrOverloaded
	return overloaded
}

// remember keeps a client's finish tag. Those that the virtual time has passed say nothing; they are looked
// for when there are twice as many tags as were left the last time.
func (a *admission) remember(client string, finish int64) {
	if len(a.finish) >= a.kept {
		for other, tag := range a.finish {
			if tag <= a.virtual {
				delete(a.finish, other)
			}
		}
		if len(a.finish) > mostClients/2 {
			clear(a.finish)
		}
		a.kept = max(keptClients, 2*len(a.finish))
	}
	a.finish[client] = finish
}

// remove takes a request out that does not wait any more.
func (a *admission) remove(w *waiter) {
	heap.Remove(&a.waiting, w.index)
	a.waits.Add(-1)
}

// begin lets requests begin for which there is room, in the order of their start tags.
func (a *admission) begin() {
	for len(a.waiting) > 0 && a.take(a.waiting[0].cost, a.most) {
		w := a.waiting[0]
		a.remove(w)
		a.virtual = w.start
		w.answer <- nil
	}
	if len(a.waiting) == 0 {
		a.virtual = 0
		clear(a.finish)
	}
}

// leave ends work, and lets other begin.
func (a *admission) leave(cost int64) {
	a.under.Add(-cost)
	if a.waits.Load() == 0 {
		return
	}
	a.mu.Lock()
	a.begin()
	a.mu.Unlock()
}

// waiters is a heap of requests by their start tags.
type waiters []*waiter

func (h waiters) Len() int { return len(h) }

func (h waiters) Less(i, j int) bool {
	if h[i].start != h[j].start {
		return h[i].start < h[j].start
	}
	return h[i].sequence < h[j].sequence
}

func (h waiters) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements [heap.Interface].
func (h *waiters) Push(x any) {
	w, _ := x.(*waiter)
	w.index = len(*h)
	*h = append(*h, w)
}

// Pop implements [heap.Interface].
func (h *waiters) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	w.index = -1
	return w
}

// heaviest is the request with the largest start tag, one of the heap's leaves.
func (h waiters) heaviest() *waiter {
	at := len(h) / 2
	for i := at; i < len(h); i++ {
		if h.Less(at, i) {
			at = i
		}
	}
	return h[at]
}
