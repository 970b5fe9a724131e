package redisstore

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// lane gathers operations while flights are under way. The first to come flies at
// once; what comes meanwhile flies together when a flight is back. So an idle caller
// waits for one round trip, and batches grow with the load.
//
// Where a flight takes long, since the server is far away or slow, waiting for one to be
// back would double the time. There a flight leaves every departureGap, too.
type lane struct {
	store *Store

	mu      sync.Mutex
	pending []*parcel
	first   int // of pending; those before have gone
	queued  int // operations that wait
	flights int // under way
	closed  bool
	far     bool      // whether the last flight took long
	left    time.Time // when a flight left last, if it is far
	waiting bool      // whether a timer will start a flight
}

var (
	errFull   = errors.New("too many operations wait for the server")
	errClosed = errors.New("the store is closed")
)

// maxFlightTime bounds a flight none of whose callers has a deadline, so that a
// server that hangs does not hold the lane for ever.
const maxFlightTime = 10 * time.Second

const (
	// departureGap is how often a flight leaves where the last took longer than farAway. A
	// batch that is full takes the server a millisecond.
	departureGap = 10 * time.Millisecond
	farAway      = 2 * departureGap
)

// decide sends operations through the lane and waits for their answers.
func (l *lane) decide(ctx context.Context, ops []stint.Op, results []stint.Result) {
	p := l.newParcel(ctx)
	p.ops, p.results = ops, results
	l.send(p)
}

// decideOne is decide for one operation, without slices of the caller's.
func (l *lane) decideOne(ctx context.Context, op *stint.Op) (d stint.Decision, err error) {
	p := l.newParcel(ctx)
	p.op[0] = *op
	p.ops, p.results = p.op[:], p.result[:]
	free := l.send(p)
	d, err = p.result[0].Decision, p.result[0].Err
	if free {
		l.recycle(p)
	}
	return d, err
}

// send queues a parcel and waits until all of it has landed or its context has ended.
// It reports whether the lane has let go of it.
func (l *lane) send(p *parcel) (free bool) {
	if err := l.enqueue(p); err != nil {
		p.fail(unavailable(err))
		return true
	}
	return l.await(p)
}

// await waits until all of a queued parcel has landed or its context has ended.
func (l *lane) await(p *parcel) (free bool) {
	end := p.ctx.Done()
	if end == nil {
		<-p.done // a select of one costs more
		return true
	}
	select {
	case <-p.done:
		return true
	case <-end:
		if !p.leave() {
			<-p.done
			return true
		}
		l.mu.Lock()
		l.queued -= len(p.ops) - p.boarded
		l.mu.Unlock()
		return false
	}
}

// enqueue queues a parcel, and starts a flight if one more may be under way.
func (l *lane) enqueue(p *parcel) error {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return errClosed
	case l.queued+len(p.ops) > l.store.options.MaxQueue && l.queued > 0 && p.ops[0].Verb != release:
		l.mu.Unlock()
		return errFull
	}
	l.pending = append(l.pending, p)
	l.queued += len(p.ops)
	l.start()
	l.mu.Unlock()
	return nil
}

// start starts a flight if there is something to fly and one more may, or sees to it
// that one starts when it may. The lane is locked.
func (l *lane) start() {
	if l.first == len(l.pending) {
		return
	}
	if l.flights >= l.store.options.Flights {
		if !l.far || l.waiting || l.flights == MaxFlights {
			return
		}
		if wait := departureGap - time.Since(l.left); wait > 0 {
			l.waiting = true
			time.AfterFunc(wait, l.startLater)
			return
		}
	}
	l.flights++
	if l.far {
		l.left = time.Now()
	}
	go l.fly()
}

func (l *lane) startLater() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = false
	l.start()
}

