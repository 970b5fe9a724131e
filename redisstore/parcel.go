package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// parcel is what one caller sends: operations to be decided in order. Once its caller
// has left, nothing of the caller's is touched.
type parcel struct {
	ctx     context.Context
	ops     []stint.Op
	results []stint.Result
	done    chan struct{}

	mu      sync.Mutex
	boarded int       // operations that have been sent
	landed  int       // operations that have been answered
	flight  *flight   // with the operations that are under way; nil for none
	left    bool      // whether the caller has left
	start   time.Time // when the queue last moved before it came

	previous, next *parcel // in the queue, guarded by the lane
	waits          bool    // whether it is there

	taken stint.Instant // of a release or a lapse, when what it gives back was taken
	extra int64         // permits to take on top of a take of one, one after another
	more  int64         // how many of those were admitted

	op     [1]stint.Op
	result [1]stint.Result
}

// newParcel makes a parcel, most often of one that has been recycled.
func (l *lane) newParcel(ctx context.Context) *parcel {
	p, used := l.store.parcels.Get().(*parcel)
	if !used {
		p = &parcel{done: make(chan struct{}, 1)}
	}
	p.ctx = ctx
	return p
}

// recycle takes a parcel that nobody else holds.
func (l *lane) recycle(p *parcel) {
	*p = parcel{done: p.done}
	l.store.parcels.Put(p)
}

// A bounded context knows for how long it lets a call wait.
type bounded interface{ Timeout() time.Duration }

// timeout is for how long the caller waits in all, at most the time between two flights too long.
func (p *parcel) timeout() time.Duration {
	if ctx, known := p.ctx.(bounded); known {
		return ctx.Timeout()
	}
	return time.Since(p.start)
}

// fail answers what has not been answered with an error.
func (p *parcel) fail(err error) {
	for i := p.landed; i < len(p.results); i++ {
		p.results[i] = stint.Result{Err: err}
	}
}

// land gives the answers, or the error, to those who wait. It returns the parcels
// with operations left to fly.
func (f *flight) land(err error) (further []*parcel) {
	for i := 0; i < len(f.entries); {
		p := f.entries[i].parcel
		p.mu.Lock()
		for ; i < len(f.entries) && f.entries[i].parcel == p; i++ {
			if p.left {
				continue
			}
			e := &f.entries[i]
			if err != nil {
				p.results[e.place] = stint.Result{Err: err}
			} else {
				p.results[e.place] = stint.Result{Decision: e.decision}
				p.more = e.admitted
				copy(p.ops[e.place].Each, f.outsOf(e))
			}
			p.landed++
		}
		p.flight = nil
		left, landed := p.left, p.landed == len(p.ops)
		p.mu.Unlock()
		switch {
		case left:
		case landed:
			p.done <- struct{}{} // from here on it is the caller's
		default:
			further = append(further, p)
		}
	}
	return further
}

// queue is a list of parcels.
type queue struct{ first, last *parcel }

// push appends a parcel.
func (q *queue) push(p *parcel) {
	p.previous, p.next, p.waits = q.last, nil, true
	if q.last == nil {
		q.first = p
	} else {
		q.last.next = p
	}
	q.last = p
}

// pushFirst puts a parcel before all others.
func (q *queue) pushFirst(p *parcel) {
	p.previous, p.next, p.waits = nil, q.first, true
	if q.first == nil {
		q.last = p
	} else {
		q.first.previous = p
	}
	q.first = p
}

// remove takes a parcel out, if it is there.
func (q *queue) remove(p *parcel) {
	if !p.waits {
		return
	}
	if p.previous == nil {
		q.first = p.next
	} else {
		p.previous.next = p.next
	}
	if p.next == nil {
		q.last = p.previous
	} else {
		p.next.previous = p.previous
	}
	p.previous, p.next, p.waits = nil, nil, false
}

// unboard takes all operations off a flight. It returns the parcels of those who wait for them.
func (l *lane) unboard(f *flight) (batch []*parcel) {
	for i := 0; i < len(f.entries); {
		p := f.entries[i].parcel
		for ; i < len(f.entries) && f.entries[i].parcel == p; i++ {
		}
		p.mu.Lock()
		n := p.boarded - p.landed
		p.boarded, p.flight = p.landed, nil
		if !p.left {
			l.mu.Lock()
			l.queued += n
			l.mu.Unlock()
			batch = append(batch, p)
		}
		p.mu.Unlock()
	}
	return batch
}
