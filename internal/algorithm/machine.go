package algorithm

import (
	"math"
	"slices"
	"time"

	"github.com/stint-go/stint"
)

// Machine is a limit of any algorithm, as stores decide by it: what the limit does to its state, with the choice of
// the algorithm made here, once. It is immutable and safe for concurrent use. The zero value is of no use.
type Machine struct {
	kind        stint.Algorithm
	countDenied bool
	capacity    int64
	cost        int64

	bucket  *schedule // of either kind
	token   *tokenBucket
	leaky   *leakyBucket
	window  *fixedWindow
	log     *slidingWindowLog
	counter *slidingWindowCounter
	places  *concurrency
}

// NewMachine prepares a valid limit.
func NewMachine(limit stint.Limit) Machine {
	m := Machine{
		kind: limit.Algorithm, countDenied: limit.CountDenied || limit.Denials, capacity: limit.Capacity, cost: limit.Cost,
	}
	if limit.Denials {
		m.cost = limit.Takes(1)
	}
	switch limit.Algorithm {
	case stint.AlgorithmTokenBucket:
		m.token = newTokenBucket(limit)
		m.bucket = &m.token.schedule
	case stint.AlgorithmLeakyBucket:
		m.leaky = newLeakyBucket(limit)
		m.bucket = &m.leaky.schedule
	case stint.AlgorithmFixedWindow:
		m.window = newFixedWindow(limit)
	case stint.AlgorithmSlidingWindowLog:
		m.log = newSlidingWindowLog(limit)
	case stint.AlgorithmSlidingWindowCounter:
		m.counter = newSlidingWindowCounter(limit)
	case stint.AlgorithmConcurrency:
		m.places = newConcurrency(limit)
	}
	return m
}

// Algorithm is the limit's.
func (m *Machine) Algorithm() stint.Algorithm { return m.kind }

// Capacity is the limit's.
func (m *Machine) Capacity() int64 { return m.capacity }

// CountsDenied reports whether the limit counts denied requests, or denials.
func (m *Machine) CountsDenied() bool { return m.countDenied }

// CountsDenials reports whether it counts denials, and nothing else.
func (m *Machine) CountsDenials() bool { return m.countDenied && m.window != nil }

// HasLog reports whether the state is a log, and not numbers.
func (m *Machine) HasLog() bool { return m.kind == stint.AlgorithmSlidingWindowLog }

// HasPlaces reports whether the state is what is held, and nothing else.
func (m *Machine) HasPlaces() bool { return m.kind == stint.AlgorithmConcurrency }

// Takes is how many permits a request for n takes: the limit's own cost, if it has one.
func (m *Machine) Takes(n int64) int64 {
	if m.cost > 0 {
		return m.cost
	}
	return n
}

// Settles reports whether a Settle concerns the limit: not if it has a cost of its own, or if its permits are places.
// A fixed cost is taken whatever a request turns out to cost, and places are given back by the end of the hold.
func (m *Machine) Settles() bool { return m.cost == 0 && !m.HasPlaces() }

// Returns reports whether permits that were taken can be given back. A leaky bucket's have their turn.
func (m *Machine) Returns() bool { return m.kind != stint.AlgorithmLeakyBucket }

// Untouched is what a limit says of an untouched state, of which keep are left to others.
func (m *Machine) Untouched(keep int64) stint.Outcome {
	return stint.Outcome{
		Allowed: true, Denials: m.CountsDenials(), Limit: m.capacity, Remaining: max(0, m.capacity-keep),
	}
}

// ApplyNumbers is Apply on the numbers of a state of which nothing else matters. A Take that is denied, a Peek and a
// Deny leave them as they were. What a Settle asks for is bounded by [Amount].
func (m *Machine) ApplyNumbers(
	action Action, s Numbers, now stint.Instant, n, keep int64, out *stint.Outcome,
) Numbers {
	switch m.kind {
	case stint.AlgorithmTokenBucket:
		b := s.bucket()
		m.token.apply(action, &b, now, n, keep, out)
		return b.numbers()
	case stint.AlgorithmLeakyBucket:
		b := s.bucket()
		m.leaky.apply(action, &b, now, n, keep, out)
		return b.numbers()
	case stint.AlgorithmFixedWindow:
		w := s.window()
		m.window.apply(action, &w, now, n, keep, out)
		return w.numbers()
	case stint.AlgorithmSlidingWindowCounter:
		c := s.counter()
		m.counter.apply(action, &c, now, n, keep, out)
		return c.numbers()
	case stint.AlgorithmSlidingWindowLog, stint.AlgorithmConcurrency: // their states are not numbers
	}
	return s
}

