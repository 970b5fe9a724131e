// Package watchdog tells a server that does not answer from a process that is too busy to hear it.
//
// A caller's deadline can't tell the two apart: it passes as well when the answer has
// long arrived and no processor was free to read it. A [Watchdog] therefore counts
// credited time. It looks every [Tick], and each look credits the time since the last one,
// but no more than two ticks. Before each look it goes to the end of the scheduler's queue, where
// the readers of connections wait too. So a process that was starved, stopped
// or suspended credits next to nothing, and blames no server.
package watchdog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/sleep"
)

const (
	// Tick is how often a watchdog looks while calls are under way.
	Tick = 10 * time.Millisecond
	// maxCredit is what one look credits at most.
	maxCredit = 2 * Tick
	// maxRefusals is how many refusals in a row make a server unreachable.
	maxRefusals = 3
)

// ErrSilent is the cause when a server did not answer.
var ErrSilent = errors.New("the server does not answer")

// Late is an error that says that the time for an operation has passed, by a method Timeout, which is true. Of a
// context's deadline it keeps the text alone: that context is not the caller's, who looks for the end of its own.
func Late(err error) error { return &lateError{err} }

type lateError struct{ err error }

func (l *lateError) Error() string { return l.err.Error() }
func (l *lateError) Timeout() bool { return true }

// Unwrap returns what may be found in the error.
func (l *lateError) Unwrap() error {
	if errors.Is(l.err, context.DeadlineExceeded) {
		return nil
	}
	return l.err
}

// Config says what a [Watchdog] watches. Every field but Connection is needed.
type Config struct {
	// Timeout is the credited time after which a server without a connection, or
	// with a call unanswered, is unreachable. More than 0.
	Timeout time.Duration
	// Unreachable is called once when the server becomes unreachable, and again only
	// after it has answered a call. It must not call the watchdog, which waits for it.
	Unreachable func(cause error)
	// Try makes one harmless call of the server, reported to the watchdog like any
	// other. The watchdog repeats it, one at a time, after a connection was lost or a
	// caller left early, since there may be no other call that could tell. The context
	// ends when the server is unreachable or the watchdog is closed.
	Try func(ctx context.Context)
	// Connection tells how far this process has come with its connection. Default: nil, it is not
	// known.
	Connection Connection
}

// A Connection tells how far this process has come with it, so that what it has not written, or not
// read, is not held against the server. It must be safe for concurrent use, and not call the
// watchdog.
type Connection interface {
	// Reads is how often something was read. Every call of the server asks for it.
	Reads() uint64
	// Behind reports whether this process has not written what it was given, or not read what has arrived. Only a call
	// that is looked at asks for it.
	Behind() bool
}

// A Watchdog watches the calls of one server, over however many connections. It is
// safe for concurrent use; make it with [New].
//
// The server is unreachable when one of these holds:
//   - A call has been unanswered for the timeout, and no call that began later was answered.
//   - A connection was lost and no call was answered for the timeout.
//   - Three calls in a row were refused.
type Watchdog struct {
	config Config
	timer  *time.Timer

	mu       sync.Mutex
	credited time.Duration // until looked
	looked   time.Time     // when time was credited last
	ticking  bool

	first, last *Call  // under way, in the order of their beginning
	sequence    uint64 // of the last call that began
	answered    uint64 // of the latest call that was answered

	// why there is no connection; nil for none known to be lost
	lost     error
	lostAt   time.Duration // in credited time
	refusals int           // in a row
	down     bool          // unreachable

	trying bool
	// of tries; renewed when the server becomes unreachable
	life   context.Context
	end    context.CancelFunc
	closed bool
	work   sync.WaitGroup
}

// A Call is one call of the server: from when it is handed to the client until it is
// answered. Its owner may use it again afterwards.
type Call struct {
	sequence       uint64        // 0: not under way
	began          time.Duration // in credited time
	previous, next *Call

	reads  uint64        // of the connection, when they were last looked at
	read   time.Duration // when their number had changed, in credited time
	behind time.Duration // when this process was behind
}

