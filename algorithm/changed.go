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
// ([SlidingWindowLog.Reader]).

// A ChangedBucket is a bucket's state that another version of the limit wrote. It is a value, and not safe for
// concurrent use.
type ChangedBucket struct {
	reader, writer *schedule
	token          bool
	carried, taken BucketState
}

// Changed is a state that writer, another version of the limit, wrote. It reports false if that means the same here.
func (b *TokenBucket) Changed(state BucketState, writer *TokenBucket) (c ChangedBucket, changed bool) {
	return newChangedBucket(state, &b.schedule, &writer.schedule, true)
}

// Changed is a state that writer, another version of the limit, wrote. It reports false if that means the same here.
func (b *LeakyBucket) Changed(state BucketState, writer *LeakyBucket) (c ChangedBucket, changed bool) {
	return newChangedBucket(state, &b.schedule, &writer.schedule, false)
}

func newChangedBucket(state BucketState, reader, writer *schedule, token bool) (c ChangedBucket, changed bool) {
	if reader.same(writer) && (state.Held == 0 || reader.debt == writer.debt) {
		return c, false
	}
	c = ChangedBucket{reader: reader, writer: writer, token: token, carried: state}
	c.renew()
	return c, true
}

// renew begins the reader's run at the writer's last change.
func (c *ChangedBucket) renew() {
	if c.taken = c.carried; !c.reader.same(c.writer) { // else only the debt differs, down to which what is held stands
		c.taken = c.takeOver(&c.carried, c.carried.Last)
	}
}

// State is the state as the limit reads it.
func (c *ChangedBucket) State(now stint.Instant) BucketState {
	carried := c.takeOver(&c.carried, now)
	_, least := c.reader.backlog(&carried, now)
	if t, backlog := c.reader.backlog(&c.taken, now); backlog.less(least) {
		carried.due(t, backlog)
	}
	return carried
}

