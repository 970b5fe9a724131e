package memstore_test

import (
	"math/big"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
)

// holdModel is a naive model of a client with holds: what was taken is a list, from which everything is worked out
// anew, and a bucket's level is a fraction. It shares no code with the store.
type holdModel struct {
	limits []stint.Limit
	states []modelState
	holds  map[string]*modelHold
}

// modelState is one limit's.
type modelState struct {
	charges []modelCharge
	backlog *big.Rat // of a bucket: permits outstanding at the time at
	at      int64
	held    int64
}

// modelCharge is what was taken at once, or what came back of it.
type modelCharge struct{ at, n int64 }

type modelHold struct {
	n, kept  []int64         // by limit
	pieces   [][]modelCharge // the same
	gone     []bool          // the same: what was held has been reset
	expires  int64
	remember int64
	keep     bool
	end      decide.End
	endedAt  int64
	actual   int64
	late     bool
	reset    bool
	applied  int64
}

func newHoldModel(limits []stint.Limit) *holdModel {
	m := &holdModel{limits: limits, states: make([]modelState, len(limits)), holds: map[string]*modelHold{}}
	for i := range m.states {
		m.states[i].backlog = new(big.Rat)
	}
	return m
}

func (m *holdModel) clone() *holdModel {
	c := &holdModel{limits: m.limits, states: slices.Clone(m.states), holds: map[string]*modelHold{}}
	for i := range c.states {
		c.states[i].charges = slices.Clone(c.states[i].charges)
		c.states[i].backlog = new(big.Rat).Set(c.states[i].backlog)
	}
	for id, h := range m.holds {
		copied := *h
		copied.n, copied.kept, copied.pieces = slices.Clone(h.n), slices.Clone(h.kept), slices.Clone(h.pieces)
		copied.gone = slices.Clone(h.gone)
		c.holds[id] = &copied
	}
	return c
}

// advance lets every hold expire that is due, in the order of their instants.
func (m *holdModel) advance(now int64) {
	for {
		id := ""
		for other, h := range m.holds {
			if h.end == decide.Live && h.expires <= now && (id == "" || h.expires < m.holds[id].expires) {
				id = other
			}
		}
		if id == "" {
			break
		}
		h := m.holds[id]
		for i, limit := range m.limits {
			kept := int64(0)
			if h.keep || limit.Cost > 0 || limit.Algorithm == stint.AlgorithmLeakyBucket {
				kept = h.n[i]
			}
			if h.gone[i] {
				continue // it holds nothing, and is taken anew
			}
			m.giveBack(i, h.expires, h, kept)
			if h.keep && limit.Algorithm != stint.AlgorithmConcurrency {
				h.kept[i] += h.n[i]
			}
			h.n[i] = 0
		}
		h.end, h.endedAt = decide.Expired, h.expires
	}
	for i := range m.states {
		m.drain(i, now)
	}
}

// drain brings a bucket to now: what is held stays.
func (m *holdModel) drain(i int, now int64) {
	s, l := &m.states[i], m.limits[i]
	if !l.IsBucket() || now <= s.at {
		return
	}
	gone := big.NewRat((now-s.at)*l.Rate.Permits, l.Rate.Period.Microseconds())
	s.backlog.Sub(s.backlog, gone)
	if least := m.heldLevel(i); s.backlog.Cmp(least) < 0 {
		s.backlog.Set(least)
	}
	s.at = now
}

func (m *holdModel) heldLevel(i int) *big.Rat {
	if m.limits[i].Algorithm != stint.AlgorithmTokenBucket {
		return new(big.Rat)
	}
	return new(big.Rat).SetInt64(min(m.states[i].held, m.limits[i].Capacity+m.limits[i].Debt()))
}

// used is what counts of a limit now, as a fraction.
func (m *holdModel) used(i int, now int64) *big.Rat {
	s, l := &m.states[i], m.limits[i]
	window := l.Window.Microseconds()
	used := new(big.Rat)
	switch l.Algorithm {
	case stint.AlgorithmConcurrency:
		return used.SetInt64(s.held)
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		return used.Set(s.backlog)
	default: // a window's is the sum of what counts
	}
	for _, c := range s.charges {
		switch l.Algorithm {
		case stint.AlgorithmFixedWindow:
			if c.at/window == now/window {
				used.Add(used, new(big.Rat).SetInt64(c.n))
			}
		case stint.AlgorithmSlidingWindowLog:
			if c.at > now-window {
				used.Add(used, new(big.Rat).SetInt64(c.n))
			}
		default:
			switch now/window - c.at/window {
			case 0:
				used.Add(used, new(big.Rat).SetInt64(c.n))
			case 1:
				used.Add(used, big.NewRat(c.n*(window-now%window), window))
			}
		}
	}
	return used
}

