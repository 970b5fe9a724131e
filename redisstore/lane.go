package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/watchdog"
)

// lane gathers operations while flights are under way. The first to come flies at
// once; what comes meanwhile flies together when a flight is back. So an idle caller
// waits for one round trip, and batches grow with the load.
//
// Where a round trip takes long, since the server is far away, waiting for one to be
// back would double the time. There a flight leaves every departureGap, too.
type lane struct {
	store    *Store
	layout   atomic.Pointer[layout]
	index    int
	epochs   epochs
	watchdog *watchdog.Watchdog

	mu      sync.Mutex
	pending queue
	queued  int // operations that wait
	flights int // under way
	idle    int // goroutines that wait for wake
	closed  bool
	pace    pace
	moved   time.Time     // when a flight last took from the queue, or the queue began
	waiting bool          // whether a timer will start a flight
	wake    chan struct{} // makes one of them fly; closed with the lane

	calls  context.Context // of flights; renewed when the server becomes unreachable
	cancel context.CancelCauseFunc
}

var (
	errFull   = fmt.Errorf("%w: too many operations wait for the server", stint.ErrOverloaded)
	errClosed = unavailable(errors.New("the store is closed"))
)

// maxFlightTime bounds a flight where nothing else does, so that a
// server that hangs does not hold the lane for ever.
const maxFlightTime = 10 * time.Second

// departureGap is how often a flight leaves where a round trip takes longer than farAway. A
// batch that is full takes the server a millisecond.
const departureGap = 10 * time.Millisecond

func (s *Store) newLane(index int) *lane {
	l := &lane{store: s, index: index, wake: make(chan struct{}, MaxFlights)}
	l.calls, l.cancel = context.WithCancelCause(s.life)
	l.watchdog = watchdog.New(watchdog.Config{
		Timeout: maxFlightTime, Try: l.try,
		Unreachable: func(cause error) {
			l.mu.Lock()
			l.cancel(cause)
			l.calls, l.cancel = context.WithCancelCause(s.life)
			l.mu.Unlock()
			if report := s.unreachable.Load(); report != nil {
				for shard := range s.shards {
					if n := min(s.shards, l.layout.Load().partitions); shard%n == index%n {
						(*report)(shard, cause)
					}
				}
			}
		},
	})
	return l
}

// try makes a call that changes nothing, for the watchdog.
func (l *lane) try(ctx context.Context) {
	_ = l.call(ctx, func(ctx context.Context) error {
		_, err := l.store.conn.Do(ctx, "HGET", l.settingsKey(), "layout")
		return err
	})
}

// call makes a call of the lane's server that is not a flight.
func (l *lane) call(ctx context.Context, do func(context.Context) error) error {
	var call watchdog.Call
	l.watchdog.Begin(&call)
	err := do(watchdog.With(ctx, &call))
	l.complete(ctx, &call, err)
	return err
}

// complete tells the watchdog how a call ended.
func (l *lane) complete(ctx context.Context, call *watchdog.Call, err error) {
	reply, replied := Reply(err)
	switch {
	case err == nil, errors.Is(err, errReply), errors.Is(err, errLayout), errors.Is(err, stint.ErrInvalid):
		l.watchdog.Answered(call)
	case replied && isRefusal(reply):
		l.watchdog.Refused(call, cause(err))
	case replied:
		l.watchdog.Answered(call)
	case ctx.Err() != nil:
		l.watchdog.Abandoned(call)
	default:
		l.watchdog.Lost(call, cause(err))
	}
}

// cause is what made the store unavailable.
func cause(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && errors.Is(err, stint.ErrUnavailable) {
		all := joined.Unwrap()
		return all[len(all)-1]
	}
	return err
}

// refusals are how replies begin that tell of a server that decides nothing at present.
var refusals = []string{
	"READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "OOM", "MISCONF", "NOREPLICAS", "BUSY", "NOAUTH", "NOPERM", "WRONGPASS",
}

