package redisstore

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
	"unique"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// plan is a policy as this store sends it; it is kept with the policy. It is immutable but for the
// hash keys, which are atomic.
type plan []limit

// limit is one limit, ready to be sent and to decide.
type limit struct {
	machine
	policy     *stint.Policy // that it is one of
	identity   unique.Handle[string]
	epochField string                           // of the settings, with the epoch of its policy
	letter     string                           // of the script, for the algorithm and a log's encoding
	parameters string                           // as a generation's head has them; "" of a log
	numbers    string                           // of the script's description, without a calendar's edges
	life       int64                            // the longest that a state matters, microseconds
	format     string                           // by which the script for one take writes a state
	singleArgs string                           // of 1 permit
	hashKeys   []atomic.Pointer[generationKeys] // by partition, as of the latest epoch; nil of a log
}

// logLetters are the script's letters for the log's encodings.
var logLetters = map[LogEncoding]string{LogPacked: "p", LogZSet: "z", LogStream: "x"}

// plan is a policy as it is sent in the layout of now.
func (s *Store) plan(policy *stint.Policy) plan { return s.layout.Load().plan(policy) }

// plan prepares the policy once for the layout, and keeps it with the policy.
func (y *layout) plan(policy *stint.Policy) plan {
	return policy.Prepared(y, func() any { return y.prepare(policy) }).(plan)
}

// prepare makes the limits of a policy ready.
func (y *layout) prepare(policy *stint.Policy) plan {
	p := make(plan, policy.Len())
	for i := range p {
		l := &p[i]
		l.machine, l.policy = newMachine(policy.Limit(i)), policy
		l.epochField = epochField(policy.Name())
		l.identity = unique.Make(identify(policy.Name(), l.limit, y.encoding))
		l.describe(y.encoding)
		if !l.log {
			l.hashKeys = make([]atomic.Pointer[generationKeys], y.partitions)
		}
		if l.parameters != "" {
			l.format = fmt.Sprintf(">Bi%dI%dI%d", l.parameters[0], l.parameters[1], l.parameters[2])
			l.singleArgs = l.encodeSingleArgs(1, 0)
		}
	}
	return p
}

// describe writes the limit as the script reads it. A limit of any other algorithm has no letter, and the
// script fails.
func (l *limit) describe(encoding LogEncoding) {
	spec := l.limit
	switch {
	case l.bucket != nil:
		// Its longest backlog is how long a state matters.
		permits, period := l.bucket.Rate()
		life := l.bucket.TimeOf(l.maxCount())
		l.letter = "t"
		if l.token == nil {
			l.letter = "l"
		}
		l.parameters = parameters(
			2*life, width(life), width(permits), number{spec.Capacity, 4}, number{permits, 4}, number{period, 6},
		)
		l.number(life, permits, period)
	case l.window != nil:
		length := spec.Window.Microseconds()
		life, lengthWidth := length, 1
		l.letter = "f"
		if l.calendar() {
			_, longest := spec.Calendar.Length()
			life, l.letter = longest.Microseconds(), "c"
			lengthWidth = width(life)
		}
		l.parameters = parameters(2*life, lengthWidth, width(l.maxCount()), number{length, 6})
		if l.calendar() {
			l.number(life)
		} else {
			l.number(life, length)
		}
	case l.counter != nil:
		window := spec.Window.Microseconds()
		l.letter = "s"
		l.parameters = parameters(4*window, width(l.maxCount()), width(l.maxCount()), number{window, 6})
		l.number(2*window, window)
	case spec.Algorithm == stint.AlgorithmConcurrency:
		l.letter, l.parameters = "n", "\x07\x01\x01"
		l.number(0)
	case l.log:
		counts := int64(0)
		if spec.CountDenied {
			counts = 1
		}
		window, interval := spec.Window.Microseconds(), spec.MinInterval.Microseconds()
		l.letter = logLetters[encoding]
		l.number(max(window, interval), window, interval, counts)
	}
}

// calendar reports whether its windows follow the calendar, so that the script has to be told where
// they begin.
func (l *limit) calendar() bool { return l.limit.Calendar != stint.CalendarNone }

// maxCount is the greatest count of a state that the limit alone writes.
func (l *limit) maxCount() int64 { return l.limit.Capacity + l.limit.Debt() }

// number writes the description's numbers: capacity, debt, how long a state matters, and more.
func (l *limit) number(life int64, more ...int64) {
	l.life, l.numbers = life, l.letter+bigEndian(append([]int64{l.limit.Capacity, l.limit.Debt(), life}, more...)...)
}

// describeAt is the limit's numbers with, for a calendar, the bounds of the window
// that holds t and of its neighbours.
func (l *limit) describeAt(t stint.Instant) string {
	if !l.calendar() {
		return l.numbers
	}
	start, end := l.window.Window(t)
	before, _ := l.window.Window(start - 1)
	_, after := l.window.Window(end)
	return l.numbers + bigEndian(int64(before), int64(start), int64(end), int64(after))
}

