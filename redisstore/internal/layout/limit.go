package layout

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
	"unique"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/spans"
)

// A Plan is a policy as it is sent; it is kept with the policy. It is immutable but for the
// hash keys, which are atomic.
type Plan []Limit

// A Limit is one limit, ready to be sent and to decide.
type Limit struct {
	algorithm.Machine
	Spec       stint.Limit
	Policy     *stint.Policy // that it is one of
	Identity   unique.Handle[string]
	EpochField string                           // of the settings, with the epoch of its policy
	Letter     string                           // of the script, for the algorithm and a log's encoding
	Parameters string                           // as a generation's head has them; "" of a log
	numbers    string                           // of the script's description, without a calendar's edges
	Life       int64                            // the longest that a state matters, microseconds
	Format     string                           // by which the script for one take writes a state
	singleArgs string                           // of 1 permit
	General    bool                             // only the script for operations of any kind decides by it
	hashKeys   []atomic.Pointer[GenerationKeys] // by partition, as of the latest epoch; nil of a log
}

// Plan prepares the policy once for the layout, and keeps it with the policy.
func (y *Layout) Plan(policy *stint.Policy) Plan {
	return policy.Prepared(&y.owner, func() any { return y.prepare(policy) }).(Plan)
}

// prepare makes the limits of a policy ready.
func (y *Layout) prepare(policy *stint.Policy) Plan {
	p := make(Plan, policy.Len())
	for i := range p {
		l := &p[i]
		l.Spec, l.Policy = policy.Limit(i), policy
		l.Machine = algorithm.NewMachine(l.Spec)
		l.EpochField = EpochField(policy.Name())
		l.Identity = unique.Make(identify(policy.Name(), l.Spec, y.Encoding))
		l.describe(y.Encoding)
		l.General = l.HasLog() || l.Calendar() || l.Spec.Denials
		if !l.HasLog() {
			l.hashKeys = make([]atomic.Pointer[GenerationKeys], y.Partitions)
		}
		if l.Parameters != "" {
			l.Format = fmt.Sprintf(">Bi%dI%dI%d", l.Parameters[0], l.Parameters[1], l.Parameters[2])
			l.singleArgs = l.encodeSingleArgs(1, 0)
		}
	}
	return p
}

// describe writes the limit as the script reads it. A limit of any other algorithm has no letter, and the
// script fails.
func (l *Limit) describe(encoding string) {
	spec := l.Spec
	switch spec.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		// Its longest backlog is how long a state matters.
		permits, period := l.Rate()
		life, queue := l.TimeOf(l.maxCount()), int64(0)
		l.Letter = "t"
		if spec.Algorithm == stint.AlgorithmLeakyBucket {
			queue = 1
		}
		l.Parameters = parameters(
			2*life, width(life), width(permits), number{spec.Capacity, 4}, number{permits, 4}, number{period, 6},
		)
		l.number(life, permits, period, queue)
	case stint.AlgorithmFixedWindow:
		length := spec.Window.Microseconds()
		life, lengthWidth := length, 1
		l.Letter = "f"
		if spec.Denials {
			l.Letter = "d"
		}
		if l.Calendar() {
			_, longest := spans.OfCalendar(spec.Calendar)
			life, l.Letter = longest.Microseconds(), "c"
			lengthWidth = width(life)
		}
		l.Parameters = parameters(2*life, lengthWidth, width(l.maxCount()), number{length, 6})
		if l.Calendar() {
			l.number(life)
		} else {
			l.number(life, length, l.Step())
		}
	case stint.AlgorithmSlidingWindowCounter:
		window := spec.Window.Microseconds()
		l.Letter = "s"
		l.Parameters = parameters(4*window, width(l.maxCount()), width(l.maxCount()), number{window, 6})
		l.number(2*window, window)
	case stint.AlgorithmConcurrency:
		l.Letter, l.Parameters = "n", "\x07\x01\x01"
		l.number(0)
	case stint.AlgorithmSlidingWindowLog:
		counts := int64(0)
		if spec.CountDenied {
			counts = 1
		}
		window, interval := spec.Window.Microseconds(), spec.MinInterval.Microseconds()
		l.Letter = logLetters[encoding]
		l.number(max(window, interval), window, interval, counts)
	}
}