// isRefusal reports whether a reply is a refusal of the server's, not of one command. Redis 6 wraps
// the errors of a script: "Error running script (call to f_…): @user_script:1: -OOM command not allowed …".
func isRefusal(reply string) bool {
	return slices.ContainsFunc(refusals, func(word string) bool {
		return strings.HasPrefix(reply, word+" ") || strings.Contains(reply, ": -"+word+" ")
	})
}

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
		p.fail(err)
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
		if !l.leave(p) {
			<-p.done
			return true
		}
		return false
	}
}

// leave ends a caller's wait, when its context has ended. It reports false when all
// has landed.
func (l *lane) leave(p *parcel) bool {
	if errors.Is(p.ctx.Err(), context.DeadlineExceeded) && l.watchdog.Unanswered() > 0 {
		l.watchdog.Check()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.landed == len(p.ops) {
		return false
	}
	p.left = true
	p.fail(l.overdue(p))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending.remove(p)
	l.queued -= len(p.ops) - p.boarded
	return true
}

// overdue is the error of a caller whose context has ended: that the store is
// unavailable if it had the time to answer and did not, else that this process is
// overloaded. The parcel is locked.
func (l *lane) overdue(p *parcel) error {
	err := p.ctx.Err()
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	timeout := p.timeout()
	if l.watchdog.Down() {
		return unavailable(fmt.Errorf("%w: %w", watchdog.ErrSilent, err))
	}
	if p.flight != nil {
		if age := l.watchdog.Age(&p.flight.call); 2*age >= timeout {
			return unavailable(fmt.Errorf("no answer within %s: %w", timeout, err))
		}
		return fmt.Errorf("%w: sent too late to be answered within %s: %w", stint.ErrOverloaded, timeout, err)
	}
	// It was not sent because the calls before it are not answered.
	if 10*l.watchdog.Unanswered() >= 9*timeout {
		return unavailable(fmt.Errorf("earlier calls were not answered within %s: %w", timeout, err))
	}
	return fmt.Errorf("%w: not sent within %s: %w", stint.ErrOverloaded, timeout, err)
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
	if l.flights == 0 {
		l.moved = time.Now()
	}
	p.start = l.moved
	l.pending.push(p)
	l.queued += len(p.ops)
	l.start()
	l.mu.Unlock()
	return nil
}

// start starts a flight if there is something to fly and one more may, or sees to it
// that one starts when it may. The lane is locked.
func (l *lane) start() {
	if l.pending.first == nil || l.flights >= l.most() {
		return
	}
	if far := l.far(); far && l.flights >= l.store.options.Flights {
		if l.waiting {
			return
		}
		if wait := departureGap - time.Since(l.moved); wait > 0 {
			l.waiting = true
			time.AfterFunc(wait, l.startLater)
			return
		}
	}
	l.flights++
	if l.far() {
		l.moved = time.Now()
	}
	if l.idle > 0 {
		l.idle--
		l.wake <- struct{}{}
		return
	}
	go l.fly()
}

// far reports whether the server is far away. The lane is locked.
func (l *lane) far() bool { return l.store.options.adapts && l.pace.far() }

// most is how many flights may be under way. The lane is locked.
func (l *lane) most() int {
	if !l.store.options.adapts {
		return l.store.options.Flights
	}
	return l.pace.flights(l.store.options.Flights)
}

func (l *lane) startLater() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = false
	l.start()
}

// fly makes flights whenever something waits, until the store is closed or enough others
// are idle. A goroutine of its own for each flight would have to grow its stack each time, which takes
// as long as the rest of what a flight of one take costs the process.
func (l *lane) fly() {
	l.flyAll()
	for l.rest() {
		l.flyAll()
	}
}

// rest waits until there is something to fly. It reports false when there will be nothing, or
// others to do it.
func (l *lane) rest() bool {
	l.mu.Lock()
	if l.closed || l.idle >= l.store.options.Flights {
		l.mu.Unlock()
		return false
	}
	l.idle++
	l.mu.Unlock()
	_, woken := <-l.wake
	return woken
}

