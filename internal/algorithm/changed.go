package algorithm

import (
	"time"

	"github.com/stint-go/stint"
)

// A state that another version of a limit wrote counts as the better of two runs:
//
//	carried  the writer carries it on, and the reader takes it over when it asks
//	taken    the reader has taken it over at the state's last change, and has carried it on since
//
// so that a changed limit's waits are the lesser of both, and are right from the first answer on, though no
// denial writes anything. The types below are such a state of the algorithms whose two runs differ.
//
// A fixed window goes on to its own end, whoever wrote it; a log is read by the shorter lengths of the two
// ([slidingWindowLog.reader]).

// A changedBucket is a bucket's state that another version of the limit wrote. It is a value, and not safe for
// concurrent use.
type changedBucket struct {
	reader, writer *schedule
	token          bool
	carried, taken bucketState
}

// newChangedBucket is a state that writer, another version of the limit, wrote. It reports false if that means the same
// here.
func newChangedBucket(state bucketState, reader, writer *schedule, token bool) (c changedBucket, changed bool) {
	if reader.same(writer) && (state.Held == 0 || reader.debt == writer.debt) {
		return c, false
	}
	c = changedBucket{reader: reader, writer: writer, token: token, carried: state}
	c.renew()
	return c, true
}

// renew begins the reader's run at the writer's last change.
func (c *changedBucket) renew() {
	if c.taken = c.carried; !c.reader.same(c.writer) { // else only the debt differs, down to which what is held stands
		c.taken = c.takeOver(&c.carried, c.carried.Last)
	}
}

// state is the state as the limit reads it: its backlog, of which what is held is a part, whatever debt another version
// that reads it later has.
func (c *changedBucket) state(now stint.Instant) bucketState {
	own := c.takeOver(&c.carried, now)
	t, backlog := c.reader.backlog(&own, now)
	if at, taken := c.reader.backlog(&c.taken, now); taken.less(backlog) {
		t, backlog = at, taken
	}
	own.due(t, backlog)
	return own
}

// takeOver is what the writer has at an instant as the reader's own: the permits outstanding there, a part counted
// whole, are outstanding here; of a token bucket the whole permits that it holds are held here, at most the new
// capacity. A token bucket that the writer has full is full here only once the writer could have filled it from
// empty: else two versions in turn would each fill the other's.
func (c *changedBucket) takeOver(state *bucketState, at stint.Instant) bucketState {
	t, backlog := c.writer.backlog(state, at)
	own := bucketState{Held: state.Held}
	if c.reader.same(c.writer) {
		own.due(t, backlog)
		return own
	}
	outstanding := c.writer.permitsIn(backlog)
	if c.token && (outstanding > 0 || t < c.rested(state)) {
		outstanding = max(0, outstanding+c.reader.capacity-c.writer.capacity)
	}
	own.due(t, c.reader.timeWithin(outstanding))
	return own
}

// rested is when the writer's state may be full here, if it is full there.
func (c *changedBucket) rested(state *bucketState) stint.Instant {
	if !c.token {
		return 0
	}
	return c.writer.rested(state)
}

// rested is when a token bucket would be full if it had been empty at its last change. Until then a state is worth
// something to other versions of the limit.
func (s *schedule) rested(state *bucketState) stint.Instant {
	return state.Last + stint.Instant(s.capacityTime.ceil())
}

// wait is how long until n permits are there, if no hold ends until then.
func (c *changedBucket) wait(now stint.Instant, n int64) time.Duration {
	taken := c.reader.leaves(&c.taken, now, c.reader.capacity-n)
	carried := time.Duration(0)
	switch {
	case c.carried.Held > c.reader.capacity-n: // what is held stands here, too
		return stint.Never
	case !c.token:
		carried = c.writer.leaves(&c.carried, now, c.reader.capacity-n)
	case n <= c.writer.capacity:
		carried = c.writer.leaves(&c.carried, now, c.writer.capacity-n)
	default:
		carried = max(c.writer.leaves(&c.carried, now, 0), micros(int64(c.rested(&c.carried)-now)))
	}
	return min(taken, carried)
}

// endHold lets a hold of n permits of a token bucket expire, of which kept stay charged. That is the writer's last
// change.
func (c *changedBucket) endHold(at stint.Instant, n, kept int64) {
	c.writer.endHold(&c.carried, at, n, kept)
	c.renew()
}

// A changedCounter is a sliding window counter's state that a version of another length wrote. Its reader's run begins
// at the end of the window of the last change, with the count of that. It is a value, and not safe for concurrent use.
type changedCounter struct {
	reader, writer *slidingWindowCounter
	carried, taken counterState
	from           stint.Instant // when the reader's run begins
}

// changed is a state that writer, another version of the limit, wrote. It reports false if that means the same here.
func (c *slidingWindowCounter) changed(
	state counterState, writer *slidingWindowCounter,
) (changed changedCounter, isChanged bool) {
	if c.window == writer.window {
		return changed, false
	}
	from := state.Start + stint.Instant(writer.window)
	return changedCounter{
		reader: c, writer: writer, carried: state, from: from,
		taken: counterState{Start: from - from%stint.Instant(c.window), Current: state.Current},
	}, true
}

// state is the state as the limit reads it: what the writer estimates now, rounded up, is counted in the window of now,
// or what its own run has.
func (c *changedCounter) state(now stint.Instant) counterState {
	t := max(now, c.carried.Start)
	s, elapsed := c.writer.at(&c.carried, now)
	carried := counterState{Start: t - t%stint.Instant(c.reader.window), Current: c.writer.used(&s, elapsed)}
	if t < c.from {
		return carried
	}
	taken, elapsed := c.reader.at(&c.taken, now)
	if c.reader.used(&taken, elapsed) > carried.Current {
		return carried
	}
	return taken
}

// wait is how long until n permits are there, if no hold ends until then.
func (c *changedCounter) wait(now stint.Instant, n int64) time.Duration {
	most, from := c.reader.limit-n, max(now, c.from)
	taken := micros(int64(from-now)) + c.reader.leaves(&c.taken, from, most)
	return min(taken, c.writer.leaves(&c.carried, now, most))
}

// giveBack gives back the permits of a hold's piece in the writer's run. Of a run that took them over nothing comes
// back.
func (c *changedCounter) giveBack(at stint.Instant, p Piece) { c.writer.giveBack(&c.carried, at, p) }

// reader is the limit by which w reads a log that writer, another version of it, wrote: an entry leaves, and the
// interval since the last request ends, by the shorter of the two lengths. It is w itself if that is no change. What is
// written is w's own.
func (w *slidingWindowLog) reader(writer *slidingWindowLog) *slidingWindowLog {
	if w.window == writer.window && w.minInterval == writer.minInterval {
		return w
	}
	reader := *w
	reader.window, reader.minInterval = min(w.window, writer.window), min(w.minInterval, writer.minInterval)
	return &reader
}

// applyRead is Apply of a log that a reader has adopted: the reader is asked, and what is written is w's own.
func (w *slidingWindowLog) applyRead(
	reader *slidingWindowLog, action Action, log *Log, now stint.Instant, n, keep int64, out *stint.Outcome,
) {
	switch {
	case action == Settle:
		if w.apply(action, log, now, n, keep, out); out.Applied == 0 {
			reader.apply(action, log, now, 0, keep, out)
		}
	case action == Deny && w.countDenied:
		w.apply(action, log, now, n, keep, out)
	default:
		if reader.apply(Peek, log, now, n, keep, out); action == Take && out.Allowed {
			w.apply(action, log, now, n, keep, out)
		}
	}
}
