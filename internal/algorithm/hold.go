package algorithm

import "github.com/stint-go/stint"

// A Piece is what a hold took of a limit at one time, so that it comes back to where it counts: of
// a fixed window the window, from At until Until; of a sliding window counter the window's start;
// of a log the time of the entry. A bucket's has no time. Without the time, a hold that ends in a
// later window would give back permits of others.
type Piece struct {
	At, Until stint.Instant
	N         int64
}

// maxPieces bounds the pieces of one hold, which grows by one with each time that the hold does. A
// hold grows when its holder renews it with more.
const maxPieces = 16

// AddPiece adds a piece to a hold's, which are in order of time. Once there are too many, the
// oldest two become one, at the time of the older: of a log less may come back then, and never
// more.
func AddPiece(pieces []Piece, p Piece) []Piece {
	if last := len(pieces) - 1; last >= 0 && pieces[last].At == p.At && pieces[last].Until == p.Until {
		pieces[last].N += p.N
		return pieces
	}
	if len(pieces) == maxPieces {
		pieces[0].N += pieces[1].N
		pieces = append(pieces[:1], pieces[2:]...)
	}
	return append(pieces, p)
}

// endHold ends a hold of n permits of a token bucket, of which kept stay charged, and returns how many came back. In
// times of the schedule, backlog' = max(0, backlog - time(back)): what has refilled meanwhile is
// not refilled twice.
func (s *schedule) endHold(state *bucketState, now stint.Instant, n, kept int64) int64 {
	t, backlog := s.backlog(state, now)
	back, shrunk := n-kept, state.Held > s.capacity+s.debt
	state.Held -= n
	if shrunk { // a bucket that has become smaller has no room for all that is held: what it has not does not come back
		back = min(back, s.permitsIn(s.sub(backlog, s.heldTime(state))))
	}
	if time := s.timeOf(back); time.less(backlog) {
		backlog = s.sub(backlog, time)
	} else {
		backlog = span{}
	}
	state.due(t, backlog)
	return back
}

// piece is what a hold has just taken.
func (w *fixedWindow) piece(state *windowState, n int64) Piece {
	return Piece{At: state.Start, Until: state.End, N: n}
}

// giveBack brings the state up to now and gives back the permits of a piece, if its window still counts. It returns how
// many.
func (w *fixedWindow) giveBack(state *windowState, now stint.Instant, p Piece) int64 {
	if state.Count > 0 || max(now, state.Start) >= state.End { // else its start stays, whoever wrote it
		*state = w.at(state, now)
	}
	if state.Start != p.At || state.End != p.Until {
		return 0
	}
	n := min(p.N, state.Count)
	state.Count -= n
	return n
}

// piece is what a hold has just taken.
func (c *slidingWindowCounter) piece(state *counterState, n int64) Piece {
	return Piece{At: state.Start, N: n}
}

// giveBack brings the state up to now and gives back the permits of a piece, if its window still counts. It returns how
// many.
func (c *slidingWindowCounter) giveBack(state *counterState, now stint.Instant, p Piece) int64 {
	*state, _ = c.at(state, now)
	counter := &state.Current
	switch p.At {
	case state.Start:
	case state.Start - stint.Instant(c.window):
		counter = &state.Previous
	default:
		return 0
	}
	n := min(p.N, *counter)
	*counter -= n
	return n
}

// piece is what a hold has just taken.
func (w *slidingWindowLog) piece(log *Log, n int64) Piece {
	return Piece{At: log.records[len(log.records)-1].at, N: n}
}

// giveBack brings the log up to now and gives back the permits of a piece, as the oldest that are
// active, if it is active itself. It returns how many. It leaves the records as they are, and the
// time of the newest request.
func (w *slidingWindowLog) giveBack(log *Log, now stint.Instant, p Piece) int64 {
	t := max(now, log.newest())
	log.gone = log.until(t - stint.Instant(w.window))
	if p.At <= t-stint.Instant(w.window) {
		return 0
	}
	n := min(p.N, log.total()-log.gone)
	log.gone, log.floor = log.gone+n, 0
	return n
}

// left is the time at or before which entries have left the log under this limit, which wrote it.
func (w *slidingWindowLog) left(log *Log, now stint.Instant) stint.Instant {
	return max(now, log.newest()) - stint.Instant(w.window)
}

// concurrency bounds how many permits are held at once. Its state is the holds themselves, never a counter beside
// them. It is immutable and safe for concurrent use.
type concurrency struct{ capacity int64 }

// newConcurrency prepares a valid limit.
func newConcurrency(limit stint.Limit) *concurrency { return &concurrency{limit.Capacity} }

// decide says whether n permits more may be held beside those that are, so that keep more are left; none always may.
// Denied, RetryAfter is stint.Never: it takes the end of a hold.
func (c *concurrency) decide(held, n, keep int64, out *stint.Outcome) {
	*out = stint.Outcome{
		Allowed: n == 0 || n <= c.capacity-keep-held, Limit: c.capacity, Remaining: max(0, c.capacity-keep-held),
	}
	if !out.Allowed {
		out.RetryAfter = stint.Never
	}
}