// singleArgsOf is what the script for one take has to know of n permits of the limit.
func (l *limit) singleArgsOf(r run) string {
	if r.n == 1 && r.keep == 0 {
		return l.singleArgs
	}
	return l.encodeSingleArgs(r.n, r.keep)
}

// encodeSingleArgs writes the numbers of single_take.lua's ARGV[7].
func (l *limit) encodeSingleArgs(n, keep int64) string {
	below := func(bits int) int64 { return 1 << min(bits, 62) }
	numbers := []int64{
		l.life + algorithm.Margin(l.life),
		below(8*int(l.parameters[0]) - 1), below(8 * int(l.parameters[1])), below(8 * int(l.parameters[2])),
	}
	if l.bucket != nil {
		return bigEndian(append(numbers, l.bucket.TakeStoredArgs(n, keep)...)...)
	}
	return bigEndian(append(numbers, n, l.limit.Capacity-keep, l.limit.Window.Microseconds(), 0, 0)...)
}

// bigEndian writes numbers of 8 bytes.
func bigEndian(numbers ...int64) string {
	text := make([]byte, 0, 8*len(numbers))
	for _, n := range numbers {
		text = binary.BigEndian.AppendUint64(text, uint64(n))
	}
	return string(text)
}

// number is a number of so many bytes.
type number struct {
	value int64
	bytes int
}

// parameters writes a limit's parameters for a generation's head: how many bytes a
// state's time, second and third number take, and what reading it takes. times is
// how far a time may be from a generation's start, with some room.
func parameters(times int64, second, third int, reading ...number) string {
	margin := algorithm.Margin(times)
	text := []byte{byte(width(2 * (times + 2*margin))), byte(second), byte(third)}
	for _, n := range reading {
		for shift := 8 * (n.bytes - 1); shift >= 0; shift -= 8 {
			text = append(text, byte(n.value>>shift))
		}
	}
	return string(text)
}

// width is how many bytes a number takes.
func width(n int64) int {
	bytes := 1
	for n >>= 8; n > 0; n >>= 8 {
		bytes++
	}
	return bytes
}

// bucket is a token or a leaky bucket.
//
// The two are the same but for what their outcomes say of the wait.
type bucket interface {
	Apply(action algorithm.Action, state *algorithm.BucketState, now stint.Instant, n, keep int64, out *stint.Outcome)
	Leaves(state *algorithm.BucketState, now stint.Instant, most int64) time.Duration
	Admit(state *algorithm.BucketState, now stint.Instant, n, keep, k int64) int64
	RefundTaken(state *algorithm.BucketState, now stint.Instant, n int64, taken stint.Instant) bool
	Rate() (permits, period int64)
	TimeOf(n int64) int64
	TakeStoredArgs(n, keep int64) []int64
}

// machine is a limit with its algorithm: bucket, window or counter is set, none for a log,
// whose outcomes the script answers.
type machine struct {
	limit   stint.Limit
	bucket  bucket
	token   *algorithm.TokenBucket // the bucket, if it is one
	window  *algorithm.FixedWindow
	counter *algorithm.SlidingWindowCounter
	log     bool
}

// state is the state of a fixed-size algorithm; that of the others is not used.
type state struct {
	bucket  algorithm.BucketState
	window  algorithm.WindowState
	counter algorithm.CounterState
	changed algorithm.Changed // of a state that another version wrote: how it wrote it; nil: the limit itself did
}

// newMachine prepares a limit's algorithm.
func newMachine(limit stint.Limit) machine {
	m := machine{limit: limit}
	switch limit.Algorithm {
	case stint.AlgorithmTokenBucket:
		m.token = algorithm.NewTokenBucket(limit)
		m.bucket = m.token
	case stint.AlgorithmLeakyBucket:
		m.bucket = algorithm.NewLeakyBucket(limit)
	case stint.AlgorithmFixedWindow:
		m.window = algorithm.NewFixedWindow(limit)
	case stint.AlgorithmSlidingWindowCounter:
		m.counter = algorithm.NewSlidingWindowCounter(limit)
	case stint.AlgorithmSlidingWindowLog:
		m.log = true
	case stint.AlgorithmConcurrency: // whose outcomes the script answers, too
	}
	return m
}

// apply carries out an action on a state, as the script did or would.
func (m *machine) apply(action algorithm.Action, s *state, now stint.Instant, n, keep int64, out *stint.Outcome) {
	switch {
	case m.bucket != nil:
		m.bucket.Apply(action, &s.bucket, now, n, keep, out)
	case m.window != nil:
		m.window.Apply(action, &s.window, now, n, keep, out)
	case m.counter != nil:
		m.counter.Apply(action, &s.counter, now, n, keep, out)
	}
	if s.changed != nil {
		s.wrote(action == algorithm.Take && out.Allowed || out.Applied != 0)
	}
	if s.changed != nil {
		algorithm.CorrectWaits(s.changed, now, n, keep, false, out)
	}
}

