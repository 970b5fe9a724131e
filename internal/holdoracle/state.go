package holdoracle

import (
	"math/big"
	"slices"

	"github.com/stint-go/stint"
)

// A part is what one reserve or one growth took: n permits in the window from start to end, or in a log at start.
type part struct {
	start, end, n int64
	gone          bool // it counts no more: its window or span is over, or another length took the counts over
}

// A held is what one id holds of one limit.
type held struct {
	id      string
	permits int64
	paid    int64 // of these, what an expiry has charged for good ("keep"), before the id was reserved again
	expires int64
	keep    bool   // on_expiry
	number  bool   // of a fixed cost
	parts   []part // the oldest first
}

// An entry is n permits of a log that were taken at an instant.
type entry struct{ at, n int64 }

// A state is that of one limit and one key, as the limit that wrote it last left it.
type state struct {
	limit stint.Limit
	at    int64 // buckets: the last change

	due *big.Rat // buckets: when the backlog is over, in microseconds; a leaky bucket's next turn

	start, end     int64 // fixed window: of the window that counts; counter: of the current one
	used, previous int64 // fixed window and counter: counts

	empty int64 // fixed window and counter: the start of the newest window, if it is kept of a state without counts

	entries []entry // log: the oldest first
	last    int64   // log: the newest admission, for min_interval

	holds []*held

	over []string // ids that have expired since the state was written
}

func untouched(l stint.Limit) *state {
	return &state{limit: l, at: -1 << 62, due: new(big.Rat), last: -1 << 62}
}

// newest is the newest time that the state records: "a key's time never runs back"; "bucket: its last change; counters:
// the start of the newest window; log: the newest entry".
func (s *state) newest() int64 {
	at := int64(-1 << 62)
	switch s.limit.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		return s.at
	case stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowCounter:
		if s.end > 0 {
			return max(s.start, s.empty)
		}
		return s.empty
	case stint.AlgorithmSlidingWindowLog:
		if n := len(s.entries); n > 0 {
			at = s.entries[n-1].at
		}
		return max(at, s.last)
	default:
	}
	return at
}

func (s *state) clone() *state {
	c := *s
	c.due = new(big.Rat).Set(s.due)
	c.entries = slices.Clone(s.entries)
	c.holds = make([]*held, len(s.holds))
	for i, h := range s.holds {
		g := *h
		g.parts = slices.Clone(h.parts)
		c.holds[i] = &g
	}
	return &c
}

func (s *state) hold(id string) *held {
	for _, h := range s.holds {
		if h.id == id {
			return h
		}
	}
	return nil
}

func (s *state) drop(id string) {
	s.holds = slices.DeleteFunc(s.holds, func(h *held) bool { return h.id == id })
}

// live is how many holds there are, held how many permits they hold together.
func (s *state) live() (live int, permits int64) {
	for _, h := range s.holds {
		if h.permits > h.paid { // else it holds nothing here beyond what an expiry has charged
			live, permits = live+1, permits+h.permits-h.paid
		}
	}
	return live, permits
}

// next is the hold that expires first.
func (s *state) next() (first *held) {
	for _, h := range s.holds {
		if first == nil || h.expires < first.expires {
			first = h
		}
	}
	return first
}

// Exact arithmetic.

func rat(n int64) *big.Rat           { return new(big.Rat).SetInt64(n) }
func add(a, b *big.Rat) *big.Rat     { return new(big.Rat).Add(a, b) }
func sub(a, b *big.Rat) *big.Rat     { return new(big.Rat).Sub(a, b) }
func mul(a, b *big.Rat) *big.Rat     { return new(big.Rat).Mul(a, b) }
func quo(a, b *big.Rat) *big.Rat     { return new(big.Rat).Quo(a, b) }
func greater(a, b *big.Rat) *big.Rat { return pick(a.Cmp(b) >= 0, a, b) }
func pick(c bool, a, b *big.Rat) *big.Rat {
	if c {
		return a
	}
	return b
}

func floor(a *big.Rat) int64 {
	return new(big.Int).Div(a.Num(), a.Denom()).Int64() // Euclidean: the denominator is positive, so it is the floor
}

func ceil(a *big.Rat) int64 { return -floor(new(big.Rat).Neg(a)) }

func micros(l stint.Limit) (window, interval int64) {
	return l.Window.Microseconds(), l.MinInterval.Microseconds()
}

// each is P / R: the time of one permit.
func each(l stint.Limit) *big.Rat { return big.NewRat(l.Rate.Period.Microseconds(), l.Rate.Permits) }

