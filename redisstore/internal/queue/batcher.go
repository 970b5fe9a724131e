// Package queue gathers operations and sends them in batches. It holds the calls that wait and the batches in flight,
// bounds both, and handles callers who leave and operations that have to be sent later. Package wire makes the batches.
package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/watchdog"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// A Config is what all batchers of a store have in common. It must not be copied or changed once it is used.
type Config struct {
	Life     context.Context // the store's
	MaxBatch int             // how many limits a batch decides at most
	InFlight int             // how many batches are in flight at most; 0: as the server's distance needs
	MaxQueue int             // how many operations wait at most, by batcher
	// Send makes the call of a batch. It must not keep it.
	Send func(ctx context.Context, b *wire.Batch) error
	// OnCall is told of each call that has ended. Default: nil.
	OnCall func(elapsed time.Duration, operations, coalesced int, err error)
	// Ready waits for the attempt to connect that is under way, unless there is a connection.
	Ready func(ctx context.Context) error
	// Connection is what the watchdog asks how far this process has come.
	Connection watchdog.Connection

	calls, batches sync.Pool
}

// A Batcher gathers operations while batches are in flight. The first to come is sent immediately;
// what comes meanwhile is sent together when a reply is there. So an idle caller waits for one
// round trip, and batches grow with the load.
//
// Where a round trip takes long, since the server is far away, waiting for a reply
// would double the time. There a batch is sent every pace.gap, too.
//
// There is one batcher, or on a cluster one for each partition. Callers queue calls (Do); senders,
// which are goroutines, take what waits and send it. It is safe for concurrent use. Its lock is
// never held over a round trip; a call's lock may be held when it is taken, not the other way
// round.
type Batcher struct {
	Target *wire.Target // where it sends

	config   *Config
	watchdog *watchdog.Watchdog

	mu      sync.Mutex
	pending list
	// queued is the number of waiting operations. Only a call that found the queue empty may raise it above MaxQueue.
	queued int
	// inFlight is how many batches are with the server, or about to be.
	inFlight int
	// idleSenders is how many goroutines wait for wake.
	idleSenders int
	closed      bool
	pace        pace
	// lastMoved is when calls last left the queue, or the queue began.
	lastMoved time.Time
	// timerSet says that a timer will start a sender.
	timerSet bool
	// wake makes an idle sender send; it is closed with the batcher.
	wake chan struct{}

	// sendCtx is of batches in flight; it is renewed when the server becomes unreachable, which ends
	// them.
	sendCtx     context.Context
	cancelSends context.CancelCauseFunc
}

// ErrClosed says that the store is closed.
var ErrClosed = Unavailable(errors.New("the store is closed"))

var errQueueFull = fmt.Errorf("%w: too many operations wait for the server", stint.ErrOverloaded)

// MaxInFlight is how many batches may be in flight at most.
const MaxInFlight = 64

// MaxSendTime bounds a batch where nothing else does, so that a
// server that hangs does not hold the batcher for ever.
const MaxSendTime = 10 * time.Second

// New makes a batcher. Its watchdog makes the call try, which changes nothing, to find out whether the server is there,
// and when it has been silent for the timeout ends what is in flight and calls unreachable.
func New(
	config *Config, target *wire.Target, timeout time.Duration,
	try func(context.Context) error, unreachable func(cause error),
) *Batcher {
	br := &Batcher{Target: target, config: config, pace: newPace(config), wake: make(chan struct{}, MaxInFlight)}
	br.sendCtx, br.cancelSends = context.WithCancelCause(config.Life)
	br.watchdog = watchdog.New(watchdog.Config{
		Timeout: timeout, Connection: config.Connection,
		Try: func(ctx context.Context) { _ = br.RoundTrip(ctx, try) },
		Unreachable: func(cause error) {
			br.mu.Lock()
			br.cancelSends(cause)
			br.sendCtx, br.cancelSends = context.WithCancelCause(config.Life)
			br.mu.Unlock()
			unreachable(cause)
		},
	})
	return br
}

// SetTimeout sets after which time a silent server is unreachable.
func (br *Batcher) SetTimeout(timeout time.Duration) { br.watchdog.SetTimeout(timeout) }

// Load is how many operations wait, and how many calls are under way.
func (br *Batcher) Load() (queued, inFlight int) {
	br.mu.Lock()
	defer br.mu.Unlock()
	return br.queued, br.inFlight
}