// left is how many whole permits are left.
func (m *holdModel) left(i int, now int64) int64 {
	free := new(big.Rat).Sub(new(big.Rat).SetInt64(m.limits[i].Capacity), m.used(i, now))
	floor := new(big.Int).Div(free.Num(), free.Denom()).Int64()
	return max(0, floor)
}

// admits reports whether a limit has n more.
func (m *holdModel) admits(i int, now, n int64) bool {
	after := new(big.Rat).Add(m.used(i, now), new(big.Rat).SetInt64(n))
	return after.Cmp(new(big.Rat).SetInt64(m.limits[i].Capacity)) <= 0
}

func (m *holdModel) charge(i int, now, n int64, h *modelHold) {
	s := &m.states[i]
	if n == 0 {
		return
	}
	s.backlog.Add(s.backlog, new(big.Rat).SetInt64(n))
	s.charges = append(s.charges, modelCharge{now, n})
	if h != nil {
		s.held += n
		h.pieces[i] = append(slices.Clip(h.pieces[i]), modelCharge{now, n})
	}
}

// giveBack ends what a hold has of a limit, of which so much stays charged, and returns what came back.
func (m *holdModel) giveBack(i int, now int64, h *modelHold, kept int64) (back int64) {
	s, l := &m.states[i], m.limits[i]
	m.drain(i, now)
	s.held -= h.n[i]
	left := h.n[i] - kept
	if l.Algorithm == stint.AlgorithmTokenBucket {
		back = left
		s.backlog.Sub(s.backlog, new(big.Rat).SetInt64(left))
		if s.backlog.Sign() < 0 {
			s.backlog.SetInt64(0)
		}
	}
	if !l.IsBucket() && l.Algorithm != stint.AlgorithmConcurrency {
		window := l.Window.Microseconds()
		for _, piece := range slices.Backward(h.pieces[i]) {
			take := min(left, piece.n)
			left -= take
			switch {
			case l.Algorithm == stint.AlgorithmFixedWindow && piece.at/window == now/window,
				l.Algorithm == stint.AlgorithmSlidingWindowCounter && now/window-piece.at/window <= 1:
				s.charges = append(s.charges, modelCharge{piece.at, -take})
				back += take
			case l.Algorithm == stint.AlgorithmSlidingWindowLog && piece.at > now-window:
				for at := range s.charges { // the oldest that are active go
					if c := &s.charges[at]; c.at > now-window {
						gone := min(take, c.n)
						c.n -= gone
						take -= gone
						back += gone
					}
				}
			}
		}
	}
	h.pieces[i] = nil
	return back
}

// take is a Take, or a Peek.
func (m *holdModel) take(now, n int64, really bool) bool {
	m.advance(now)
	for i, l := range m.limits {
		if !m.admits(i, now, l.Takes(n)) {
			return false
		}
	}
	for i, l := range m.limits {
		if really {
			m.charge(i, now, l.Takes(n), nil)
		}
	}
	return true
}