// backlog of a bucket under the limit that wrote it: "backlog(now) = max(min(held, C + max_debt) x P / R, due - now)".
func (s *state) backlog(now int64) *big.Rat {
	b := greater(sub(s.due, rat(now)), new(big.Rat))
	if s.limit.Algorithm == stint.AlgorithmTokenBucket {
		_, permits := s.live()
		b = greater(b, mul(rat(min(permits, s.limit.Capacity+s.limit.Debt())), each(s.limit)))
	}
	return b
}

// bring brings the state to an instant by the limit that wrote it; no hold expires until then.
func (s *state) bring(now int64) {
	window, _ := micros(s.limit)
	switch s.limit.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		if b := s.backlog(now); b.Sign() > 0 {
			s.due = add(rat(now), b)
		}
	case stint.AlgorithmFixedWindow:
		if now >= s.end {
			s.start, s.end, s.used = 0, 0, 0
		}
	case stint.AlgorithmSlidingWindowCounter:
		if s.end > 0 && now >= s.end {
			if now < s.end+window {
				s.start, s.end, s.previous, s.used = s.end, s.end+window, s.used, 0
			} else {
				s.start, s.end, s.previous, s.used = 0, 0, 0, 0
			}
		}
		s.lose(func(p *part) bool { return s.end == 0 || p.start != s.start && p.start != s.start-window })
	case stint.AlgorithmSlidingWindowLog:
		// "An entry leaves at exactly its time + W."
		s.entries = slices.DeleteFunc(s.entries, func(e entry) bool { return e.at+window <= now })
		s.lose(func(p *part) bool { return p.start+window <= now })
	default:
	}
}

// lose marks the parts that count no more.
func (s *state) lose(gone func(*part) bool) {
	for _, h := range s.holds {
		for i := range h.parts {
			if gone(&h.parts[i]) {
				h.parts[i].gone = true
			}
		}
	}
}

// advance brings the state to an instant: "an expiry takes effect at its own instant, in order of instants".
func (s *state) advance(now int64) {
	s.expiring(now)
	s.bring(now)
}

// expire ends a hold at its instant: "release (default: as Commit of 0, numbers stay) or keep (as Commit of what is held)".
func (s *state) expire(h *held) {
	stays := h.permits
	if !h.keep && !h.number {
		stays = 0
	}
	s.over = append(s.over, h.id)
	s.end1(h, stays, h.expires)
}

// end1 ends a hold of which some permits stay, at most what is held, and says how many came back.
func (s *state) end1(h *held, stays, now int64) (back int64) {
	if s.limit.Algorithm == stint.AlgorithmTokenBucket {
		s.bring(max(now, s.newest())) // "brought up to now before each change"
	}
	s.drop(h.id)
	back = min(h.permits-stays, h.permits-h.paid) // what an expiry has charged is charged
	switch s.limit.Algorithm {
	case stint.AlgorithmConcurrency:
		return h.permits
	case stint.AlgorithmLeakyBucket: // "everything goes back ... (but a leaky bucket's turns)"
		return 0
	case stint.AlgorithmTokenBucket:
		if h.permits > h.paid {
			s.at = now
		}
		return s.refund(back, now)
	default:
	}
	return s.giveBack(h, back)
}

// giveBack gives back permits of a hold in windows and logs: "the newest part first, to the window with that start, if it
// still counts"; "as many of the oldest active entries, while the id's own are active".
func (s *state) giveBack(h *held, permits int64) (back int64) {
	window, _ := micros(s.limit)
	for i := len(h.parts) - 1; i >= 0 && permits > 0; i-- {
		p := &h.parts[i]
		n := min(p.n, permits)
		permits -= n
		p.n -= n
		switch {
		case p.gone: // nothing comes back of it, changed lengths included
		case s.limit.Algorithm == stint.AlgorithmSlidingWindowLog:
			back += s.shed(n)
		case p.start == s.start && (p.end == s.end || s.limit.Algorithm != stint.AlgorithmFixedWindow):
			n = min(n, s.used)
			s.used -= n
			back += n
		case s.limit.Algorithm == stint.AlgorithmSlidingWindowCounter && p.start == s.start-window:
			n = min(n, s.previous)
			s.previous -= n
			back += n
		}
	}
	return back
}

// shed drops the oldest entries of a log.
func (s *state) shed(permits int64) (back int64) {
	for permits > 0 && len(s.entries) > 0 {
		n := min(permits, s.entries[0].n)
		s.entries[0].n -= n
		permits, back = permits-n, back+n
		if s.entries[0].n == 0 {
			s.entries = s.entries[1:]
		}
	}
	return back
}