// Calls is how many calls are in the queue. It is for tests, as is SetDistance.
func (br *Batcher) Calls() (n int) {
	br.mu.Lock()
	defer br.mu.Unlock()
	for c := br.pending.first; c != nil; c = c.next {
		n++
	}
	return n
}

// SetDistance makes the batcher believe that its server is so far away.
func (br *Batcher) SetDistance(roundTrip time.Duration) {
	br.mu.Lock()
	defer br.mu.Unlock()
	br.pace = newPace(br.config)
	br.pace.note(roundTrip, time.Now())
}

// RoundTrip makes a call of the batcher's server that is not a batch, watched like one.
func (br *Batcher) RoundTrip(ctx context.Context, do func(context.Context) error) error {
	var call watchdog.Call
	began := time.Now()
	br.watchdog.Begin(&call)
	err := do(ctx)
	br.report(ctx, &call, err)
	br.notePace(began, err)
	return err
}

// report tells the watchdog how a call of the server ended. Three kinds of errors are told apart:
// the server answered, if only with an error (it is there); it refused to serve (LOADING,
// MASTERDOWN and the like); nothing came. A caller that gave up says nothing about the server.
func (br *Batcher) report(ctx context.Context, call *watchdog.Call, err error) {
	reply, replied := redisconn.Reply(err)
	switch {
	case err == nil, errors.Is(err, wire.ErrReply), errors.Is(err, wire.ErrLayout):
		br.watchdog.Answered(call)
	case replied && isRefusal(reply):
		br.watchdog.Refused(call, cause(err))
	case replied:
		br.watchdog.Answered(call)
	case ctx.Err() != nil:
		br.watchdog.Abandoned(call)
	default:
		br.watchdog.Lost(call, cause(err))
	}
}

// notePace notes for the pace how long a call took that was answered now.
func (br *Batcher) notePace(began time.Time, err error) {
	if err == nil {
		br.mu.Lock()
		br.pace.note(time.Since(began), time.Now())
		br.mu.Unlock()
	}
}

// Decide sends operations through the batcher and waits for their answers, for as long as the timeout if it is not 0.
func (br *Batcher) Decide(ctx context.Context, timeout time.Duration, ops []stint.Op, results []stint.Result) {
	br.Do(br.NewCallOf(ctx, timeout, ops, results))
}

// DecideOne is Decide for one operation, without slices of the caller's.
func (br *Batcher) DecideOne(ctx context.Context, op *stint.Op) (d stint.Decision, err error) {
	c := br.NewCall(ctx, op)
	done := br.Do(c)
	d, err = c.result[0].Decision, c.result[0].Err
	if done {
		br.Recycle(c)
	}
	return d, err
}

// Do queues a call and waits until all of it has been answered, its time is up or its context has ended.
// It reports whether the call is the caller's again.
func (br *Batcher) Do(c *Call) (done bool) {
	if err := br.Enqueue(c); err != nil {
		c.fail(err)
		return true
	}
	return br.Await(c)
}

// Await is what Do does once the call is queued.
func (br *Batcher) Await(c *Call) (done bool) {
	end, late := c.ctx.Done(), c.lateness()
	if end == nil && late == nil {
		<-c.done // a select of one costs more
		return true
	}
	if late != nil {
		defer c.timer.Stop()
	}
	timeUp := true
	select {
	case <-c.done:
		return true
	case <-late:
	case <-end:
		timeUp = isLate(c.ctx)
	}
	if br.abandon(c, timeUp) {
		return false
	}
	<-c.done
	return true
}