// Apply carries out an action of n permits on the state, so that keep more are left, and reports whether that changed
// it. What is held changes by [Machine.Hold] alone.
func (m *Machine) Apply(action Action, s *State, now stint.Instant, n, keep int64, out *stint.Outcome) bool {
	if action == Settle {
		n = Amount(n)
	}
	switch {
	case m.log != nil && s.changed != nil:
		m.log.applyRead(s.changed.reader, action, &s.Log, now, n, keep, out)
	case m.log != nil:
		m.log.apply(action, &s.Log, now, n, keep, out)
	case m.places != nil:
		m.places.decide(s.Held, n, keep, out)
	case m.token != nil && s.Held > 0:
		b := m.bucketOf(s)
		m.token.apply(action, &b, now, n, keep, out)
		s.Numbers = b.numbers()
	default:
		s.Numbers = m.ApplyNumbers(action, s.Numbers, now, n, keep, out)
	}
	written := m.writes(action, out)
	switch {
	case s.changed == nil:
	case written:
		s.changed = nil
	case m.log == nil:
		m.correctWaits(s, now, n, keep, out)
	}
	return written
}

// writes reports whether an action with such an outcome changed the state.
func (m *Machine) writes(action Action, out *stint.Outcome) bool {
	switch action {
	case Take:
		return out.Allowed && !m.CountsDenials()
	case Deny:
		return m.countDenied && (m.window == nil || out.Allowed) // a full window of denials counts no more
	case Settle:
		return out.Applied != 0
	case Peek:
	}
	return false
}

// correctWaits makes the waits that an outcome has of the reader's run those of both runs, where the request of n
// permits changed nothing. Nobody knows when a state is untouched of which permits are held.
func (m *Machine) correctWaits(s *State, now stint.Instant, n, keep int64, out *stint.Outcome) {
	if !out.Allowed && n <= m.capacity-keep {
		out.RetryAfter = m.wait(s, now, n+keep)
	}
	if out.ResetAfter > 0 && s.Held == 0 {
		out.ResetAfter = m.wait(s, now, m.capacity)
	}
}

// wait is how long until n permits are there of a state of two runs, if no hold ends until then.
func (m *Machine) wait(s *State, now stint.Instant, n int64) time.Duration {
	if m.counter != nil {
		return s.changed.counter.wait(now, n)
	}
	return s.changed.bucket.wait(now, n)
}

// Admit takes n permits k times, one after another, as often as they fit, and returns how often. It is k times Apply,
// in one step and without outcomes, on the numbers of a state of which nothing is held.
func (m *Machine) Admit(s *State, now stint.Instant, n, keep, k int64) (admitted int64) {
	switch m.kind {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		b := s.bucket()
		admitted = m.bucket.admit(&b, now, n, keep, k)
		s.Numbers = b.numbers()
	case stint.AlgorithmFixedWindow:
		w := s.window()
		admitted = m.window.admit(&w, now, n, keep, k)
		s.Numbers = w.numbers()
	case stint.AlgorithmSlidingWindowCounter:
		c := s.counter()
		admitted = m.counter.admit(&c, now, n, keep, k)
		s.Numbers = c.numbers()
	case stint.AlgorithmSlidingWindowLog, stint.AlgorithmConcurrency: // their states are not numbers
	}
	s.wrote(admitted > 0)
	return admitted
}

// wrote notes whether the limit has changed the state.
func (s *State) wrote(changed bool) {
	if changed {
		s.changed = nil
	}
}

// Refund gives back n permits that were taken at an instant of a state of numbers, of which nothing is held. A window
// that is over gives back nothing, and what a bucket has refilled since is not refilled twice. It reports whether that
// changed the state.
func (m *Machine) Refund(s *State, now stint.Instant, n int64, taken stint.Instant) (changed bool) {
	switch m.kind {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		b := s.bucket()
		changed = m.bucket.refundTaken(&b, now, n, taken)
		s.Numbers = b.numbers()
	case stint.AlgorithmFixedWindow:
		w := s.window()
		changed = m.window.refundTaken(&w, now, n, taken)
		s.Numbers = w.numbers()
	case stint.AlgorithmSlidingWindowCounter:
		c := s.counter()
		changed = m.counter.refundTaken(&c, now, n, taken)
		s.Numbers = c.numbers()
	case stint.AlgorithmSlidingWindowLog, stint.AlgorithmConcurrency: // their states are not numbers
	}
	s.wrote(changed)
	return changed
}