// takeOver lets another limit read a state that has been brought to now (item 5 of the exactness checks).
func (s *state) takeOver(l stint.Limit, now int64) {
	old := s.limit
	s.limit = l
	switch l.Algorithm {
	case stint.AlgorithmTokenBucket:
		if b := s.backlogUnder(old, now); b.Sign() > 0 {
			if old.Capacity != l.Capacity || each(old).Cmp(each(l)) != 0 {
				// "the whole permits held, at most the new C"
				level := min(floor(sub(rat(old.Capacity), quo(b, each(old)))), l.Capacity)
				b = drained(mul(rat(l.Capacity-level), each(l)))
			}
			s.due = add(rat(now), b)
		}
	case stint.AlgorithmLeakyBucket:
		if old.Capacity != l.Capacity || each(old).Cmp(each(l)) != 0 { // "the permits queued, rounded up"
			if queued := ceil(quo(s.backlogUnder(old, now), each(old))); queued > 0 {
				s.due = add(rat(now), drained(mul(rat(queued), each(l))))
			}
		}
	case stint.AlgorithmSlidingWindowCounter:
		if old.Window == l.Window {
			return
		}
		// "what the old one estimates at now, rounded up, is counted in the new one's current window"
		window, _ := micros(l)
		count := s.estimateBy(old, now)
		s.lose(func(*part) bool { return true })
		s.start, s.end, s.previous, s.used = 0, 0, 0, 0
		if n := ceil(count); n > 0 {
			s.start = now - mod(now, window)
			s.end, s.used = s.start+window, n
		}
	case stint.AlgorithmSlidingWindowLog: // "Its entries."
		if _, interval := micros(old); len(s.entries) == 0 && now >= s.last+interval {
			s.last = -1 << 62 // "worthless there = untouched"
		}
		s.bring(now)
	default:
	}
}

// drained bounds what another limit's debt becomes: no bucket takes longer to recover than that.
func drained(backlog *big.Rat) *big.Rat {
	most := rat(stint.MaxDrain.Microseconds())
	return pick(backlog.Cmp(most) > 0, most, backlog)
}

func (s *state) backlogUnder(l stint.Limit, now int64) *big.Rat {
	mine := s.limit
	s.limit = l
	defer func() { s.limit = mine }()
	return s.backlog(now)
}

func mod(a, b int64) int64 { return ((a % b) + b) % b }

func (s *state) estimateBy(l stint.Limit, now int64) *big.Rat {
	if s.end == 0 {
		return new(big.Rat)
	}
	window, _ := micros(l)
	// estimate x W = previous x (W - e) + current x W
	e := now - s.start
	return add(mul(rat(s.previous), big.NewRat(window-e, window)), rat(s.used))
}

// load is a copy of the state as a limit reads it at an instant.
func (s *state) load(l stint.Limit, now int64) *state {
	c := s.clone()
	now = max(now, c.newest())
	c.advance(now)
	c.takeOver(l, now)
	return c
}

// room is how many permits are left at now, exactly; below 0 if there is debt or a lower limit.
func (s *state) room(now int64) *big.Rat {
	l := s.limit
	c := rat(l.Capacity)
	switch l.Algorithm {
	case stint.AlgorithmTokenBucket:
		return sub(c, quo(s.backlog(now), each(l)))
	case stint.AlgorithmLeakyBucket: // permits are in the queue until their turn is over
		return rat(l.Capacity - ceil(quo(s.backlog(now), each(l))))
	case stint.AlgorithmSlidingWindowCounter:
		return sub(c, s.estimateBy(l, now))
	case stint.AlgorithmConcurrency:
		_, permits := s.live()
		return rat(l.Capacity - permits)
	case stint.AlgorithmSlidingWindowLog:
		return rat(l.Capacity - s.logged())
	default:
	}
	return rat(l.Capacity - s.used)
}

func (s *state) logged() (n int64) {
	for _, e := range s.entries {
		n += e.n
	}
	return n
}

// admits says whether a request for n permits is admitted at now, if so many are kept for others.
func (s *state) admits(n, keep, now int64) bool {
	_, interval := micros(s.limit)
	if s.limit.Algorithm == stint.AlgorithmSlidingWindowLog && interval > 0 && now < s.last+interval {
		return false
	}
	return s.room(now).Cmp(add(rat(n), rat(keep))) >= 0
}

// charge counts n permits at now; admitted says that it is a request, and not a debt. It returns the part, and the delay.
func (s *state) charge(n, now int64, admitted bool) (p part, delay int64) {
	window, _ := micros(s.limit)
	s.at = now
	switch s.limit.Algorithm {
	case stint.AlgorithmTokenBucket:
		s.due = add(rat(now), add(s.backlog(now), mul(rat(n), each(s.limit))))
	case stint.AlgorithmLeakyBucket:
		// "A request's turn is the later of now and (the previous turn + P/R)"
		turn := greater(s.due, rat(now))
		s.due = add(turn, mul(rat(n), each(s.limit)))
		return p, ceil(sub(turn, rat(now)))
	case stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowCounter:
		// A fixed window under way "continues to its own end with what it used"; an unused one is the reader's.
		if s.end == 0 || s.limit.Algorithm == stint.AlgorithmFixedWindow && s.used == 0 {
			s.start = now - mod(now, window) // "Windows start at multiples of W"
			s.end = s.start + window
		}
		s.used += n
		return part{start: s.start, end: s.end, n: n}, 0
	case stint.AlgorithmSlidingWindowLog:
		s.entries = append(s.entries, entry{now, n})
		if admitted {
			s.last = now
		}
		return part{start: now, n: n}, 0
	default:
	}
	return p, 0
}

