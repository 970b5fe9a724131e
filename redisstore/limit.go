package redisstore

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
	"unique"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// plan is a policy as this store sends it; it is kept with the policy. It is immutable but for the
// hash keys, which are atomic.
type plan []limit

// limit is one limit, ready to be sent and to decide.
type limit struct {
	algorithm.Machine
	limit      stint.Limit
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
		l.limit, l.policy = policy.Limit(i), policy
		l.Machine = algorithm.NewMachine(l.limit)
		l.epochField = epochField(policy.Name())
		l.identity = unique.Make(identify(policy.Name(), l.limit, y.encoding))
		l.describe(y.encoding)
		if !l.HasLog() {
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
	switch spec.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		// Its longest backlog is how long a state matters.
		permits, period := l.Rate()
		life := l.TimeOf(l.maxCount())
		l.letter = "t"
		if spec.Algorithm == stint.AlgorithmLeakyBucket {
			l.letter = "l"
		}
		l.parameters = parameters(
			2*life, width(life), width(permits), number{spec.Capacity, 4}, number{permits, 4}, number{period, 6},
		)
		l.number(life, permits, period)
	case stint.AlgorithmFixedWindow:
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
	case stint.AlgorithmSlidingWindowCounter:
		window := spec.Window.Microseconds()
		l.letter = "s"
		l.parameters = parameters(4*window, width(l.maxCount()), width(l.maxCount()), number{window, 6})
		l.number(2*window, window)
	case stint.AlgorithmConcurrency:
		l.letter, l.parameters = "n", "\x07\x01\x01"
		l.number(0)
	case stint.AlgorithmSlidingWindowLog:
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
	start, end := l.Window(t)
	before, _ := l.Window(start - 1)
	_, after := l.Window(end)
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
	return bigEndian(append(numbers, l.TakeStoredArgs(n, keep)...)...)
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

// givesBack reports whether permits that were taken can be given back by the numbers of the state.
func (l *limit) givesBack() bool { return l.Returns() && !l.HasLog() && !l.HasPlaces() }

// load makes a state of its three stored numbers, which a limit with the given parameters wrote,
// and adopts it.
func (l *limit) load(s *algorithm.State, now stint.Instant, numbers [3]int64, version string, mine bool) {
	s.Numbers = algorithm.Numbers{At: stint.Instant(numbers[0]), Second: numbers[1], Third: numbers[2]}
	switch {
	case l.limit.Algorithm == stint.AlgorithmFixedWindow: // its end stands in the state where it needs to
		if s.Second == 0 {
			s.Second = windowOf(version)
		}
	case !mine:
		writer := algorithm.NewMachine(l.writerOf(version))
		l.Adopt(s, &writer)
		l.Read(s, now)
	}
}

// writerOf is the limit of a head's parameters, as far as they tell.
func (l *limit) writerOf(parameters string) stint.Limit {
	if !l.limit.IsBucket() {
		return stint.Limit{Algorithm: l.limit.Algorithm, Window: micros(windowOf(parameters))}
	}
	text := parameters[widthsBytes:]
	return stint.Limit{
		Algorithm: l.limit.Algorithm, Capacity: unsigned(text[:4]),
		Rate: stint.Rate{Permits: unsigned(text[4:8]), Period: micros(unsigned(text[8:14]))},
	}
}

// widthsBytes is how many bytes of parameters say the widths.
const widthsBytes = 3

// windowOf is the window of a head's parameters in microseconds.
func windowOf(parameters string) int64 { return unsigned(parameters[widthsBytes : widthsBytes+6]) }

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