// ReturnLease is Refund of n permits that were leased at an instant and not spent. What a token bucket has refilled
// since stays away: without the lease it may have been full, and let that go. So the state is never better than if the
// permits had not been leased.
func (m *Machine) ReturnLease(s *State, now stint.Instant, n int64, leased stint.Instant) (changed bool) {
	if m.token == nil {
		return m.Refund(s, now, n, leased)
	}
	b := s.bucket()
	changed = m.token.returnLeased(&b, now, n, leased)
	s.Numbers = b.numbers()
	s.wrote(changed)
	return changed
}

// bucketOf is the state of a bucket, with what is held of a token bucket. What is held of a leaky one has its turn.
func (m *Machine) bucketOf(s *State) bucketState {
	b := s.bucket()
	if m.token != nil {
		b.Held = s.Held
	}
	return b
}

// GrowsAfter is how long until more remains than an outcome has said, if no hold ends until then; [stint.Never] if that
// takes the end of a hold, and 0 if all remains.
func (m *Machine) GrowsAfter(s *State, now stint.Instant, keep, remaining int64) time.Duration {
	most := m.capacity - keep - remaining - 1
	if most < 0 {
		return 0
	}
	if s.changed != nil && m.log == nil {
		return m.wait(s, now, m.capacity-most)
	}
	switch m.kind {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		b := m.bucketOf(s)
		return m.bucket.leaves(&b, now, most)
	case stint.AlgorithmFixedWindow:
		w := s.window()
		return m.window.leaves(&w, now, most)
	case stint.AlgorithmSlidingWindowCounter:
		c := s.counter()
		return m.counter.leaves(&c, now, most)
	case stint.AlgorithmSlidingWindowLog:
		return m.reader(s).leaves(&s.Log, now, most)
	case stint.AlgorithmConcurrency:
		if s.Held > most {
			return stint.Never
		}
	}
	return 0
}

// reader is by what a log is read.
func (m *Machine) reader(s *State) *slidingWindowLog {
	if s.changed != nil {
		return s.changed.reader
	}
	return m.log
}

// Adopt notes that writer, another version of the limit and of the same algorithm, wrote the state. After it, and what
// has ended since of what is held, the state is to be brought up to now by [Machine.Read].
func (m *Machine) Adopt(s *State, writer *Machine) {
	c, isChanged := changed{}, false
	switch m.kind {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		c.bucket, isChanged = newChangedBucket(m.bucketOf(s), m.bucket, writer.bucket, m.token != nil)
	case stint.AlgorithmSlidingWindowCounter:
		c.counter, isChanged = m.counter.changed(s.counter(), writer.counter)
	case stint.AlgorithmSlidingWindowLog:
		c.reader, c.writer, c.log = m.log.reader(writer.log), writer.log, s.Log
		isChanged = c.reader != m.log
	case stint.AlgorithmFixedWindow: // a window goes on to its own end, whichever limit wrote it
	case stint.AlgorithmConcurrency: // what is held is held under any limit
	}
	if isChanged {
		kept := c // which is on the heap, and c is not
		s.changed = &kept
	}
}

// Read makes of a stored state what the limit has of it now.
func (m *Machine) Read(s *State, now stint.Instant) {
	c := s.changed
	switch {
	case m.log != nil:
		if c != nil {
			s.Log = c.log
		}
		m.reader(s).adopt(&s.Log, now, c != nil)
	case c == nil:
	case m.counter != nil:
		read := c.counter.state(now)
		s.Numbers = read.numbers()
	default:
		read := c.bucket.state(now)
		s.Numbers = read.numbers()
	}
}