// New makes a watchdog. Nothing runs until the first call begins.
func New(config Config) *Watchdog {
	w := &Watchdog{config: config}
	w.life, w.end = context.WithCancel(context.Background())
	w.timer = time.AfterFunc(time.Hour, func() { w.look(true) })
	w.timer.Stop()
	return w
}

// SetTimeout changes the timeout.
func (w *Watchdog) SetTimeout(timeout time.Duration) {
	w.mu.Lock()
	w.config.Timeout = timeout
	w.mu.Unlock()
}

// Close ends the watch and waits for a try that is under way. Calls may still be reported.
func (w *Watchdog) Close() {
	w.mu.Lock()
	w.closed, w.ticking = true, false
	w.timer.Stop()
	w.end()
	w.mu.Unlock()
	w.work.Wait()
}

// Begin notes that a call begins.
func (w *Watchdog) Begin(c *Call) {
	w.mu.Lock()
	w.start()
	w.sequence++
	*c = Call{began: w.now(), sequence: w.sequence, previous: w.last}
	if w.config.Connection != nil {
		c.reads = w.config.Connection.Reads()
	}
	if w.last == nil {
		w.first = c
	} else {
		w.last.next = c
	}
	w.last = c
	w.mu.Unlock()
}

// Answered notes that the server answered a call.
func (w *Watchdog) Answered(c *Call) {
	w.mu.Lock()
	w.remove(c)
	w.lost, w.refusals, w.down = nil, 0, false
	w.mu.Unlock()
}

// Refused notes that the server answered a call by saying that it can't serve it now.
func (w *Watchdog) Refused(c *Call, cause error) {
	w.mu.Lock()
	w.remove(c)
	w.lost = nil
	w.refusals++
	if w.refusals < maxRefusals || w.down || w.closed {
		cause = nil
	}
	w.report(cause)
}

// Forget notes that a call was answered without the server.
func (w *Watchdog) Forget(c *Call) {
	w.mu.Lock()
	w.unlink(c)
	w.mu.Unlock()
}

// Lost notes that a call failed since there is no connection.
func (w *Watchdog) Lost(c *Call, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unlink(c)
	if w.lost == nil {
		w.lost, w.lostAt = cause, w.now()
	}
	w.try()
}

// Abandoned notes that nobody waits for a call any more, which is therefore not heard of
// again. If it has been unanswered for the timeout, the server is unreachable; else it is tried.
func (w *Watchdog) Abandoned(c *Call) {
	w.Check()
	w.mu.Lock()
	defer w.mu.Unlock()
	hopeful := c.sequence > w.answered
	w.unlink(c)
	if hopeful {
		w.try()
	}
}

// Down reports whether the server became unreachable and has not answered since.
func (w *Watchdog) Down() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

// Age is the credited time for which a call has gone unanswered although this process had read all
// that arrived; 0 for one that is not under way.
func (w *Watchdog) Age(c *Call) time.Duration {
	runtime.Gosched()
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.sequence == 0 {
		return 0
	}
	w.follow(c)
	now := w.now()
	if c.read > c.began && now-c.read < maxCredit {
		return now - c.read // what was read may be the answer, on its way to the caller
	}
	return now - max(c.began, c.behind)
}

// follow looks how far this process has come with the connection since a call began.
func (w *Watchdog) follow(c *Call) {
	connection := w.config.Connection
	if connection == nil {
		return
	}
	if reads := connection.Reads(); reads != c.reads {
		c.reads, c.read = reads, w.now()
	}
	if connection.Behind() {
		c.behind = w.now()
	}
}

// Unanswered is the credited time for which nothing was heard of the server although it owes an answer,
// or for which there was no connection; 0 when it answers. A call that began before another that was
// answered is owed none: it went by a connection that is no more.
func (w *Watchdog) Unanswered() time.Duration {
	runtime.Gosched()
	w.mu.Lock()
	defer w.mu.Unlock()
	longest, _ := w.unanswered()
	return longest
}

