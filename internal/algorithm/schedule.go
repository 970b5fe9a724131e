package algorithm

import (
	"math"
	"math/bits"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// bucketState is the state of a token bucket or a leaky bucket: an instant on a
// schedule where each permit takes period/permits. The zero value is untouched.
//
// For a token bucket the instant is when the bucket is full again; for a leaky bucket, when its
// queue has drained. The form is that of the generic cell rate algorithm (ITU-T I.371), kept exact
// by the fraction. So a token bucket with capacity C holds, at a time t, C - ceil((Due +
// Frac/permits - t) x permits / period) permits:
//
//	permits
//	C |\            _____
//	  | \  take n  /     refills at permits/period
//	  |  \________/
//	  |__________________ time
//	        now    Due
type bucketState struct {
	// Due is the instant in microseconds, rounded down.
	Due stint.Instant
	// Frac is the fraction of a microsecond that Due leaves out, in units of 1/permits of a microsecond, where permits
	// is the reduced rate's: 0 <= Frac < permits.
	Frac int64
	// Last is the time of the last change.
	Last stint.Instant
	// Held is how many of a token bucket's permits are held. They still stand in the bucket, which
	// refills up to capacity - Held: what came back of a hold beside a bucket that had refilled
	// meanwhile would be there twice.
	Held int64
}

// schedule is what the two buckets have in common: permits that take period/permits each, at most
// capacity of them outstanding. It is immutable; both buckets embed it.
type schedule struct {
	capacity     int64
	debt         int64
	permits      int64  // the rate, reduced by the greatest common divisor
	period       int64  // in microseconds
	inverse      uint64 // of period: (2^64 - 1) / period, rounded down
	permitTime   span   // one permit
	capacityTime span   // capacity permits
}

// span is a length of time: us + frac/permits microseconds, 0 <= frac < permits.
type span struct{ us, frac int64 }

// newSchedule prepares a limit: the rate is reduced, and what every request needs is computed once.
func newSchedule(limit stint.Limit) schedule {
	permits, period := limit.Rate.Permits, limit.Rate.Period.Microseconds()
	if d := gcd(permits, period); d > 1 {
		permits, period = permits/d, period/d
	}
	s := schedule{
		capacity: limit.Capacity, debt: bounds.Debt(limit.MaxDebt, limit.Capacity),
		permits: permits, period: period, inverse: math.MaxUint64 / uint64(period),
		permitTime: span{period / permits, period % permits},
	}
	s.capacityTime = s.timeOf(limit.Capacity)
	return s
}

// gcd is Euclid's.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// timeOf is how long n permits take.
func (s *schedule) timeOf(n int64) span {
	if n == 1 {
		return s.permitTime
	}
	hi, lo := bits.Mul64(uint64(n), uint64(s.period))
	us, frac := bits.Div64(hi, lo, uint64(s.permits))
	return span{int64(us), int64(frac)}
}

// permitsIn is how many permits a span reaches into, the last one perhaps in part.
func (s *schedule) permitsIn(d span) int64 {
	hi, lo := bits.Mul64(uint64(d.us), uint64(s.permits))
	lo, carry := bits.Add64(lo, uint64(d.frac), 0)
	if hi+carry == 0 {
		return s.periods(lo)
	}
	n, remainder := bits.Div64(hi+carry, lo, uint64(s.period))
	if remainder > 0 {
		n++
	}
	return int64(n)
}

// periods is x/period rounded up, without a division. Since period x inverse is more
// than 2^64 - 1 - period, the product below falls short of x/period by less than 1:
// n is the quotient rounded down, or one less, and part is below 2 x period.
func (s *schedule) periods(x uint64) int64 {
	n, _ := bits.Mul64(x, s.inverse)
	remainder := x - n*uint64(s.period)
	if remainder > uint64(s.period) {
		n++
	}
	if remainder > 0 {
		n++
	}
	return int64(n)
}

// add is a + b. Like sub it keeps 0 <= frac < permits, with a carry of one microsecond.
func (s *schedule) add(a, b span) span {
	sum := span{a.us + b.us, a.frac + b.frac}
	if sum.frac >= s.permits {
		sum.us++
		sum.frac -= s.permits
	}
	return sum
}

// sub is a - b, which may be negative: then us is, and frac is not.
func (s *schedule) sub(a, b span) span {
	d := span{a.us - b.us, a.frac - b.frac}
	if d.frac < 0 {
		d.us--
		d.frac += s.permits
	}
	return d
}

// less compares two spans.
func (a span) less(b span) bool { return a.us < b.us || a.us == b.us && a.frac < b.frac }

// ceil rounds up to a microsecond.
func (a span) ceil() int64 {
	if a.frac > 0 {
		return a.us + 1
	}
	return a.us
}

// backlog brings the state to now: t is the state's time, backlog how far past t
// it is due, at least as far as what is held takes.
func (s *schedule) backlog(b *bucketState, now stint.Instant) (t stint.Instant, backlog span) {
	t, backlog = b.backlog(now)
	if b.Held > 0 {
		backlog = s.atLeastHeld(backlog, b)
	}
	return t, backlog
}

// backlog is that of the schedule where nothing is held. It is apart so that takes have it inlined.
func (b *bucketState) backlog(now stint.Instant) (t stint.Instant, backlog span) {
	t = max(now, b.Last)
	if b.Due >= t {
		backlog = span{int64(b.Due - t), b.Frac}
	}
	return t, backlog
}

// atLeastHeld is the backlog, or what is held if that takes longer: what is held never refills.
func (s *schedule) atLeastHeld(backlog span, b *bucketState) span {
	if least := s.heldTime(b); backlog.less(least) {
		return least
	}
	return backlog
}

// heldTime is how long the permits that are held take.
func (s *schedule) heldTime(b *bucketState) span {
	if b.Held == 0 {
		return span{}
	}
	return s.timeOf(min(b.Held, s.capacity+s.debt))
}

// due moves the state's instant to backlog past t.
func (b *bucketState) due(t stint.Instant, backlog span) {
	b.Due, b.Frac, b.Last = t+stint.Instant(backlog.us), backlog.frac, t
}

// apply is the transition of both buckets. It returns the backlog that a taken or asked-for request
// found before it, from now, which is a leaky bucket's delay. A request of n permits is admitted if
//
//	backlog + time(n) + time(keep) <= time(capacity)
//
// and a denied one waits for the difference. All terms are exact spans.
func (s *schedule) apply(action Action, state *bucketState, now stint.Instant, n, keep int64, out *stint.Outcome) span {
	t, backlog := state.backlog(now)
	if state.Held > 0 {
		backlog = s.atLeastHeld(backlog, state)
	}
	found := backlog
	late := int64(t - now) // above 0 only after a step back of the clock
	out.Limit = s.capacity
	out.Allowed = true
	out.RetryAfter, out.Delay, out.Applied = 0, 0, 0
	switch {
	case action == Settle:
		if backlog, out.Applied = s.settle(backlog, n, s.heldTime(state)); out.Applied != 0 {
			state.due(t, backlog)
		}
	case n > s.capacity-keep:
		out.Allowed, out.RetryAfter = false, stint.Never
	default:
		after := s.add(backlog, s.timeOf(n))
		full := after
		if keep > 0 {
			full = s.add(after, s.timeOf(keep))
		}
		if s.capacityTime.less(full) {
			out.Allowed, out.RetryAfter = false, micros(s.sub(full, s.capacityTime).ceil()+late)
			if state.Held > 0 && !s.fitsBesideHeld(state, n+keep) {
				out.RetryAfter = stint.Never
			}
		} else if action == Take {
			backlog = after
			state.due(t, backlog)
		}
	}
	out.Remaining = max(0, s.capacity-keep-s.permitsIn(backlog))
	out.ResetAfter = 0
	if backlog != (span{}) {
		out.ResetAfter = micros(backlog.ceil() + late)
	}
	found.us += late
	return found
}

// fitsBesideHeld reports whether n permits more fit before a hold ends.
func (s *schedule) fitsBesideHeld(state *bucketState, n int64) bool {
	return !s.capacityTime.less(s.add(s.heldTime(state), s.timeOf(n)))
}

// settle charges or refunds n on a backlog, and returns it with what was applied. A refund leaves
// what is held. So debt is bounded: backlog <= time(capacity + debt).
func (s *schedule) settle(backlog span, n int64, held span) (span, int64) {
	if n > 0 {
		n = clamp(n, s.capacity+s.debt-s.permitsIn(backlog))
		return s.add(backlog, s.timeOf(n)), n
	}
	free := s.sub(backlog, held)
	n = clamp(-n, s.permitsIn(free)) // a part is counted whole
	if back := s.timeOf(n); back.less(free) {
		return s.sub(backlog, back), -n
	}
	return held, -n
}

// admit takes n permits k times, one after another, as often as they fit, and returns
// how often. It is k times Apply, in one step and without outcomes.
func (s *schedule) admit(state *bucketState, now stint.Instant, n, keep, k int64) int64 {
	if n > s.capacity-keep {
		return 0
	}
	t, backlog := s.backlog(state, now)
	admitted := min(k, max(0, s.capacity-keep-s.permitsIn(backlog))/n)
	if admitted > 0 {
		state.due(t, s.add(backlog, s.timeOf(admitted*n)))
	}
	return admitted
}

// refundTaken gives back n permits that were taken at an instant, and reports whether
// that changed the state. What a bucket has refilled since is not refilled twice.
func (s *schedule) refundTaken(state *bucketState, now stint.Instant, n int64, _ stint.Instant) bool {
	t, backlog := s.backlog(state, now)
	backlog, applied := s.settle(backlog, -n, s.heldTime(state))
	if applied == 0 {
		return false
	}
	state.due(t, backlog)
	return true
}

// timeWithin is timeOf of any number of permits, cut to the horizon.
func (s *schedule) timeWithin(n int64) span {
	if hi, lo := bits.Mul64(uint64(n), uint64(s.period)); s.pastHorizon(hi, lo) {
		return span{horizon, 0}
	}
	return s.timeOf(n)
}

// pastHorizon reports whether hi:lo, permits times the period, takes longer than
// the horizon at the schedule's rate.
func (s *schedule) pastHorizon(hi, lo uint64) bool {
	mostHi, mostLo := bits.Mul64(uint64(horizon), uint64(s.permits))
	return hi > mostHi || hi == mostHi && lo > mostLo
}

// same reports whether two schedules give a state the same meaning.
func (s *schedule) same(o *schedule) bool {
	return s.capacity == o.capacity && s.permits == o.permits && s.period == o.period
}

// leaves is how long until at most so many permits are outstanding, a part counted whole; [stint.Never] if that takes
// the end of a hold.
func (s *schedule) leaves(state *bucketState, now stint.Instant, most int64) time.Duration {
	t, backlog := s.backlog(state, now)
	if s.permitsIn(backlog) <= most {
		return 0
	}
	left := s.timeOf(most)
	if state.Held > 0 && left.less(s.heldTime(state)) {
		return stint.Never
	}
	return micros(s.sub(backlog, left).ceil() + int64(t-now))
}