// Hold makes n permits that were just taken a hold's, and returns the piece by which they come back.
func (m *Machine) Hold(s *State, n int64) Piece {
	s.Held += n
	switch m.kind {
	case stint.AlgorithmFixedWindow:
		w := s.window()
		return m.window.piece(&w, n)
	case stint.AlgorithmSlidingWindowCounter:
		c := s.counter()
		return m.counter.piece(&c, n)
	case stint.AlgorithmSlidingWindowLog:
		return m.log.piece(&s.Log, n)
	default:
		return Piece{N: n}
	}
}

// EndHold ends at an instant a hold of n permits, which were taken in pieces. kept of them stay charged. Pieces of the
// time lost and before do not come back. It returns how many did. A state that another version wrote is carried on by
// its writer.
func (m *Machine) EndHold(s *State, at stint.Instant, pieces []Piece, n, kept int64, lost stint.Instant) (back int64) {
	switch {
	case m.token != nil && s.changed != nil:
		s.changed.bucket.endHold(at, n, kept)
	case m.token != nil:
		b := m.bucketOf(s)
		back = m.token.endHold(&b, at, n, kept)
		s.Numbers = b.numbers()
	case m.places != nil:
		back = n
	default:
		if s.changed != nil {
			lost = 0
		}
		back = m.giveBackPieces(s, at, pieces, n-kept, lost)
	}
	s.Held -= n
	return back
}

// Expire is EndHold of a hold that has expired by now, where the state was read before it had.
func (m *Machine) Expire(s *State, now stint.Instant, pieces []Piece, n, kept int64, lost stint.Instant) {
	m.EndHold(s, now, pieces, n, kept, lost)
	if s.changed != nil {
		m.Read(s, now)
	}
}

// giveBackPieces gives back n permits, the newest pieces first, where they still count.
func (m *Machine) giveBackPieces(
	s *State, at stint.Instant, pieces []Piece, n int64, lost stint.Instant,
) (back int64) {
	for _, piece := range slices.Backward(pieces) {
		piece.N = min(piece.N, n)
		if n -= piece.N; piece.N == 0 || piece.At <= lost {
			break
		}
		back += m.giveBack(s, at, piece)
	}
	return back
}

// giveBack gives back a piece where it still counts.
func (m *Machine) giveBack(s *State, at stint.Instant, piece Piece) (back int64) {
	switch c := s.changed; {
	case m.window != nil:
		w := s.window()
		back = m.window.giveBack(&w, at, piece)
		s.Numbers = w.numbers()
	case m.counter != nil && c != nil:
		c.counter.giveBack(at, piece)
	case m.counter != nil:
		counts := s.counter()
		back = m.counter.giveBack(&counts, at, piece)
		s.Numbers = counts.numbers()
	case m.log != nil && c != nil:
		back = c.writer.giveBack(&c.log, at, piece)
	case m.log != nil:
		back = m.log.giveBack(&s.Log, at, piece)
	}
	return back
}

// Advance brings a state that was written to now, so that its time does not run back.
func (m *Machine) Advance(s *State, now stint.Instant) { m.giveBack(s, now, Piece{}) }

// Lost is the time at or before which what a hold took of a state that writer wrote does not come back: of a counter
// whose windows have another length now, all of it, and of a log what has left it. 0: none.
func (m *Machine) Lost(s *State, now stint.Instant, writer *Machine) stint.Instant {
	switch {
	case m.counter != nil && m.counter.window != writer.counter.window:
		return math.MaxInt64
	case m.log != nil:
		return max(writer.log.left(&s.Log, now), m.log.left(&s.Log, now))
	}
	return 0
}

// Worthless returns when a state of which nothing is held, and which the limit wrote, equals an untouched one, and how
// long it was to live when it was written, in microseconds. shared says that there are other versions of the limit:
// then a token bucket lives until it would be full if it had been empty.
func (m *Machine) Worthless(s *State, shared bool) (at stint.Instant, life int64) {
	switch m.kind {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		b := s.bucket()
		at = b.Due + 1
		if life = s.Second; m.token != nil && shared {
			at = max(at, m.token.rested(&b))
			life = int64(at - b.Last)
		}
	case stint.AlgorithmFixedWindow:
		at, life = s.window().End, s.Second
	case stint.AlgorithmSlidingWindowCounter:
		c := s.counter()
		at, life = m.counter.worthless(&c)
	case stint.AlgorithmSlidingWindowLog:
		at, life = m.log.worthless(&s.Log)
	case stint.AlgorithmConcurrency:
		at = math.MinInt64 / 2
	}
	return at, life
}