// takeOver is what the writer has at an instant as the reader's own: the permits outstanding there, a part counted
// whole, are outstanding here; of a token bucket the whole permits that it holds are held here, at most the new
// capacity. A token bucket that the writer has full is full here only once the writer could have filled it from
// empty: else two versions in turn would each fill the other's.
func (c *ChangedBucket) takeOver(state *BucketState, at stint.Instant) BucketState {
	t, backlog := c.writer.backlog(state, at)
	own := BucketState{Held: state.Held}
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
func (c *ChangedBucket) rested(state *BucketState) stint.Instant {
	if !c.token {
		return 0
	}
	return c.writer.rested(state)
}

// Rested is when the bucket would be full if it had been empty at its last change. Until then a state is worth
// something to other versions of the limit.
func (b *TokenBucket) Rested(state *BucketState) stint.Instant { return b.rested(state) }

func (s *schedule) rested(state *BucketState) stint.Instant {
	return state.Last + stint.Instant(s.capacityTime.ceil())
}

// Wait is how long until n permits are there, if no hold ends until then.
func (c *ChangedBucket) Wait(now stint.Instant, n int64) time.Duration {
	taken := c.reader.Leaves(&c.taken, now, c.reader.capacity-n)
	carried := time.Duration(0)
	switch {
	case c.carried.Held > c.reader.capacity-n: // what is held stands here, too
		return stint.Never
	case !c.token:
		carried = c.writer.Leaves(&c.carried, now, c.reader.capacity-n)
	case n <= c.writer.capacity:
		carried = c.writer.Leaves(&c.carried, now, c.writer.capacity-n)
	default:
		carried = max(c.writer.Leaves(&c.carried, now, 0), micros(int64(c.rested(&c.carried)-now)))
	}
	return min(taken, carried)
}

// EndHold lets a hold of n permits of a token bucket expire, of which kept stay charged. That is the writer's last
// change.
func (c *ChangedBucket) EndHold(at stint.Instant, n, kept int64) {
	c.writer.endHold(&c.carried, at, n, kept)
	c.renew()
}

// A ChangedCounter is a sliding window counter's state that a version of another length wrote. Its reader's run begins
// at the end of the window of the last change, with the count of that. It is a value, and not safe for concurrent use.
type ChangedCounter struct {
	reader, writer *SlidingWindowCounter
	carried, taken CounterState
	from           stint.Instant // when the reader's run begins
}

// Changed is a state that writer, another version of the limit, wrote. It reports false if that means the same here.
func (c *SlidingWindowCounter) Changed(
	state CounterState, writer *SlidingWindowCounter,
) (changed ChangedCounter, isChanged bool) {
	if c.window == writer.window {
		return changed, false
	}
	from := state.Start + stint.Instant(writer.window)
	return ChangedCounter{
		reader: c, writer: writer, carried: state, from: from,
		taken: CounterState{Start: from - from%stint.Instant(c.window), Current: state.Current},
	}, true
}

// State is the state as the limit reads it: what the writer estimates now, rounded up, is counted in the window of now,
// or what its own run has.
func (c *ChangedCounter) State(now stint.Instant) CounterState {
	t := max(now, c.carried.Start)
	s, elapsed := c.writer.at(&c.carried, now)
	carried := CounterState{Start: t - t%stint.Instant(c.reader.window), Current: c.writer.used(&s, elapsed)}
	if t < c.from {
		return carried
	}
	taken, elapsed := c.reader.at(&c.taken, now)
	if c.reader.used(&taken, elapsed) > carried.Current {
		return carried
	}
	return taken
}

// Wait is how long until n permits are there, if no hold ends until then.
func (c *ChangedCounter) Wait(now stint.Instant, n int64) time.Duration {
	most, from := c.reader.limit-n, max(now, c.from)
	taken := micros(int64(from-now)) + c.reader.Leaves(&c.taken, from, most)
	return min(taken, c.writer.Leaves(&c.carried, now, most))
}

// GiveBack gives back the permits of a hold's piece in the writer's run. Of a run that took them over nothing comes
// back.
func (c *ChangedCounter) GiveBack(at stint.Instant, p Piece) { c.writer.GiveBack(&c.carried, at, p) }

// Reader is the limit by which w reads a log that writer, another version of it, wrote: an entry leaves, and the
// interval since the last request ends, by the shorter of the two lengths. It is w itself if that is no change. What is
// written is w's own.
func (w *SlidingWindowLog) Reader(writer *SlidingWindowLog) *SlidingWindowLog {
	if w.window == writer.window && w.minInterval == writer.minInterval {
		return w
	}
	reader := *w
	reader.window, reader.minInterval = min(w.window, writer.window), min(w.minInterval, writer.minInterval)
	return &reader
}

// ApplyRead is Apply of a log that a reader has adopted: the reader is asked, and what is written is w's own.
func (w *SlidingWindowLog) ApplyRead(
	reader *SlidingWindowLog, action Action, log *Log, now stint.Instant, n, keep int64, out *stint.Outcome,
) {
	switch {
	case action == Settle:
		if w.Apply(action, log, now, n, keep, out); out.Applied == 0 {
			reader.Apply(action, log, now, 0, keep, out)
		}
	case action == Deny && w.countDenied:
		w.Apply(action, log, now, n, keep, out)
	default:
		if reader.Apply(Peek, log, now, n, keep, out); action == Take && out.Allowed {
			w.Apply(action, log, now, n, keep, out)
		}
	}
}

// Changed is a [ChangedBucket] or a [ChangedCounter].
type Changed interface {
	Wait(now stint.Instant, n int64) time.Duration
}

// CorrectWaits makes the waits that an outcome has of such a state's own run those of both, where the request of n
// permits changed nothing. held says that permits of it are held, so that nobody knows when it is untouched.
func CorrectWaits(c Changed, now stint.Instant, n, keep int64, held bool, out *stint.Outcome) {
	if !out.Allowed && n <= out.Limit-keep {
		out.RetryAfter = c.Wait(now, n+keep)
	}
	if out.ResetAfter > 0 && !held {
		out.ResetAfter = c.Wait(now, out.Limit)
	}
}
