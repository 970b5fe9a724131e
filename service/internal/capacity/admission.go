// Package capacity bounds what a process does at once: the work under way, in fair turns ([Admission]), and the memory
// of the bodies of requests ([Bodies]).
package capacity

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// A client waits for admissionWait at most, so that it hears of the overload while its caller still
// wants to know.
const (
	// admissionWait is how long a request waits at most until its work may begin.
	admissionWait = 100 * time.Millisecond
	// maxWaiting is how many requests may wait, and waitingWork for how much work: so many times what may be under way.
	// Those that wait hold memory in proportion to their work.
	maxWaiting  = 1024
	waitingWork = 64
	// bytesPerOperation is how much text is as much work to read as an operation is to decide.
	bytesPerOperation = 64
	// keptClients is how many clients' shares are remembered before old ones are dropped, and mostClients
	// how many are at most: then all are forgotten.
	keptClients = 1024
	mostClients = 16 * keptClients
)

// An Admission bounds the work under way: operations to be decided, and text to be read, of
// which [bytesPerOperation] count as one. What exceeds it waits for its turn.
//
// Turns are fair between clients, by fair queueing (Demers, Keshav, Shenker, SIGCOMM 1989) with the
// virtual time of start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996): a request's start tag
// is the later of the virtual time and the finish tag of its client's previous one, its finish tag
// is its start tag and its cost, the smallest finish tag goes first, and the virtual time is the
// largest start tag that went. So a client that asks for little goes before all that ask for much:
// in the order of start tags it waited, for its second request while the virtual time stood still,
// for one of each of them. When too many wait, the largest finish tag, the heaviest client's, is
// refused.
//
// It is safe for concurrent use.
type Admission struct {
	// most bounds active, the operations under way now: active <= most, unless one request alone is
	// larger.
	most   int64
	active atomic.Int64 // now

	// waits is len(waiting), to be read without the lock.
	waits atomic.Int64
	mu    sync.Mutex
	// waiting are sorted by their finish tags, and those of one tag in the order of their coming.
	waiting []*waiter
	// work is the cost of those that wait.
	work int64
	// virtual is the virtual time: max over all requests that went of start. It never falls while
	// somebody waits, and begins at 0 again when nobody does.
	virtual int64
	// finish has the tag of each client's last request: start = max(virtual, finish[client]),
	// finish[client] = start + cost, less the cost of a request that is refused.
	finish map[string]int64
	// kept is how many tags there may be before old ones are dropped.
	kept int
}

// A waiter is a request that waits.
type waiter struct {
	// cost is in operations, as [CostOf] has it; start is the start tag.
	cost, start int64
	client      string
	// answer receives nil when the request may begin, or why it may not. It has room for one, so that
	// the sender never waits.
	answer chan error
}

// finish is the request's finish tag, by which those that wait are sorted.
func (w *waiter) finish() int64 { return w.start + w.cost }

// A Ticket is an admitted request's part of the work under way. The zero Ticket has none.
type Ticket struct {
	admission *Admission
	cost      int64
}

// Leave ends the work. It may be called again.
func (t *Ticket) Leave() {
	if t.cost > 0 {
		t.admission.leave(t.cost)
		t.cost = 0
	}
}

// Lacks reports whether the work that was admitted is less than a cost, as far as that may be under way at all.
func (t *Ticket) Lacks(cost int64) bool { return t.cost > 0 && t.cost < min(cost, t.admission.most) }

// NewAdmission makes an admission for so many operations under way at once.
func NewAdmission(most int) *Admission {
	return &Admission{most: int64(most), finish: map[string]int64{}, kept: keptClients}
}

// CostOf is the work of so many operations and so much text. The text counts since reading a long
// body takes as long as many decisions.
func CostOf(operations, text int) int64 { return int64(max(operations, 1) + text/bytesPerOperation) }

// Enter waits until a client's work may begin. While less than half of the work that may be under
// way is, nobody asks whose it is. An error wraps stint.ErrOverloaded, or is the context's. The
// cost is bounded by most, so that the largest request can enter an idle process. The caller leaves
// the ticket when its work is done.
func (a *Admission) Enter(ctx context.Context, cost int64, client func() string) (Ticket, error) {
	cost = min(cost, a.most)
	if a.waits.Load() == 0 && a.reserve(cost, a.most/2) {
		return Ticket{a, cost}, nil
	}
	return a.queue(ctx, cost, client())
}

