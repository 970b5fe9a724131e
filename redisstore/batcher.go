package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/watchdog"
)

// A batcher gathers operations while batches are in flight. The first to come is sent immediately;
// what comes meanwhile is sent together when a reply is there. So an idle caller waits for one
// round trip, and batches grow with the load.
//
// Where a round trip takes long, since the server is far away, waiting for a reply
// would double the time. There a batch is sent every pace.gap, too.
//
// There is one batcher, or on a cluster one for each partition. Callers queue calls (do); senders,
// which are goroutines, take what waits and send it. It is safe for concurrent use. Its lock is
// never held over a round trip; a call's lock may be held when it is taken, not the other way
// round.
type batcher struct {
	store    *Store
	layout   atomic.Pointer[layout]
	index    int
	epochs   epochs
	watchdog *watchdog.Watchdog

	mu      sync.Mutex
	pending queue
	// queued is how many operations wait; it is at most MaxQueue, but for a call that found the queue
	// empty.
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

var (
	errQueueFull = fmt.Errorf("%w: too many operations wait for the server", stint.ErrOverloaded)
	errClosed    = unavailable(errors.New("the store is closed"))
)

// maxSendTime bounds a batch where nothing else does, so that a
// server that hangs does not hold the batcher for ever.
const maxSendTime = 10 * time.Second

// newBatcher makes a batcher, whose watchdog tells of a silent server: it ends what is in flight,
// and tells the store's shards, of which a partition may have several.
func (s *Store) newBatcher(index int) *batcher {
	br := &batcher{store: s, index: index, pace: newPace(&s.options), wake: make(chan struct{}, maxInFlight)}
	br.sendCtx, br.cancelSends = context.WithCancelCause(s.life)
	br.watchdog = watchdog.New(watchdog.Config{
		Timeout: maxSendTime, Try: br.try, Connection: s.conn,
		Unreachable: func(cause error) {
			br.mu.Lock()
			br.cancelSends(cause)
			br.sendCtx, br.cancelSends = context.WithCancelCause(s.life)
			br.mu.Unlock()
			if report := s.unreachable.Load(); report != nil {
				for shard := range s.shards {
					if n := min(s.shards, br.layout.Load().partitions); shard%n == index%n {
						(*report)(shard, cause)
					}
				}
			}
		},
	})
	return br
}

// try makes a call that changes nothing, for the watchdog.
func (br *batcher) try(ctx context.Context) {
	_ = br.roundTrip(ctx, func(ctx context.Context) error {
		_, err := br.store.conn.Do(ctx, "HGET", br.settingsKey(), "layout")
		return err
	})
}

// roundTrip makes a call of the batcher's server that is not a batch, watched like one.
func (br *batcher) roundTrip(ctx context.Context, do func(context.Context) error) error {
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
func (br *batcher) report(ctx context.Context, call *watchdog.Call, err error) {
	reply, replied := Reply(err)
	switch {
	case err == nil, errors.Is(err, errReply), errors.Is(err, errLayout), errors.Is(err, stint.ErrInvalid):
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
func (br *batcher) notePace(began time.Time, err error) {
	if err == nil {
		br.mu.Lock()
		br.pace.note(time.Since(began), time.Now())
		br.mu.Unlock()
	}
}

// decide sends operations through the batcher and waits for their answers.
func (br *batcher) decide(ctx context.Context, ops []stint.Op, results []stint.Result) {
	c := br.newCall(ctx)
	c.timeout, c.ops, c.results = decide.LeastTimeout(ops), ops, results
	br.do(c)
}

// decideOne is decide for one operation, without slices of the caller's.
func (br *batcher) decideOne(ctx context.Context, op *stint.Op) (d stint.Decision, err error) {
	c := br.newSingleCall(ctx, op)
	done := br.do(c)
	d, err = c.result[0].Decision, c.result[0].Err
	if done {
		br.recycle(c)
	}
	return d, err
}

// do queues a call and waits until all of it has been answered, its time is up or its context has ended.
// It reports whether the call is the caller's again.
func (br *batcher) do(c *call) (done bool) {
	if err := br.enqueue(c); err != nil {
		c.fail(err)
		return true
	}
	return br.await(c)
}

// await is what do does once the call is queued.
func (br *batcher) await(c *call) (done bool) {
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
func (br *batcher) abandon(c *call, late bool) bool {
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
func (br *batcher) lateError(c *call) error {
	timeout := c.waits()
	late := func(text string) error { return watchdog.Late(fmt.Errorf(text, timeout)) }
	if br.watchdog.Down() {
		return unavailable(watchdog.Late(watchdog.ErrSilent))
	}
	if c.batch != nil {
		if age := br.watchdog.Age(&c.batch.watched); 2*age >= timeout {
			return unavailable(late("no answer within %s"))
		}
		return fmt.Errorf("%w: %w", stint.ErrOverloaded, late("sent too late to be answered within %s"))
	}
	// It was not sent because the calls before it are not answered.
	if 10*br.watchdog.Unanswered() >= 9*timeout {
		return unavailable(late("earlier calls were not answered within %s"))
	}
	return fmt.Errorf("%w: %w", stint.ErrOverloaded, late("not sent within %s"))
}

// enqueue queues a call, and starts a sender if one more batch may be in flight.
func (br *batcher) enqueue(c *call) error {
	br.mu.Lock()
	switch {
	case br.closed:
		br.mu.Unlock()
		return errClosed
	case br.queued+len(c.ops) > br.store.options.MaxQueue && br.queued > 0 && c.ops[0].Verb != refund:
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
func (br *batcher) startSender() {
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
func (br *batcher) sender() {
	br.sendAll()
	for br.park() {
		br.sendAll()
	}
}

// park waits until there is something to send. It reports false when the store is closed, or
// enough other senders wait.
func (br *batcher) park() bool {
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
func (br *batcher) sendAll() {
	var calls []*call
	for {
		fault := br.ready()
		b := newBatch(br)
		calls, b.maxLimits = br.dequeue(calls[:0])
		if len(calls) == 0 {
			b.recycle()
			return
		}
		appended := 0
		for appended < len(calls) && br.appendCall(b, calls[appended]) {
			appended++
		}
		// The last call may have been appended in part: its rest waits for what is sent.
		if appended < len(calls) && calls[appended].batch != nil {
			appended++
		}
		br.requeue(calls[appended:])
		if fault == nil {
			fault = br.send(b)
		}
		if errors.Is(fault, errLayout) && br.layout.Load() != b.layout {
			br.requeue(br.detach(b)) // nothing was carried out, and it may be in the layout of now
		} else {
			br.requeue(b.complete(fault))
		}
		// Callers that were answered run before the next batch is sent, so that it has what they ask
		// next: one batch costs less than two.
		runtime.Gosched()
		b.recycle()
		clear(calls)
	}
}

// send sends a batch and waits for its reply. How long its callers wait does not
// matter: the watchdog bounds it.
func (br *batcher) send(b *batch) error {
	if len(b.entries) == 0 {
		return nil
	}
	ctx, end := br.sendContext(b)
	defer end()
	began := time.Now()
	br.watchdog.Begin(&b.watched)
	err := b.execute(ctx)
	br.report(ctx, &b.watched, err)
	if observe := br.store.options.OnCall; observe != nil {
		observe(time.Since(began), len(b.entries), max(0, len(b.opLimits)-len(b.states)), err)
	}
	br.notePace(began, err)
	if err != nil && ctx.Err() != nil {
		return unavailable(context.Cause(ctx))
	}
	return err
}

// sendContext is a batch's context. While the server is unreachable it ends with the latest deadline of
// the callers, which only probe whether it is back.
func (br *batcher) sendContext(b *batch) (ctx context.Context, end func()) {
	br.mu.Lock()
	ctx = br.sendCtx
	br.mu.Unlock()
	if !br.watchdog.Down() {
		return ctx, func() {}
	}
	latest := time.Now()
	for i := range b.entries {
		c := b.entries[i].call
		deadline := time.Now().Add(cmp.Or(c.timeout, maxSendTime))
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
func (br *batcher) dequeue(list []*call) (calls []*call, maxLimits int) {
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
func (br *batcher) requeue(calls []*call) {
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
func (br *batcher) appendCall(b *batch, c *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.abandoned {
		return true
	}
	from := c.appended
	for c.appended < len(c.ops) && b.add(c, c.appended, &c.ops[c.appended]) {
		c.appended++
	}
	if c.appended > from {
		c.batch = b
		br.mu.Lock()
		br.queued -= c.appended - from
		br.mu.Unlock()
	}
	return c.appended == len(c.ops)
}

// close makes further operations fail.
func (br *batcher) close() {
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
func (br *batcher) ready() error {
	if br.store.conn.Ready(ended) == nil {
		return nil
	}
	br.mu.Lock()
	ctx := br.sendCtx
	br.mu.Unlock()
	var call watchdog.Call
	br.watchdog.Begin(&call)
	err := br.store.conn.Ready(ctx)
	switch {
	case err == nil:
		br.watchdog.Forget(&call)
	case ctx.Err() != nil:
		err = unavailable(context.Cause(ctx))
		br.watchdog.Forget(&call)
	default:
		br.watchdog.Lost(&call, err)
		err = unavailable(err)
	}
	return err
}

// ended is a context for not waiting.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()
