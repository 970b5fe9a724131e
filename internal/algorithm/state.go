package algorithm

import (
	"github.com/stint-go/stint"
)

// Numbers is the state of an algorithm of fixed size: a time and two numbers more, whose meaning is the algorithm's.
// None is negative in a state that has been written, and Third is below 2^32. The zero value is untouched.
//
//	               At      Second       Third
//	buckets        Last    Due - Last   Frac
//	fixed window   Start   End - Start  Count
//	counter        Start   Previous     Current
type Numbers struct {
	At            stint.Instant
	Second, Third int64
}

func (s *Numbers) bucket() bucketState {
	return bucketState{Due: s.At + stint.Instant(s.Second), Frac: s.Third, Last: s.At}
}

func (s *Numbers) window() windowState {
	return windowState{Start: s.At, End: s.At + stint.Instant(s.Second), Count: s.Third}
}

func (s *Numbers) counter() counterState {
	return counterState{Start: s.At, Previous: s.Second, Current: s.Third}
}

func (b *bucketState) numbers() Numbers { return Numbers{b.Last, int64(b.Due - b.Last), b.Frac} }
func (w *windowState) numbers() Numbers { return Numbers{w.Start, int64(w.End - w.Start), w.Count} }
func (c *counterState) numbers() Numbers {
	return Numbers{c.Start, c.Previous, c.Current}
}

// State is the state of a limit of any algorithm, at work. A store keeps the numbers, the log and what is held; which
// limit wrote it, it tells by [Machine.Adopt]. The zero value is untouched. It is not safe for concurrent use.
type State struct {
	Numbers       // of an algorithm of fixed size
	Log     Log   // of a sliding window log
	Held    int64 // how many permits are held; of a concurrency limit that is all
	// changed is the state as another version of the limit wrote it. Beside it is what the limit has of it now. It is
	// dropped once that is written, since it is the limit's own then. nil: the limit wrote it, or as good as that.
	changed *changed
}

// changed is a state that another version of the limit wrote.
type changed struct {
	bucket         changedBucket
	counter        changedCounter
	reader, writer *slidingWindowLog // of a log: what it is read by, and what wrote it
	log            Log               // as the writer has it
}

// IsPlain reports whether nothing but its numbers matters: the limit wrote them, and nothing of it is held.
func (s *State) IsPlain() bool { return s.changed == nil && s.Held == 0 }

// Written makes the state the limit's own, whoever wrote it before.
func (s *State) Written() { s.changed = nil }

// Clone is a copy that may change while the state does not. They share a log's records, which ends of holds don't
// change.
func (s *State) Clone() State {
	clone := *s
	if s.changed != nil {
		changed := *s.changed
		clone.changed = &changed
	}
	return clone
}