// fly makes flights as long as something waits.
func (l *lane) fly() {
	var batch []*parcel
	for {
		batch = l.take(batch[:0])
		if len(batch) == 0 {
			return
		}
		f := newFlight(l.store)
		boarded := 0
		for boarded < len(batch) && l.board(f, batch[boarded]) {
			boarded++
		}
		// The last to board may have done so in part: it waits for what flies.
		if boarded < len(batch) && batch[boarded].aloft {
			boarded++
		}
		l.giveBack(batch[boarded:])
		sent := time.Now()
		err := f.carry()
		l.landed(err == nil && l.store.options.adapts && time.Since(sent) > farAway)
		l.giveBack(f.land(err))
		f.release()
		clear(batch)
		// Those who were answered, and have more to ask, go before the next flight
		// leaves: one that carries all of them costs less than two.
		runtime.Gosched()
	}
}

// landed notes whether the server is far.
func (l *lane) landed(far bool) {
	l.mu.Lock()
	l.far = far
	l.mu.Unlock()
}

// take takes parcels for one flight out of the queue; with none left, or one flight too
// many, the flight ends.
func (l *lane) take(batch []*parcel) []*parcel {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights > l.store.options.Flights && !l.far {
		l.flights--
		return batch
	}
	if l.far {
		l.left = time.Now()
	}
	ops := 0
	for l.first < len(l.pending) && ops < l.store.options.MaxBatch {
		p := l.pending[l.first]
		l.pending[l.first] = nil
		l.first++
		ops += len(p.ops) - p.boarded
		batch = append(batch, p)
	}
	if l.first == len(l.pending) {
		l.pending, l.first = l.pending[:0], 0
	}
	if len(batch) == 0 {
		l.flights--
	}
	return batch
}

// giveBack puts parcels back to the front of the queue.
func (l *lane) giveBack(batch []*parcel) {
	if len(batch) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first < len(batch) {
		l.pending = append(make([]*parcel, len(batch)), l.pending[l.first:]...)
		l.first = len(batch)
	}
	l.first -= len(batch)
	copy(l.pending[l.first:], batch)
	l.start()
}

// board takes a parcel's operations on board. It reports whether all are: of what
// is left, the first to fly later is p.boarded.
func (l *lane) board(f *flight, p *parcel) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return true
	}
	from := p.boarded
	for p.boarded < len(p.ops) && f.add(p, p.boarded, &p.ops[p.boarded]) {
		p.boarded++
	}
	if p.boarded > from {
		p.aloft = true
		l.mu.Lock()
		l.queued -= p.boarded - from
		l.mu.Unlock()
	}
	return p.boarded == len(p.ops)
}

// close makes further operations fail.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
}

// parcel is what one caller sends: operations to be decided in order. Once its caller
// has left, nothing of the caller's is touched.
type parcel struct {
	ctx     context.Context
	ops     []stint.Op
	results []stint.Result
	done    chan struct{}

	mu      sync.Mutex
	boarded int  // operations that have been sent
	landed  int  // operations that have been answered
	aloft   bool // whether some are under way
	left    bool // whether the caller has left

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

// leave ends a caller's wait, when its context has ended. It reports false when all
// has landed.
func (p *parcel) leave() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.landed == len(p.ops) {
		return false
	}
	p.left = true
	p.fail(p.ctx.Err())
	return true
}

// fail answers what has not been answered with an error.
func (p *parcel) fail(err error) {
	for i := p.landed; i < len(p.results); i++ {
		p.results[i] = stint.Result{Err: err}
	}
}

// carry sends a flight, for as long as the most patient of its callers waits.
func (f *flight) carry() error {
	if len(f.entries) == 0 {
		return nil
	}
	latest := time.Time{}
	for i := range f.entries {
		deadline, limited := f.entries[i].parcel.ctx.Deadline()
		if !limited {
			latest = time.Now().Add(maxFlightTime)
			break
		}
		if deadline.After(latest) {
			latest = deadline
		}
	}
	// A context with a deadline would make rueidis read in the foreground, where it
	// closes the connection at the deadline, and notices a server's restart only by
	// losing a command. So the deadline comes as a cancellation.
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	timer := time.AfterFunc(time.Until(latest), func() { cancel(context.DeadlineExceeded) })
	defer timer.Stop()
	err := f.fly(ctx)
	if err != nil && ctx.Err() != nil {
		return unavailable(context.Cause(ctx))
	}
	return err
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
		p.aloft = false
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
