package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/watchdog"
)

// batcher gathers operations while batches are under way. The first to come is sent at
// once; what comes meanwhile is sent together when a batch is back. So an idle caller
// waits for one round trip, and batches grow with the load.
//
// Where a round trip takes long, since the server is far away, waiting for one to be
// back would double the time. There a batch leaves every departureGap, too.
type batcher struct {
	store    *Store
	layout   atomic.Pointer[layout]
	index    int
	epochs   epochs
	watchdog *watchdog.Watchdog

	mu          sync.Mutex
	pending     queue
	queued      int // operations that wait
	inFlight    int // under way
	idleSenders int // goroutines that wait for wake
	closed      bool
	pace        pace
	lastMoved   time.Time     // when a batch last took from the queue, or the queue began
	timerSet    bool          // whether a timer will start a batch
	wake        chan struct{} // makes one of them be sent; closed with the batcher

	sendCtx     context.Context // of batches; renewed when the server becomes unreachable
	cancelSends context.CancelCauseFunc
}

var (
	errQueueFull = fmt.Errorf("%w: too many operations wait for the server", stint.ErrOverloaded)
	errClosed    = unavailable(errors.New("the store is closed"))
)

// maxFlightTime bounds a batch where nothing else does, so that a
// server that hangs does not hold the batcher for ever.
const maxSendTime = 10 * time.Second

// departureGap is how often a batch leaves where a round trip takes longer than farAway. A
// batch that is full takes the server a millisecond.
const sendGap = 10 * time.Millisecond

