// Package algorithm holds the algorithms as pure integer transitions: a state, a limit, a time and
// a cost go in, the new state and an outcome come out. There is no clock, lock, log or I/O here;
// stores bring those.
//
// Stores decide by a [Machine]: a limit of any algorithm, made by [NewMachine], with what it does to
// a [State]. Each algorithm has a type and a file of its own. Begin with fixed_window.go, the
// simplest. A concurrency limit has no state but what is held (hold.go). changed.go says how a state
// is read that another version of the limit wrote.
//
// Each algorithm stands in Go and, beside it, in Lua with the same structure, for Redis to run.
// Transcripts in testdata hold the two to each other.
//
// Times are whole microseconds since the Unix epoch, of the store's clock. A state's time never
// runs back: a transition uses the later of now and the newest time that the state records, while
// the waits it answers count from now.
//
// Inside the ranges that [stint.Limit] accepts, every intermediate value is exact: products are
// taken in 128 bits in Go and in steps below 2^53 in Lua.
package algorithm

import (
	"math/bits"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// An Action is what a transition does. Everything that a store does with a state but holds is one
// of these.
type Action uint8

const (
	// Take consumes the cost if the limit admits it. A denial changes nothing.
	Take Action = iota
	// Peek answers as Take would and changes nothing.
	Peek
	// Deny records a request that the policy denied, where the limit counts denied
	// requests; elsewhere it is Peek.
	Deny
	// Settle charges a positive amount or refunds a negative one.
	Settle
)

// ActionOf is the action by which a verb is decided; a reset has none.
func ActionOf(verb stint.Verb) Action {
	switch verb {
	case stint.VerbPeek:
		return Peek
	case stint.VerbSettle:
		return Settle
	default:
		return Take
	}
}

// horizon is the furthest a bucket's schedule may reach past now, in
// microseconds: what a changed limit takes over from another is cut to it.
const horizon = int64(bounds.MaxDrain / time.Microsecond)

// maxSettle bounds the amount of a Settle: no state holds or owes more, so a
// larger amount has the same effect.
const maxSettle = 2 * bounds.MaxPermits

// Amount bounds what a Settle asks for to what any state could hold or owe.
func Amount(n int64) int64 { return max(-maxSettle, min(n, maxSettle)) }

// Margin is how long beyond its last use, in microseconds, a state that lives for
// the given time is to be kept: a tenth, and at least a second.
func Margin(life int64) int64 { return max(life/10, int64(time.Second/time.Microsecond)) }

// micros turns microseconds into a duration.
func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// mulDivCeil is a*b/c rounded up. The operands are not negative, c is positive and the quotient
// fits. It is exact, as the product has 128 bits.
func mulDivCeil(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, r := bits.Div64(hi, lo, uint64(c))
	if r > 0 {
		q++
	}
	return int64(q)
}

// mulDiv is a*b/c rounded down, under the conditions of mulDivCeil.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

// clamp bounds n from below by 0 and from above by most; a negative most is 0.
func clamp(n, most int64) int64 { return max(0, min(n, most)) }

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
