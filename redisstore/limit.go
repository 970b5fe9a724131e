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

// plan is a policy as this store sends it; it is kept with the policy.
type plan []limit

// limit is one limit, ready to be sent and to decide.
type limit struct {
	machine
	identity   unique.Handle[string]
	epochField string                           // of the settings, with the epoch of its policy
	letter     string                           // of the script, for the algorithm and a log's encoding
	parameters string                           // as a generation's head has them; "" of a log
	numbers    string                           // of the script's description, without a calendar's edges
	life       int64                            // the longest that a state matters, microseconds
	format     string                           // by which the script for one take writes a state
	singleArgs string                           // what taking(1) returns
	hashKeys   []atomic.Pointer[generationKeys] // by partition, as of the latest epoch; nil of a log
}

// logLetters are the script's letters for the log's encodings.
var logLetters = map[LogEncoding]string{LogPacked: "p", LogZSet: "z", LogStream: "x"}

func (s *Store) plan(policy *stint.Policy) plan { return s.layout.Load().plan(policy) }

func (y *layout) plan(policy *stint.Policy) plan {
	return policy.Prepared(y, func() any { return y.prepare(policy) }).(plan)
}

func (y *layout) prepare(policy *stint.Policy) plan {
	p := make(plan, policy.Len())
	for i := range p {
		l := &p[i]
		l.machine = newMachine(policy.Limit(i))
		l.epochField = epochField(policy.Name())
		l.identity = unique.Make(identify(policy.Name(), l.limit, y.encoding))
		l.describe(y.encoding)
		if !l.log {
			l.format = fmt.Sprintf(">Bi%dI%dI%d", l.parameters[0], l.parameters[1], l.parameters[2])
			l.singleArgs = l.encodeSingleArgs(1)
			l.hashKeys = make([]atomic.Pointer[generationKeys], y.partitions)
		}
	}
	return p
}

// describe writes the limit as the script reads it.
func (l *limit) describe(encoding LogEncoding) {
	spec := l.limit
	switch {
	case l.token != nil:
		permits, period := l.token.Rate()
		l.bucket("t", l.token.Lasting(l.maxCount()), permits, period)
	case l.leaky != nil:
		permits, period := l.leaky.Rate()
		l.bucket("l", l.leaky.Lasting(l.maxCount()), permits, period)
	case l.window != nil:
		length := spec.Window.Microseconds()
		life, lengthWidth := length, 1
		l.letter = "f"
		if l.calendar() {
			life, l.letter = calendarLife[spec.Calendar], "c"
			lengthWidth = width(life)
		}
		l.parameters = parameters(2*life, lengthWidth, width(l.maxCount()), number{length, 6})
		l.number(life)
		if !l.calendar() {
			l.number(length)
		}
	case l.counter != nil:
		window := spec.Window.Microseconds()
		l.letter = "s"
		l.parameters = parameters(4*window, width(l.maxCount()), width(l.maxCount()), number{window, 6})
		l.number(2*window, window)
	default:
		counts := int64(0)
		if spec.CountDenied {
			counts = 1
		}
		window, interval := spec.Window.Microseconds(), spec.MinInterval.Microseconds()
		l.letter = logLetters[encoding]
		l.number(max(window, interval), window, interval, counts)
	}
}

// calendarLife is the longest that a calendar's window lasts, an hour that the clocks
// are set back included, in microseconds.
var calendarLife = map[stint.Calendar]int64{
	stint.CalendarMinute: int64(time.Minute / time.Microsecond),
	stint.CalendarHour:   int64(25 * time.Hour / time.Microsecond),
	stint.CalendarDay:    int64(49 * time.Hour / time.Microsecond),
	stint.CalendarWeek:   int64(9 * 24 * time.Hour / time.Microsecond),
	stint.CalendarMonth:  int64(33 * 24 * time.Hour / time.Microsecond),
	stint.CalendarYear:   int64(368 * 24 * time.Hour / time.Microsecond),
}

func (l *limit) calendar() bool { return l.limit.Calendar != stint.CalendarNone }

// most is the greatest count of a state that the limit alone writes.
func (l *limit) maxCount() int64 { return l.limit.Capacity + l.limit.Debt() }

// bucket describes a bucket whose longest backlog is span.
func (l *limit) bucket(letter string, span, permits, period int64) {
	l.letter = letter
	l.parameters = parameters(2*span, width(span), width(permits),
		number{l.limit.Capacity, 4}, number{permits, 4}, number{period, 6})
	l.number(span, permits, period)
}

// number starts the description's numbers: capacity, debt and more, of which the first is
// how long a state matters.
func (l *limit) number(more ...int64) {
	if l.numbers == "" {
		l.numbers, l.life = l.letter, more[0]
		more = append([]int64{l.limit.Capacity, l.limit.Debt()}, more...)
	}
	l.numbers += bigEndian(more...)
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

// taking is what the script for one take has to know of n permits of the limit.
func (l *limit) singleArgsOf(n int64) string {
	if n == 1 {
		return l.singleArgs
	}
	return l.encodeSingleArgs(n)
}

func (l *limit) encodeSingleArgs(n int64) string {
	below := func(bits int) int64 { return 1 << min(bits, 62) }
	numbers := []int64{
		l.life + algorithm.Margin(l.life),
		below(8*int(l.parameters[0]) - 1), below(8 * int(l.parameters[1])), below(8 * int(l.parameters[2])),
	}
	switch {
	case l.token != nil:
		return bigEndian(append(numbers, l.token.Needs(n)...)...)
	case l.leaky != nil:
		return bigEndian(append(numbers, l.leaky.Needs(n)...)...)
	default: // windows
		return bigEndian(append(numbers, n, l.limit.Capacity, l.limit.Window.Microseconds(), 0, 0)...)
	}
}

// words writes numbers of 8 bytes.
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