func (s *Store) newBatcher(index int) *batcher {
	br := &batcher{store: s, index: index, wake: make(chan struct{}, maxInFlight)}
	br.sendCtx, br.cancelSends = context.WithCancelCause(s.life)
	br.watchdog = watchdog.New(watchdog.Config{
		Timeout: maxSendTime, Try: br.try,
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

// call makes a call of the batcher's server that is not a batch.
func (br *batcher) roundTrip(ctx context.Context, do func(context.Context) error) error {
	var call watchdog.Call
	br.watchdog.Begin(&call)
	err := do(watchdog.With(ctx, &call))
	br.report(ctx, &call, err)
	return err
}

// complete tells the watchdog how a call ended.
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

// decide sends operations through the batcher and waits for their answers.
func (br *batcher) decide(ctx context.Context, ops []stint.Op, results []stint.Result) {
	c := br.newCall(ctx)
	c.ops, c.results = ops, results
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

// send queues a call and waits until all of it has been answered or its context has ended.
// It reports whether the batcher has let go of it.
func (br *batcher) do(c *call) (free bool) {
	if err := br.enqueue(c); err != nil {
		c.fail(err)
		return true
	}
	return br.await(c)
}

// await waits until all of a queued call has been answered or its context has ended.
func (br *batcher) await(c *call) (free bool) {
	end := c.ctx.Done()
	if end == nil {
		<-c.done // a select of one costs more
		return true
	}
	select {
	case <-c.done:
		return true
	case <-end:
		if !br.abandon(c) {
			<-c.done
			return true
		}
		return false
	}
}

// leave ends a caller's wait, when its context has ended. It reports false when all
// has been answered.
func (br *batcher) abandon(c *call) bool {
	if errors.Is(c.ctx.Err(), context.DeadlineExceeded) && br.watchdog.Unanswered() > 0 {
		br.watchdog.Check()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.completed == len(c.ops) {
		return false
	}
	c.abandoned = true
	c.fail(br.deadlineError(c))
	br.mu.Lock()
	defer br.mu.Unlock()
	br.pending.remove(c)
	br.queued -= len(c.ops) - c.appended
	return true
}

// overdue is the error of a caller whose context has ended: that the store is
// unavailable if it had the time to answer and did not, else that this process is
// overloaded. The call is locked.
func (br *batcher) deadlineError(c *call) error {
	err := c.ctx.Err()
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	timeout := c.timeout()
	if br.watchdog.Down() {
		return unavailable(fmt.Errorf("%w: %w", watchdog.ErrSilent, err))
	}
	if c.batch != nil {
		if age := br.watchdog.Age(&c.batch.watched); 2*age >= timeout {
			return unavailable(fmt.Errorf("no answer within %s: %w", timeout, err))
		}
		return fmt.Errorf("%w: sent too late to be answered within %s: %w", stint.ErrOverloaded, timeout, err)
	}
	// It was not sent because the calls before it are not answered.
	if 10*br.watchdog.Unanswered() >= 9*timeout {
		return unavailable(fmt.Errorf("earlier calls were not answered within %s: %w", timeout, err))
	}
	return fmt.Errorf("%w: not sent within %s: %w", stint.ErrOverloaded, timeout, err)
}

// enqueue queues a call, and starts a batch if one more may be under way.
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

// start starts a batch if there is something to be sent and one more may, or sees to it
// that one starts when it may. The batcher is locked.
func (br *batcher) startSender() {
	if br.pending.first == nil || br.inFlight >= br.maxInFlight() {
		return
	}
	if far := br.isFar(); far && br.inFlight >= br.store.options.InFlight {
		if br.timerSet {
			return
		}
		if wait := sendGap - time.Since(br.lastMoved); wait > 0 {
			br.timerSet = true
			time.AfterFunc(wait, br.startSenderLater)
			return
		}
	}
	br.inFlight++
	if br.isFar() {
		br.lastMoved = time.Now()
	}
	if br.idleSenders > 0 {
		br.idleSenders--
		br.wake <- struct{}{}
		return
	}
	go br.sender()
}

// far reports whether the server is far away. The batcher is locked.
func (br *batcher) isFar() bool { return br.store.options.adapts && br.pace.far() }

// most is how many batches may be under way. The batcher is locked.
func (br *batcher) maxInFlight() int {
	if !br.store.options.adapts {
		return br.store.options.InFlight
	}
	return br.pace.maxInFlight(br.store.options.InFlight)
}

func (br *batcher) startSenderLater() {
	br.mu.Lock()
	defer br.mu.Unlock()
	br.timerSet = false
	br.startSender()
}

// be sent makes batches whenever something waits, until the store is closed or enough others
// are idle. A goroutine of its own for each batch would have to grow its stack each time, which takes
// as long as the rest of what a batch of one take costs the process.
func (br *batcher) sender() {
	br.sendAll()
	for br.park() {
		br.sendAll()
	}
}

// rest waits until there is something to be sent. It reports false when there will be nothing, or
// others to do it.
func (br *batcher) park() bool {
	br.mu.Lock()
	if br.closed || br.idleSenders >= br.store.options.InFlight {
		br.mu.Unlock()
		return false
	}
	br.idleSenders++
	br.mu.Unlock()
	_, woken := <-br.wake
	return woken
}

// flyAll makes batches as long as something waits.
func (br *batcher) sendAll() {
	var batch []*call
	for {
		fault := br.ready()
		b := newBatch(br)
		batch, b.maxLimits = br.dequeue(batch[:0])
		if len(batch) == 0 {
			b.recycle()
			return
		}
		appended := 0
		for appended < len(batch) && br.appendCall(b, batch[appended]) {
			appended++
		}
		// The last to board may have done so in part: it waits for what is sent.
		if appended < len(batch) && batch[appended].batch != nil {
			appended++
		}
		br.requeue(batch[appended:])
		if fault == nil {
			fault = br.send(b)
		}
		if errors.Is(fault, errLayout) && br.layout.Load() != b.layout {
			br.requeue(br.detach(b)) // nothing was carried out, and it may be in the layout of now
		} else {
			br.requeue(b.complete(fault))
		}
		// Those who were answered, and have more to ask, go before the next batch
		// leaves: one that carries all of them costs less than two.
		runtime.Gosched()
		b.recycle()
		clear(batch)
	}
}

// carry sends a batch and waits for its answer. How long its callers wait does not
// matter: the watchdog bounds it.
func (br *batcher) send(b *batch) error {
	if len(b.entries) == 0 {
		return nil
	}
	ctx, end := br.sendContext(b)
	defer end()
	began := time.Now()
	br.watchdog.Begin(&b.watched)
	err := b.execute(watchdog.With(ctx, &b.watched))
	br.report(ctx, &b.watched, err)
	if err == nil {
		br.mu.Lock()
		br.pace.note(time.Since(began), time.Now())
		br.mu.Unlock()
	}
	if err != nil && ctx.Err() != nil {
		return unavailable(context.Cause(ctx))
	}
	return err
}

// context is a batch's. While the server is unreachable it ends with the most patient of
// the callers, who only try whether it is back.
func (br *batcher) sendContext(b *batch) (ctx context.Context, end func()) {
	br.mu.Lock()
	ctx = br.sendCtx
	br.mu.Unlock()
	if !br.watchdog.Down() {
		return ctx, func() {}
	}
	latest := time.Now()
	for i := range b.entries {
		deadline, limited := b.entries[i].call.ctx.Deadline()
		if !limited {
			deadline = time.Now().Add(maxSendTime)
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

// take takes calls for one batch out of the queue, and tells how many limits it may decide; with
// none left, or one batch too many, the batch ends.
func (br *batcher) dequeue(batch []*call) (taken []*call, most int) {
	br.mu.Lock()
	defer br.mu.Unlock()
	if br.inFlight > br.maxInFlight() {
		br.inFlight--
		return batch, 0
	}
	br.lastMoved = time.Now()
	ops := 0
	most = br.store.options.MaxBatch
	if br.store.options.adapts {
		most = br.pace.maxOperations(most)
	}
	for br.pending.first != nil && ops < most {
		c := br.pending.first
		br.pending.remove(c)
		ops += len(c.ops) - c.appended
		batch = append(batch, c)
	}
	if len(batch) == 0 {
		br.inFlight--
	}
	return batch, most
}

// giveBack puts calls back to the front of the queue, but for those whose callers have left.
func (br *batcher) requeue(batch []*call) {
	if len(batch) == 0 {
		return
	}
	for _, c := range slices.Backward(batch) {
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

// board takes a call's operations into the batch. It reports whether all are: of what
// is left, the first to be sent later is p.boarded.
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

// ready waits for a connection, so that a batch takes into the batch only those who still wait
// when it can leave.
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

// ended is a context for who waits for nothing.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()
