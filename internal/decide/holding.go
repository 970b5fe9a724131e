package decide

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// An End is how a hold ended. The zero value is that it has not. Redis has it as a number.
type End uint8

// The ends of a hold.
const (
	Live End = iota
	Committed
	Cancelled
	Expired
)

var endNames = [...]string{"live", "committed", "cancelled", "expired"}

// String is the end in lower case, as [stint.ResolvedError] has it.
func (e End) String() string {
	if int(e) >= len(endNames) {
		return "unknown"
	}
	return endNames[e]
}

// SurelyRemembered is Remembered of a hold, but the least, a minute, where its TTL is not known: a Commit's that names
// none.
func SurelyRemembered(h *stint.Hold) time.Duration { return max(2*h.TTL, time.Minute) }

// A Hold is a reservation, and after its end what is remembered of it. It changes under the lock of its ID and those of
// its states. Who has only a state's lock reads ID, Expires and keep, and notes an expiry.
type Hold struct {
	ID string
	// Expires is when it does, or did.
	Expires stint.Instant
	// keep charges what is held when it expires.
	keep bool
	// noticed says that a state was written without it, since it had expired: then it has expired,
	// even if the clock steps back.
	noticed atomic.Bool

	parts []Held   // in the order of the claims and their limits; nil once it was committed or cancelled
	ways  []uint16 // of the limits
	// remembered is how long the end is remembered, in microseconds.
	remembered int64
	end        End
	endedAt    stint.Instant
	late       bool
	reset      bool
	dropped    bool     // by a Drop: it is not to be renewed
	via        uint8    // of an end: the way that it was on
	actual     []int64  // of a commit: what each limit was said to have cost
	cost       [1]int64 // of actual, while there is one
	applied    int64
}

// Held is what one hold holds of one state. It changes while the state is locked.
type Held struct {
	hold    *Hold
	machine *algorithm.Machine // by which it was last taken
	// in is nil if nothing is held, or what was held has been reset or evicted.
	in *Holding
	n  int64 // permits held
	// kept is how many permits an expiry has charged.
	kept   int64
	pieces []algorithm.Piece
	piece  [1]algorithm.Piece // of pieces, while there is one
	// on says that the limit is of a way that the hold is on; dropped, that a Drop let it expire.
	on, dropped bool
}

// HeldBytes is about what a hold takes for one state, with its pieces and its place in a holding.
const HeldBytes = 128

// IsLive reports whether it has not ended, so far as its holder has said.
func (h *Hold) IsLive() bool { return h.end == Live }

// Ended is how the hold has ended at now, and when.
func (h *Hold) Ended(now stint.Instant) (End, stint.Instant) {
	if h.IsLive() && (now >= h.Expires || h.noticed.Load()) {
		return Expired, h.Expires
	}
	return h.end, h.endedAt
}

// Forgotten is from when on nothing is known of the hold.
func (h *Hold) Forgotten() stint.Instant {
	return max(h.endedAt, h.Expires) + stint.Instant(h.remembered)
}

// gone reports whether what it held is not in a holding any more, that of the state.
func (p *Held) gone(of *Holding) bool { return p.n > 0 && (p.in == nil || p.in != of) }

// keeps is how many permits of it an expiry charges.
func (p *Held) keeps() int64 {
	switch m := p.machine; {
	case m.HasPlaces():
		return 0
	case p.hold.keep || !isAdjustable(m):
		return p.n
	}
	return 0
}

// isAdjustable reports whether a commit may charge or give back permits of a limit.
func isAdjustable(m *algorithm.Machine) bool { return m.Settles() && m.Returns() }

// keptAtEnd is what is charged of it, of a state with such a holding, once its hold has expired, whether that was
// noticed or not: of one that was reset before nothing.
func (p *Held) keptAtEnd(of *Holding) int64 {
	switch {
	case p.gone(of):
		return 0
	case p.hold.keep && !p.machine.HasPlaces():
		return p.kept + p.n
	}
	return p.kept
}

// expire notes an expiry, whose effect on the state has been computed.
func (p *Held) expire() {
	p.hold.noticed.Store(true)
	p.lapse()
}

// lapse leaves of it what an expiry charges.
func (p *Held) lapse() {
	if p.hold.keep && !p.machine.HasPlaces() {
		p.kept += p.n
	}
	p.in, p.n, p.pieces = nil, 0, nil
}

// Holding is what is held of one state.
//
//	held = sum over parts of n
type Holding struct {
	parts []*Held  // in the order in which they expire
	held  int64    // permits of all of them
	part  [1]*Held // of parts, while there is one
}