// reserve adds a cost to the active work, unless that would exceed most. A cost enters alone
// whatever its size.
func (a *Admission) reserve(cost, most int64) bool {
	for {
		active := a.active.Load()
		if active > 0 && active+cost > most {
			return false
		}
		if a.active.CompareAndSwap(active, active+cost) {
			return true
		}
	}
}

// queue is Enter for a client whose share counts. It is the slow way: one lock, O(log n) to find
// its place and O(n) to insert itself, n <= maxWaiting.
func (a *Admission) queue(ctx context.Context, cost int64, client string) (Ticket, error) {
	a.mu.Lock()
	if len(a.waiting) == 0 && a.reserve(cost, a.most) {
		a.mu.Unlock()
		return Ticket{a, cost}, nil
	}
	w := &waiter{cost: cost, start: max(a.virtual, a.finish[client]), client: client, answer: make(chan error, 1)}
	a.remember(client, w.start+cost)
	behind := sort.Search(len(a.waiting), func(i int) bool { return a.waiting[i].finish() > w.finish() })
	a.waiting = slices.Insert(a.waiting, behind, w)
	a.waits.Add(1)
	a.work += cost
	for last := len(a.waiting) - 1; last >= maxWaiting || a.work > waitingWork*a.most; last-- {
		heaviest := a.waiting[last]
		a.refuse(last)
		heaviest.answer <- errOverload(fmt.Sprintf("%d requests wait already", last))
	}
	a.begin() // work may have ended since it was too much
	a.mu.Unlock()

	timer := time.NewTimer(admissionWait)
	defer timer.Stop()
	var err error
	select {
	case err = <-w.answer:
	case <-timer.C:
		err = a.giveUp(w, errOverload(fmt.Sprintf("its turn did not come within %s", admissionWait)))
	case <-ctx.Done():
		err = a.giveUp(w, ctx.Err())
	}
	if err != nil {
		return Ticket{}, err
	}
	return Ticket{a, cost}, nil
}

// giveUp no longer waits, for a reason, unless the answer comes at this moment. If it is not among
// those that wait any more, its answer was sent, and is taken in the place of why: a turn that was
// given is not lost.
func (a *Admission) giveUp(w *waiter, why error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := slices.Index(a.waiting, w)
	if at < 0 {
		return <-w.answer
	}
	a.refuse(at)
	a.begin() // what it kept waiting may fit
	return why
}

// errOverload is answered 503 with Retry-After. It wraps stint.ErrOverloaded, by which the other
// protocols know it.
func errOverload(why string) error {
	overloaded := problem.ReducedCapacity("the service is overloaded, and " + why + "; nothing was consumed")
	overloaded.Cause = stint.ErrOverloaded
	return overloaded
}

// remember keeps a client's finish tag. Those that the virtual time has passed say nothing; they are looked
// for when there are twice as many tags as were left the last time.
func (a *Admission) remember(client string, finish int64) {
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
func (a *Admission) remove(at int) {
	a.work -= a.waiting[at].cost
	a.waiting = slices.Delete(a.waiting, at, at+1)
	a.waits.Add(-1)
}

// refuse takes a request out that gets no turn. Its client does not pay for it: else one that asked for much for a
// while, and got nothing, would have no turn for as long after that.
func (a *Admission) refuse(at int) {
	w := a.waiting[at]
	a.remove(at)
	if tag, kept := a.finish[w.client]; kept {
		a.finish[w.client] = tag - w.cost
	}
}

// begin admits waiting requests while their cost fits, in the order of their finish tags. It is
// called with the lock held whenever work ends or the queue changes. The first one is not passed by
// a smaller one behind it, or a large request would starve.
func (a *Admission) begin() {
	for len(a.waiting) > 0 && a.reserve(a.waiting[0].cost, a.most) {
		w := a.waiting[0]
		a.remove(0)
		a.virtual = max(a.virtual, w.start)
		w.answer <- nil
	}
	if len(a.waiting) == 0 {
		a.virtual = 0
		clear(a.finish)
	}
}

// leave ends work, and lets other begin. Without anyone who waits it takes no lock.
func (a *Admission) leave(cost int64) {
	a.active.Add(-cost)
	if a.waits.Load() == 0 {
		return
	}
	a.mu.Lock()
	a.begin()
	a.mu.Unlock()
}