// wrote notes whether an operation has changed the state, which is the limit's own then.
func (s *state) wrote(changed bool) {
	if changed {
		s.changed = nil
	}
}

// grows is how long until more remains.
func (m *machine) grows(s *state, now stint.Instant, keep, remaining int64) time.Duration {
	most := m.limit.Capacity - keep - remaining - 1
	switch {
	case most < 0:
	case s.changed != nil:
		return s.changed.Wait(now, keep+remaining+1)
	case m.bucket != nil:
		return m.bucket.Leaves(&s.bucket, now, most)
	case m.window != nil:
		return m.window.Leaves(&s.window, now, most)
	case m.counter != nil:
		return m.counter.Leaves(&s.counter, now, most)
	}
	return 0
}

// admit takes n permits k times, one after another, as often as they fit, and returns
// how often.
func (m *machine) admit(s *state, now stint.Instant, n, keep, k int64) (admitted int64) {
	switch {
	case m.bucket != nil:
		admitted = m.bucket.Admit(&s.bucket, now, n, keep, k)
	case m.window != nil:
		admitted = m.window.Admit(&s.window, now, n, keep, k)
	case m.counter != nil:
		admitted = m.counter.Admit(&s.counter, now, n, keep, k)
	}
	s.wrote(admitted > 0)
	return admitted
}

// givesBack reports whether permits that were taken can be given back.
func (m *machine) givesBack() bool { return m.token != nil || m.window != nil || m.counter != nil }

// refund returns n permits that were taken at an instant.
func (m *machine) refund(s *state, now stint.Instant, n int64, taken stint.Instant) {
	changed := false
	switch {
	case m.bucket != nil:
		changed = m.bucket.RefundTaken(&s.bucket, now, n, taken)
	case m.window != nil:
		changed = m.window.RefundTaken(&s.window, now, n, taken)
	case m.counter != nil:
		changed = m.counter.RefundTaken(&s.counter, now, n, taken)
	}
	s.wrote(changed)
}

// returnLease returns n permits that were leased at an instant and not spent.
func (m *machine) returnLease(s *state, now stint.Instant, n int64, leased stint.Instant) {
	if m.token != nil {
		s.wrote(m.token.ReturnLeased(&s.bucket, now, n, leased))
		return
	}
	m.refund(s, now, n, leased)
}

// reset clears a state.
func (m *machine) reset(s *state, keep int64, out *stint.Outcome) {
	*s = state{}
	*out = stint.Outcome{Allowed: true, Limit: m.limit.Capacity, Remaining: max(0, m.limit.Capacity-keep)}
}

// load makes a state of its three stored numbers, which a limit with the given parameters wrote,
// and adopts it. Three numbers are enough for all of them: a time and two more, whose meaning is
// the algorithm's.
func (m *machine) load(s *state, now stint.Instant, numbers [3]int64, version string, mine bool) {
	at := stint.Instant(numbers[0])
	switch {
	case m.bucket != nil:
		s.bucket = algorithm.BucketState{Last: at, Due: at + stint.Instant(numbers[1]), Frac: numbers[2]}
		if mine {
			return
		}
		var changed algorithm.ChangedBucket
		isChanged := false
		switch b := m.bucket.(type) {
		case *algorithm.TokenBucket:
			changed, isChanged = b.Changed(s.bucket, algorithm.NewTokenBucket(bucketOf(version)))
		case *algorithm.LeakyBucket:
			changed, isChanged = b.Changed(s.bucket, algorithm.NewLeakyBucket(bucketOf(version)))
		}
		if isChanged {
			s.bucket, s.changed = changed.State(now), &changed
		}
	case m.window != nil:
		length := numbers[1]
		if length == 0 {
			length = windowOf(version)
		}
		s.window = algorithm.WindowState{Start: at, End: at + stint.Instant(length), Count: numbers[2]}
	case m.counter != nil:
		s.counter = algorithm.CounterState{Start: at, Previous: numbers[1], Current: numbers[2]}
		if !mine {
			writer := algorithm.NewSlidingWindowCounter(stint.Limit{Window: micros(windowOf(version))})
			if changed, isChanged := m.counter.Changed(s.counter, writer); isChanged {
				s.counter, s.changed = changed.State(now), &changed
			}
		}
	}
}

// widthsBytes is how many bytes of parameters say the widths.
const widthsBytes = 3

// bucketOf is the bucket of a head's parameters, as far as they tell.
func bucketOf(parameters string) stint.Limit {
	text := parameters[widthsBytes:]
	return stint.Limit{
		Capacity: unsigned(text[:4]),
		Rate:     stint.Rate{Permits: unsigned(text[4:8]), Period: micros(unsigned(text[8:14]))},
	}
}

// windowOf is the window of a head's parameters in microseconds.
func windowOf(parameters string) int64 { return unsigned(parameters[widthsBytes : widthsBytes+6]) }

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