// Permits are those of all holds.
func (h *Holding) Permits() int64 { return h.held }

// LastExpiry is when the last of it expires.
func (h *Holding) LastExpiry() stint.Instant { return h.parts[len(h.parts)-1].hold.Expires }

// add puts a part where it expires.
func (h *Holding) add(part *Held) {
	at, _ := slices.BinarySearchFunc(h.parts, part.hold.Expires+1, compareExpiry)
	if h.parts == nil {
		h.parts = h.part[:0]
	}
	h.parts = slices.Insert(h.parts, at, part)
	h.held += part.n
	part.in = h
}

// remove takes a part out. The hold's expiry is still the one by which it was added.
func (h *Holding) remove(part *Held) {
	at, _ := slices.BinarySearchFunc(h.parts, part.hold.Expires, compareExpiry)
	h.removeAt(at + slices.Index(h.parts[at:], part))
}

// removeAt takes out the part at a place.
func (h *Holding) removeAt(at int) {
	part := h.parts[at]
	h.parts = slices.Delete(h.parts, at, at+1)
	h.held -= part.n
	part.in = nil
}

// compareExpiry orders parts by when they expire.
func compareExpiry(part *Held, at stint.Instant) int {
	switch {
	case part.hold.Expires < at:
		return -1
	case part.hold.Expires > at:
		return 1
	}
	return 0
}

// Release lets go of what was held of a state that is no more since an instant. What had expired by then has; the
// rest is gone.
func (h *Holding) Release(at stint.Instant) {
	for _, part := range h.parts {
		switch {
		case part.in != h: // it has been reserved anew since a reset
		case part.hold.Expires <= at:
			part.expire()
		default:
			part.in = nil
		}
	}
}

// ExpireDue lets expire what is due of a state, as the limit wrote it that did. Nothing is changed but the state at
// work; Settle does the rest, if the operation changes anything.
func (s *State) ExpireDue(m, writer *algorithm.Machine, now stint.Instant) {
	h := s.Holding
	for s.Due < len(h.parts) && h.parts[s.Due].hold.Expires <= now {
		part := h.parts[s.Due]
		writer.EndHold(&s.State, part.hold.Expires, part.pieces, part.n, part.keeps(), 0)
		s.Due++
	}
	if m != writer {
		s.Lost = m.Lost(&s.State, now, writer)
	}
}

// Settle makes come true what was found out of what is held: what was due has expired, and what was reset is not held
// any more. It reports whether anything is left.
func (s *State) Settle() (left bool) {
	h := s.Holding
	for _, part := range h.parts[:s.Due] {
		h.held -= part.n
		part.expire()
	}
	h.parts = slices.Delete(h.parts, 0, s.Due)
	s.Due = 0
	s.forgetPieces()
	if len(h.parts) == 0 {
		s.Holding = nil
	}
	return s.Holding != nil
}

// forgetPieces notes that what was taken over from a window of another length can't be told from others' any more: a
// counter's counts, and what a log no longer has. What is held of these does not come back.
func (s *State) forgetPieces() {
	if s.Lost == 0 || s.Holding == nil {
		return
	}
	for _, part := range s.Holding.parts {
		part.pieces = slices.DeleteFunc(part.pieces, func(piece algorithm.Piece) bool { return piece.At <= s.Lost })
	}
	s.Lost = 0
}

// List appends the live holds of limit i of n to a list, the next to expire and so many at most.
func (s *State) List(list []stint.Hold, i, n, most int) []stint.Hold {
	if !s.isHeld() {
		return list
	}
	live := s.Holding.parts[s.Due:]
	for _, part := range live[:min(len(live), most)] {
		list = AppendHold(list, part.hold.ID, i, n, part.n, part.hold.Expires)
	}
	return list
}

// AppendHold notes in a list what a hold has of limit i of n.
func AppendHold(list []stint.Hold, id string, i, n int, permits int64, expires stint.Instant) []stint.Hold {
	at := slices.IndexFunc(list, func(h stint.Hold) bool { return h.ID == id })
	if at < 0 {
		at = len(list)
		list = append(list, stint.Hold{ID: id, Permits: make([]int64, n), ExpiresAt: expires})
	}
	list[at].Permits[i] = permits
	return list
}

// writes notes that the operation writes the state, which is the limit's own then, whoever wrote it before.
func (s *State) writes() {
	s.Changed = true
	s.Written()
}