// debit is a Settle's charge, or a Commit's: "clipped at max_debt".
func (s *state) debit(n, now int64) (applied int64) {
	applied = max(0, min(n, floor(add(s.room(now), rat(s.limit.Debt())))))
	if applied > 0 {
		s.charge(applied, now, false)
	}
	return applied
}

// refund is a Settle's refund, and that of a token bucket's hold: "never exceeds what is recorded".
func (s *state) refund(n, now int64) (applied int64) {
	switch s.limit.Algorithm {
	case stint.AlgorithmTokenBucket: // "a refund is clipped to backlog - held x P / R"
		_, permits := s.live()
		at := max(now, s.newest())
		s.at = at
		floorAt := mul(rat(min(permits, s.limit.Capacity+s.limit.Debt())), each(s.limit))
		b := sub(s.due, rat(at)) // as it was brought up to now
		spare := greater(sub(b, floorAt), new(big.Rat))
		want := mul(rat(n), each(s.limit))
		if spare.Cmp(want) < 0 {
			n, want = ceil(quo(spare, each(s.limit))), spare
		}
		s.due = sub(s.due, want)
		return n
	case stint.AlgorithmFixedWindow:
		n = min(n, s.used)
		s.used -= n
		return n
	case stint.AlgorithmSlidingWindowCounter: // "the previous counter first"
		first := min(n, s.previous)
		then := min(n-first, s.used)
		s.previous -= first
		s.used -= then
		return first + then
	case stint.AlgorithmSlidingWindowLog: // "the oldest log entries"
		return s.shed(n)
	default:
	}
	return 0
}

// blank says whether the state equals an untouched one at now.
func (s *state) blank(now int64) bool {
	window, interval := micros(s.limit)
	switch s.limit.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		return s.due.Cmp(rat(now)) <= 0 // as if what is held were committed now (docs/internals/holds.md, "Waits")
	case stint.AlgorithmConcurrency:
		live, _ := s.live()
		return live == 0
	case stint.AlgorithmFixedWindow:
		return s.used == 0
	case stint.AlgorithmSlidingWindowCounter:
		return s.used == 0 && (s.previous == 0 || now == s.start+window)
	case stint.AlgorithmSlidingWindowLog:
		return len(s.entries) == 0 && (interval == 0 || now >= s.last+interval)
	}
	return true
}

// far stands for an instant that never comes.
const far = int64(1) << 61

// from is the first instant from now on at which a condition holds that stays true, if nobody takes, renews or ends, or
// far, which is never: "expiries are walked in order, at most 100, beyond that the 100th". At each expiry the state is brought there by the
// limit that wrote it, and taken over by the one that reads it; between two expiries it is the reader's.
func (s *state) from(l stint.Limit, now int64, holds func(c *state, at int64) bool) int64 {
	walk, at := s.clone(), now
	walk.holds = slices.DeleteFunc(walk.holds, func(h *held) bool { return h.permits <= h.paid }) // nothing comes of these
	for walked := 0; ; {
		read := walk.load(l, at)
		for _, h := range read.holds {
			h.expires = far
		}
		test := func(at int64) bool { return holds(read.load(l, at), max(at, read.newest())) }
		next := far
		walk.expiring(at)
		if h := walk.next(); h != nil {
			next = h.expires
		}
		if test(at) {
			return at
		}
		low, step := at, int64(1)
		for low+step < next && step < 1<<52 && !test(low+step) {
			low += step
			step *= 2
		}
		if high := min(low+step, next); high < far && test(high) {
			return first(low, high, test)
		}
		if next == far {
			return far
		}
		if walked >= 100 {
			return at
		}
		live, _ := walk.live()
		walk.expiring(next)
		left, _ := walk.live()
		walked += live - left
		at = next
	}
}

// expiring lets expire what is due, and leaves the rest of the state as it was written.
func (s *state) expiring(now int64) {
	for h := s.next(); h != nil && h.expires <= now; h = s.next() {
		s.bring(max(h.expires, s.newest()))
		s.expire(h)
	}
}

// first is the first instant after low, up to high, at which a condition that stays true is so.
func first(low, high int64, test func(int64) bool) int64 {
	for high-low > 1 {
		if mid := low + (high-low)/2; test(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}