// flyAll makes flights as long as something waits.
func (l *lane) flyAll() {
	var batch []*parcel
	for {
		fault := l.ready()
		f := newFlight(l)
		batch, f.most = l.take(batch[:0])
		if len(batch) == 0 {
			f.release()
			return
		}
		boarded := 0
		for boarded < len(batch) && l.board(f, batch[boarded]) {
			boarded++
		}
		// The last to board may have done so in part: it waits for what flies.
		if boarded < len(batch) && batch[boarded].flight != nil {
			boarded++
		}
		l.giveBack(batch[boarded:])
		if fault == nil {
			fault = l.carry(f)
		}
		if errors.Is(fault, errLayout) && l.layout.Load() != f.layout {
			l.giveBack(l.unboard(f)) // nothing was carried out, and it may be in the layout of now
		} else {
			l.giveBack(f.land(fault))
		}
		// Those who were answered, and have more to ask, go before the next flight
		// leaves: one that carries all of them costs less than two.
		runtime.Gosched()
		f.release()
		clear(batch)
	}
}

// carry sends a flight and waits for its answer. How long its callers wait does not
// matter: the watchdog bounds it.
func (l *lane) carry(f *flight) error {
	if len(f.entries) == 0 {
		return nil
	}
	ctx, end := l.context(f)
	defer end()
	began := time.Now()
	l.watchdog.Begin(&f.call)
	err := f.fly(watchdog.With(ctx, &f.call))
	l.complete(ctx, &f.call, err)
	if err == nil {
		l.mu.Lock()
		l.pace.note(time.Since(began), time.Now())
		l.mu.Unlock()
	}
	if err != nil && ctx.Err() != nil {
		return unavailable(context.Cause(ctx))
	}
	return err
}

// context is a flight's. While the server is unreachable it ends with the most patient of
// the callers, who only try whether it is back.
func (l *lane) context(f *flight) (ctx context.Context, end func()) {
	l.mu.Lock()
	ctx = l.calls
	l.mu.Unlock()
	if !l.watchdog.Down() {
		return ctx, func() {}
	}
	latest := time.Now()
	for i := range f.entries {
		deadline, limited := f.entries[i].parcel.ctx.Deadline()
		if !limited {
			deadline = time.Now().Add(maxFlightTime)
		}
		if deadline.After(latest) {
			latest = deadline
		}
	}
	// A context with a deadline would make rueidis read in the foreground, where it
	// closes the connection at the deadline. So the deadline comes as a cancellation.
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(time.Until(latest), func() { cancel(context.DeadlineExceeded) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// take takes parcels for one flight out of the queue, and tells how many limits it may decide; with
// none left, or one flight too many, the flight ends.
func (l *lane) take(batch []*parcel) (taken []*parcel, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights > l.most() {
		l.flights--
		return batch, 0
	}
	l.moved = time.Now()
	ops := 0
	most = l.store.options.MaxBatch
	if l.store.options.adapts {
		most = l.pace.batch(most)
	}
	for l.pending.first != nil && ops < most {
		p := l.pending.first
		l.pending.remove(p)
		ops += len(p.ops) - p.boarded
		batch = append(batch, p)
	}
	if len(batch) == 0 {
		l.flights--
	}
	return batch, most
}

// giveBack puts parcels back to the front of the queue, but for those whose callers have left.
func (l *lane) giveBack(batch []*parcel) {
	if len(batch) == 0 {
		return
	}
	for _, p := range slices.Backward(batch) {
		p.mu.Lock()
		if !p.left {
			l.mu.Lock()
			l.pending.pushFirst(p)
			l.mu.Unlock()
		}
		p.mu.Unlock()
	}
	l.mu.Lock()
	l.start()
	l.mu.Unlock()
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
		p.flight = f
		l.mu.Lock()
		l.queued -= p.boarded - from
		l.mu.Unlock()
	}
	return p.boarded == len(p.ops)
}

// close makes further operations fail.
func (l *lane) close() {
	l.mu.Lock()
	if !l.closed {
		l.closed, l.idle = true, 0
		close(l.wake)
	}
	l.mu.Unlock()
	l.watchdog.Close()
}