// Same reports whether two limits of one identity have the same parameters.
func (l *Limit) Same(o *Limit) bool { return l == o || l.Spec == o.Spec }

// Calendar reports whether its windows follow the calendar, so that the script has to be told where
// they begin.
func (l *Limit) Calendar() bool { return l.Spec.Calendar != 0 }

// maxCount is the greatest count of a state that the limit alone writes.
func (l *Limit) maxCount() int64 {
	return l.Spec.Capacity + bounds.Debt(l.Spec.MaxDebt, l.Spec.Capacity)
}

// number writes the description's numbers: capacity, debt, how long a state matters, and more.
func (l *Limit) number(life int64, more ...int64) {
	debt := bounds.Debt(l.Spec.MaxDebt, l.Spec.Capacity)
	l.Life, l.numbers = life, l.Letter+BigEndian(append([]int64{l.Spec.Capacity, debt, life}, more...)...)
}

// DescribeAt is the limit's numbers with, for a calendar, the bounds of the window
// that holds t and of its neighbours.
func (l *Limit) DescribeAt(t stint.Instant) string {
	if !l.Calendar() {
		return l.numbers
	}
	start, end := l.Window(t)
	before, _ := l.Window(start - 1)
	_, after := l.Window(end)
	return l.numbers + BigEndian(int64(before), int64(start), int64(end), int64(after))
}

// SingleArgs is what the script for one take has to know of n permits of the limit, so that keep more are left.
func (l *Limit) SingleArgs(n, keep int64) string {
	if n == 1 && keep == 0 {
		return l.singleArgs
	}
	return l.encodeSingleArgs(n, keep)
}

// encodeSingleArgs writes the numbers of single_take.lua's ARGV[7].
func (l *Limit) encodeSingleArgs(n, keep int64) string {
	below := func(bits int) int64 { return 1 << min(bits, 62) }
	numbers := []int64{
		l.Life + algorithm.Margin(l.Life),
		below(8*int(l.Parameters[0]) - 1), below(8 * int(l.Parameters[1])), below(8 * int(l.Parameters[2])),
	}
	return BigEndian(append(numbers, l.TakeStoredArgs(n, keep)...)...)
}

// BigEndian writes numbers of 8 bytes.
func BigEndian(numbers ...int64) string {
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

// GivesBack reports whether permits that were taken can be given back by the numbers of the state.
func (l *Limit) GivesBack() bool { return l.Returns() && !l.HasLog() && !l.HasPlaces() }

// Load makes a state of its three stored numbers, which a limit with the given parameters wrote,
// and adopts it.
func (l *Limit) Load(s *algorithm.State, now stint.Instant, numbers [3]int64, version string, mine bool) {
	s.Numbers = algorithm.Numbers{At: stint.Instant(numbers[0]), Second: numbers[1], Third: numbers[2]}
	switch {
	case l.Spec.Algorithm == stint.AlgorithmFixedWindow: // its end stands in the state where it needs to
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
func (l *Limit) writerOf(parameters string) stint.Limit {
	if !l.Spec.IsBucket() {
		return stint.Limit{Algorithm: l.Spec.Algorithm, Window: Micros(windowOf(parameters))}
	}
	text := parameters[widthsBytes:]
	return stint.Limit{
		Algorithm: l.Spec.Algorithm, Capacity: Unsigned(text[:4]),
		Rate: stint.Rate{Permits: Unsigned(text[4:8]), Period: Micros(Unsigned(text[8:14]))},
	}
}

// widthsBytes is how many bytes of parameters say the widths.
const widthsBytes = 3

// windowOf is the window of a head's parameters in microseconds.
func windowOf(parameters string) int64 { return Unsigned(parameters[widthsBytes : widthsBytes+6]) }

// Unsigned reads a big-endian number; one of 8 bytes may be signed.
func Unsigned(text string) int64 {
	n := int64(0)
	for i := range len(text) {
		n = n<<8 | int64(text[i])
	}
	return n
}

// Micros are microseconds as a duration.
func Micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