// abandon ends a caller's wait, since its time is up or, if it is not late, its context has ended.
// It reports false when all has been answered. Operations that were sent may have been carried out:
// their permits stay spent. Those that still wait are taken out of the queue.
func (br *Batcher) abandon(c *Call, late bool) bool {
	if late && br.watchdog.Unanswered() > 0 {
		br.watchdog.Check()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.completed == len(c.ops) {
		return false
	}
	c.abandoned = true
	if late {
		c.fail(br.lateError(c))
	} else {
		c.fail(c.ctx.Err())
	}
	br.mu.Lock()
	defer br.mu.Unlock()
	br.pending.remove(c)
	br.queued -= len(c.ops) - c.appended
	return true
}

// lateError is the error of a caller whose time is up: that the store is unavailable if it had the
// time to answer and did not, else that this process is overloaded. The call is locked. The rule:
// the server is blamed only if it had at least half of the caller's time, or, for one that was not
// sent, if what is before it has waited for nine tenths of that.
func (br *Batcher) lateError(c *Call) error {
	timeout := c.waits()
	late := func(text string) error { return watchdog.Late(fmt.Errorf(text, timeout)) }
	if br.watchdog.Down() {
		return Unavailable(watchdog.Late(watchdog.ErrSilent))
	}
	if c.batch != nil {
		if age := br.watchdog.Age(&c.batch.watched); 2*age >= timeout {
			return Unavailable(late("no answer within %s"))
		}
		return fmt.Errorf("%w: %w", stint.ErrOverloaded, late("sent too late to be answered within %s"))
	}
	// It was not sent because the calls before it are not answered.
	if 10*br.watchdog.Unanswered() >= 9*timeout {
		return Unavailable(late("earlier calls were not answered within %s"))
	}
	return fmt.Errorf("%w: %w", stint.ErrOverloaded, late("not sent within %s"))
}

// Enqueue queues a call, and starts a sender if one more batch may be in flight.
func (br *Batcher) Enqueue(c *Call) error {
	br.mu.Lock()
	switch {
	case br.closed:
		br.mu.Unlock()
		return ErrClosed
	case br.queued+len(c.ops) > br.config.MaxQueue && br.queued > 0 && c.ops[0].Verb != wire.Refund:
		br.mu.Unlock()
		return errQueueFull
	}
	if br.inFlight == 0 {
		br.lastMoved = time.Now()
	}
	c.queuedSince = br.lastMoved
	br.pending.push(c)
	br.queued += len(c.ops)
	br.startSender()
	br.mu.Unlock()
	return nil
}

// startSender starts a sender if there is something to send and one more batch may be in flight, or
// sets a timer for when one may. The batcher is locked. inFlight counts a sender from here until
// dequeue finds nothing.
func (br *Batcher) startSender() {
	if br.pending.first == nil || br.inFlight >= br.pace.maxInFlight() {
		return
	}
	if br.pace.far() && br.inFlight >= br.pace.inFlight {
		if br.timerSet {
			return
		}
		if wait := br.pace.gap() - time.Since(br.lastMoved); wait > 0 {
			br.timerSet = true
			time.AfterFunc(wait, func() {
				br.mu.Lock()
				defer br.mu.Unlock()
				br.timerSet = false
				br.startSender()
			})
			return
		}
	}
	br.inFlight++
	if br.pace.far() {
		br.lastMoved = time.Now()
	}
	if br.idleSenders > 0 {
		br.idleSenders--
		br.wake <- struct{}{}
		return
	}
	go br.sender()
}

// sender sends batches whenever something waits, until the store is closed or enough other senders
// are idle. A new goroutine for each batch would have to grow its stack each time, which takes
// as long as the rest of what a batch of one take costs the process.
func (br *Batcher) sender() {
	br.sendAll()
	for br.park() {
		br.sendAll()
	}
}

// park waits until there is something to send. It reports false when the store is closed, or
// enough other senders wait.
func (br *Batcher) park() bool {
	br.mu.Lock()
	if br.closed || br.idleSenders >= br.pace.inFlight {
		br.mu.Unlock()
		return false
	}
	br.idleSenders++
	br.mu.Unlock()
	_, woken := <-br.wake
	return woken
}

// sendAll sends batches as long as something waits.
func (br *Batcher) sendAll() {
	var calls []*Call
	for {
		fault := br.ready()
		b := br.newBatch()
		var maxLimits int
		calls, maxLimits = br.dequeue(calls[:0])
		if len(calls) == 0 {
			br.recycle(b)
			return
		}
		b.Begin(br.Target, maxLimits)
		appended := 0
		for appended < len(calls) && br.appendCall(b, calls[appended]) {
			appended++
		}
		br.mu.Lock()
		br.queued -= len(b.Entries())
		br.mu.Unlock()
		// The last call may have been appended in part: its rest waits for what is sent.
		if appended < len(calls) && calls[appended].batch != nil {
			appended++
		}
		br.requeue(calls[appended:])
		if fault == nil {
			fault = br.send(b)
		}
		br.requeue(b.complete(fault))
		// Callers that were answered run before the next batch is sent, so that it has what they ask
		// next: one batch costs less than two.
		runtime.Gosched()
		br.recycle(b)
		clear(calls)
	}
}

// send sends a batch and waits for its reply. How long its callers wait does not
// matter: the watchdog bounds it.
func (br *Batcher) send(b *batch) error {
	operations := len(b.Entries())
	if operations == 0 {
		return nil
	}
	ctx, end := br.sendContext(b)
	defer end()
	began := time.Now()
	br.watchdog.Begin(&b.watched)
	err := br.config.Send(ctx, &b.Batch)
	br.report(ctx, &b.watched, err)
	if observe := br.config.OnCall; observe != nil {
		observe(time.Since(began), operations, b.Coalesced(), err)
	}
	br.notePace(began, err)
	if err != nil && ctx.Err() != nil {
		return Unavailable(context.Cause(ctx))
	}
	return err
}

// sendContext is a batch's context. While the server is unreachable it ends with the latest deadline of
// the callers, which only probe whether it is back.
func (br *Batcher) sendContext(b *batch) (ctx context.Context, end func()) {
	br.mu.Lock()
	ctx = br.sendCtx
	br.mu.Unlock()
	if !br.watchdog.Down() {
		return ctx, func() {}
	}
	latest := time.Now()
	for _, p := range b.parts {
		c := p.call
		deadline := time.Now().Add(cmp.Or(c.timeout, MaxSendTime))
		if earlier, limited := c.ctx.Deadline(); limited && earlier.Before(deadline) {
			deadline = earlier
		}
		if deadline.After(latest) {
			latest = deadline
		}
	}
	// A context with a deadline would make rueidis read in the foreground, where it
	// closes the connection at the deadline. So the deadline comes as a cancellation.
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(time.Until(latest), func() { cancel(errLate) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// dequeue appends calls for one batch to a list, and tells how many limits it may decide; there are
// none when the queue is empty or one batch too many is in flight. The last call may be larger than
// the rest of the batch: it is appended in part, and its rest goes back to the front.
func (br *Batcher) dequeue(list []*Call) (calls []*Call, maxLimits int) {
	br.mu.Lock()
	defer br.mu.Unlock()
	if br.inFlight > br.pace.maxInFlight() || br.pending.first == nil {
		br.inFlight--
		return list, 0
	}
	br.lastMoved = time.Now()
	maxLimits = br.pace.maxLimits()
	for ops := 0; br.pending.first != nil && ops < maxLimits; {
		c := br.pending.first
		br.pending.remove(c)
		ops += len(c.ops) - c.appended
		list = append(list, c)
	}
	br.startSender() // for the rest
	return list, maxLimits
}

// requeue puts calls back to the front of the queue, without those whose callers have left. They
// keep their order, and come before all that was queued since.
func (br *Batcher) requeue(calls []*Call) {
	if len(calls) == 0 {
		return
	}
	for _, c := range slices.Backward(calls) {
		c.mu.Lock()
		if !c.abandoned {
			br.mu.Lock()
			br.pending.pushFirst(c)
			br.mu.Unlock()
		}
		c.mu.Unlock()
	}
	br.mu.Lock()
	br.startSender()
	br.mu.Unlock()
}

// appendCall appends a call's operations to the batch. It reports whether all are; the first that is
// not is c.appended.
func (br *Batcher) appendCall(b *batch, c *Call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abandoned {
		return true
	}
	from := c.appended
	c.Lasts = c.ctx.Done() == nil && c.timeout == 0
	for c.appended < len(c.ops) && b.Add(&c.ops[c.appended], c.Sending) {
		c.appended++
	}
	if c.appended > from {
		c.batch = b
		b.parts = append(b.parts, part{c, c.appended - from})
	}
	return c.appended == len(c.ops)
}

// Close makes further operations fail.
func (br *Batcher) Close() {
	br.mu.Lock()
	if !br.closed {
		br.closed, br.idleSenders = true, 0
		close(br.wake)
	}
	br.mu.Unlock()
	br.watchdog.Close()
}

// ready waits for a connection, so that a batch has only calls whose callers still wait
// when it can be sent.
func (br *Batcher) ready() error {
	if br.config.Ready(ended) == nil {
		return nil
	}
	br.mu.Lock()
	ctx := br.sendCtx
	br.mu.Unlock()
	var call watchdog.Call
	br.watchdog.Begin(&call)
	err := br.config.Ready(ctx)
	switch {
	case err == nil:
		br.watchdog.Forget(&call)
	case ctx.Err() != nil:
		err = Unavailable(context.Cause(ctx))
		br.watchdog.Forget(&call)
	default:
		br.watchdog.Lost(&call, err)
		err = Unavailable(err)
	}
	return err
}

// ended is a context for not waiting.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// Unavailable wraps a failure of the connection or the server. The deadline of a connection's own context can't be
// taken for that of a caller's.
func Unavailable(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = watchdog.Late(err)
	}
	return prefix.Errorf("%w: %w", stint.ErrUnavailable, err)
}
