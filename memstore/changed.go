package memstore

import (
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// changed is what a state was as another version of the limit wrote it. The state beside it is that as the limit reads
// it now; changed is dropped once that is written, since it is the limit's own then.
type changed struct {
	writer  *limit
	bucket  algorithm.ChangedBucket
	counter algorithm.ChangedCounter
	reader  *algorithm.SlidingWindowLog // of a log, which it is read by
	log     algorithm.Log               // as the writer has it
}

// changedFrom is a state that another version of the limit wrote; nil: that means the same here.
func (l *limit) changedFrom(st *state, writer *limit) *changed {
	c, isChanged := changed{writer: writer}, false
	switch l.algorithm {
	case stint.AlgorithmTokenBucket:
		c.bucket, isChanged = l.token.Changed(st.tokens(), writer.token)
	case stint.AlgorithmLeakyBucket:
		c.bucket, isChanged = l.leaky.Changed(st.bucket(), writer.leaky)
	case stint.AlgorithmSlidingWindowCounter:
		c.counter, isChanged = l.counter.Changed(st.counter(), writer.counter)
	case stint.AlgorithmSlidingWindowLog:
		c.reader, c.log = l.log.Reader(writer.log), st.log
		isChanged = c.reader != l.log
	case stint.AlgorithmFixedWindow: // a window goes on to its own end, whichever limit wrote it
	case stint.AlgorithmConcurrency: // what is held is held under any limit
	}
	if !isChanged {
		return nil
	}
	return &c
}

// read makes of a state what the limit has of it now.
func (l *limit) read(st *state, now stint.Instant) {
	c := st.changed
	switch l.algorithm {
	case stint.AlgorithmSlidingWindowLog:
		reader := l.log
		if c != nil {
			reader, st.log = c.reader, c.log
		}
		reader.Adopt(&st.log, now, c != nil)
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		if c != nil {
			b := c.bucket.State(now)
			st.setBucket(&b)
		}
	case stint.AlgorithmSlidingWindowCounter:
		if c != nil {
			s := c.counter.State(now)
			st.setCounter(&s)
		}
	case stint.AlgorithmFixedWindow, stint.AlgorithmConcurrency: // are read as they are
	}
}

// endPart lets a part expire as the writer carries the state on, and as the limit does in its own run.
func (c *changed) endPart(st *state, at stint.Instant, part *part) {
	switch c.writer.algorithm {
	case stint.AlgorithmTokenBucket:
		c.bucket.EndHold(at, part.n, part.keeps())
	case stint.AlgorithmSlidingWindowCounter:
		giveBack(part.pieces, part.n-part.keeps(), 0, func(p algorithm.Piece) int64 {
			c.counter.GiveBack(at, p)
			return 0
		})
	case stint.AlgorithmSlidingWindowLog:
		giveBack(part.pieces, part.n-part.keeps(), 0, func(p algorithm.Piece) int64 {
			return c.writer.log.GiveBack(&c.log, at, p)
		})
	default: // nothing of a leaky bucket comes back
	}
	st.held -= part.n
}

// runs are the two runs of a state; nil: it has one.
func (st *state) runs() algorithm.Changed {
	switch {
	case st.changed == nil || st.changed.reader != nil:
		return nil
	case st.changed.writer.counter != nil:
		return &st.changed.counter
	}
	return &st.changed.bucket
}

// leaves is how long until at most so many permits count, if nothing that is held ends.
func (l *limit) leaves(st *state, now stint.Instant, most int64) time.Duration {
	if runs := st.runs(); runs != nil {
		return runs.Wait(now, l.capacity-most)
	}
	switch l.algorithm {
	case stint.AlgorithmTokenBucket:
		b := st.tokens()
		return l.token.Leaves(&b, now, most)
	case stint.AlgorithmLeakyBucket:
		b := st.bucket()
		return l.leaky.Leaves(&b, now, most)
	case stint.AlgorithmFixedWindow:
		w := st.window()
		return l.window.Leaves(&w, now, most)
	case stint.AlgorithmSlidingWindowCounter:
		c := st.counter()
		return l.counter.Leaves(&c, now, most)
	case stint.AlgorithmSlidingWindowLog:
		reader := l.log
		if st.changed != nil {
			reader = st.changed.reader
		}
		return reader.Leaves(&st.log, now, most)
	case stint.AlgorithmConcurrency:
		if st.held > most {
			return stint.Never // but for the end of a hold
		}
	}
	return 0 // prepare lets no other algorithm in
}