// unanswered is Unanswered with the mutex held, and whether it was a call, not a connection, that
// was missed.
func (w *Watchdog) unanswered() (longest time.Duration, silent bool) {
	if w.lost != nil {
		longest = w.now() - w.lostAt
	}
	// A silence is no longer than the call, and calls are in the order in which they began.
	for c := w.first; c != nil && w.now()-c.began > longest; c = c.next {
		if silence := w.silence(c); c.sequence > w.answered && silence > longest {
			longest, silent = silence, true
		}
	}
	return longest, silent
}

// silence is the credited time for which nothing was heard of the server since a call began.
func (w *Watchdog) silence(c *Call) time.Duration {
	w.follow(c)
	return w.now() - max(c.began, c.behind, c.read)
}

// now is the credited time. The mutex is held, as it is for all that follow but Check and look.
func (w *Watchdog) now() time.Duration {
	if !w.ticking {
		return w.credited
	}
	return w.credited + min(time.Since(w.looked), maxCredit)
}

// start starts to tick.
func (w *Watchdog) start() {
	if w.ticking || w.closed {
		return
	}
	w.ticking, w.looked = true, time.Now()
	w.timer.Reset(Tick)
}

// remove takes an answered call out.
func (w *Watchdog) remove(c *Call) {
	w.answered = max(w.answered, c.sequence)
	w.unlink(c)
}

// unlink takes a call out of the list of those under way, and forgets it. One that is in no list
// has the sequence 0.
func (w *Watchdog) unlink(c *Call) {
	if c.sequence == 0 {
		return
	}
	if c.previous == nil {
		w.first = c.next
	} else {
		c.previous.next = c.next
	}
	if c.next == nil {
		w.last = c.previous
	} else {
		c.next.previous = c.previous
	}
	*c = Call{}
}

// Check looks at once, rather than at the next tick. Callers whose deadline has passed
// do so, to find the server unreachable as early as it may be.
func (w *Watchdog) Check() { w.look(false) }

// look reports a server that has become unreachable.
func (w *Watchdog) look(credit bool) {
	runtime.Gosched() // behind the readers that are ready to run
	w.mu.Lock()
	if credit && w.ticking {
		w.credited = w.now()
		w.looked = time.Now()
		for c := w.first; c != nil; c = c.next {
			w.follow(c)
		}
	}
	cause := w.verdict()
	if cause != nil {
		// One last read.
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
		cause = w.verdict()
	}
	if credit && w.ticking {
		if w.ticking = w.first != nil || w.lost != nil && !w.down; w.ticking {
			w.timer.Reset(Tick)
		}
	}
	w.report(cause)
}

// report ends the critical section, and tells the cause of an outage, if there is one.
func (w *Watchdog) report(cause error) {
	if cause == nil {
		w.mu.Unlock()
		return
	}
	w.down = true
	w.end()
	w.life, w.end = context.WithCancel(context.Background())
	w.config.Unreachable(cause)
	w.mu.Unlock()
}

// verdict is why the server is unreachable, nil if it is not, or was so before.
func (w *Watchdog) verdict() error {
	if w.down || w.closed {
		return nil
	}
	switch longest, silent := w.unanswered(); {
	case longest < w.config.Timeout:
		return nil
	case silent:
		return fmt.Errorf("%w for %s", ErrSilent, w.config.Timeout)
	default:
		return fmt.Errorf("no connection for %s: %w", w.config.Timeout, w.lost)
	}
}

// try starts to call the server, until it answers or is unreachable.
func (w *Watchdog) try() {
	if w.trying || w.down || w.closed {
		return
	}
	w.start()
	w.trying = true
	life, before := w.life, w.sequence
	w.work.Go(func() {
		for {
			if life.Err() == nil {
				w.config.Try(life)
			}
			w.mu.Lock()
			if life.Err() != nil || w.lost == nil && w.answered > before {
				w.trying = false
				w.mu.Unlock()
				return
			}
			w.mu.Unlock()
			_ = sleep.For(life, Tick)
		}
	})
}