// reserve is a Reserve.
func (m *holdModel) reserve(now int64, id string, n, ttl int64, keep bool) (allowed bool, told stint.HoldOp, resolved bool) {
	m.advance(now)
	h := m.known(id, now)
	lacks := make([]int64, len(m.limits))
	for i, l := range m.limits {
		lacks[i] = l.Takes(n)
		switch {
		case h != nil && h.gone[i]:
			told.Reset = h.end == decide.Live
		case h != nil:
			lacks[i] = max(0, lacks[i]-h.n[i]-h.kept[i])
		}
	}
	if h != nil && (h.end == decide.Committed || h.end == decide.Cancelled) {
		return false, told, true
	}
	for i := range m.limits {
		if lacks[i] > 0 && !m.admits(i, now, lacks[i]) {
			told.Lost = told.Reset || h != nil && h.end == decide.Expired
			told.Replayed = h != nil && h.end == decide.Live && !told.Reset
			return false, told, false
		}
	}
	live := h != nil && h.end == decide.Live
	told.Replayed = live && !told.Reset
	if h == nil {
		h = &modelHold{n: make([]int64, len(m.limits)), kept: make([]int64, len(m.limits)), pieces: make([][]modelCharge, len(m.limits)), gone: make([]bool, len(m.limits))}
		m.holds[id] = h
	}
	expires := now + ttl
	if live {
		expires = max(expires, h.expires)
	}
	h.end, h.keep, h.expires, h.remember = decide.Live, keep, expires, max(2*ttl, 60_000_000)
	for i := range m.limits {
		if h.gone[i] {
			h.n[i], h.kept[i], h.gone[i] = 0, 0, false
		}
		m.charge(i, now, lacks[i], h)
		h.n[i] += lacks[i]
	}
	told.ExpiresAt = stint.Instant(expires)
	return true, told, false
}

// known is a hold that is not forgotten.
func (m *holdModel) known(id string, now int64) *modelHold {
	h := m.holds[id]
	if h != nil && h.end != decide.Live && now > max(h.endedAt, h.expires)+h.remember {
		delete(m.holds, id)
		return nil
	}
	return h
}

// finish is a Commit by the id alone, or a Cancel.
func (m *holdModel) finish(now int64, id string, actual int64, cancel bool) (told stint.HoldOp, err error) {
	m.advance(now)
	h := m.known(id, now)
	if h == nil {
		return told, stint.ErrUnknownReservation
	}
	switch h.end {
	case decide.Committed:
		if told.Replayed = !cancel && h.actual == actual; !told.Replayed {
			return told, stint.ErrResolved
		}
		told.Late, told.Reset = h.late, h.reset
		return told, nil // with what was applied then
	case decide.Cancelled:
		if told.Replayed = cancel; !cancel {
			return told, stint.ErrResolved
		}
		told.Reset = h.reset
		return told, nil
	case decide.Expired:
		if cancel {
			return told, stint.ErrResolved
		}
		told.Late, h.late = true, true
	case decide.Live:
	}
	h.applied = 0
	some := false
	for i, l := range m.limits {
		held := h.n[i] + h.kept[i]
		beyond := max(0, actual-h.kept[i])
		kept := min(beyond, h.n[i])
		fixed := l.Cost > 0 || l.Algorithm == stint.AlgorithmLeakyBucket || l.Algorithm == stint.AlgorithmConcurrency
		switch {
		case cancel && l.Algorithm != stint.AlgorithmLeakyBucket:
			kept = 0
		case fixed:
			kept = h.n[i]
		}
		more := beyond - kept
		applied := int64(0)
		switch {
		case h.gone[i]:
			told.Reset, more = true, 0
		case h.end == decide.Live:
			applied = -m.giveBack(i, now, h, kept)
		}
		gone := h.gone[i]
		h.n[i], h.gone[i] = 0, false
		if !cancel && !fixed && more > 0 {
			// A charge goes as far as the debt.
			room := new(big.Rat).SetInt64(l.Capacity + l.Debt())
			room.Sub(room, m.used(i, now))
			most := new(big.Int).Div(room.Num(), room.Denom()).Int64()
			charged := max(0, min(more, most))
			m.charge(i, now, charged, nil)
			applied += charged
		}
		wanted := actual
		if cancel {
			wanted = 0
		}
		if !fixed && (h.end == decide.Expired && !gone || wanted != held) && (!some || max(applied, -applied) < max(h.applied, -h.applied)) {
			h.applied, some = applied, true
		}
	}
	h.end, h.endedAt, h.actual, h.reset = decide.Committed, now, actual, told.Reset
	if cancel {
		h.end = decide.Cancelled
	}
	return told, nil
}

// reset forgets all that was taken; what was held is not held any more.
func (m *holdModel) reset(now int64) {
	m.advance(now)
	m.states = newHoldModel(m.limits).states
	for i := range m.states {
		m.states[i].at = now
	}
	for _, h := range m.holds {
		for i := range h.n {
			h.gone[i] = h.gone[i] || h.n[i] > 0
			h.pieces[i] = nil
		}
	}
}
