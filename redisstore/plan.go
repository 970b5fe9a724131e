package redisstore

import (
	"strconv"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// plan is a policy as this store sends it; it is kept with the policy.
type plan []limit

type limit struct {
	suffix      string // of the key
	description string // of the script's ARGV, without a calendar's edges
	calendar    *algorithm.FixedWindow
}

// logLetters are the script's letters for the log's encodings.
var logLetters = map[LogEncoding]string{LogPacked: "p", LogZSet: "z", LogStream: "x"}

func (s *Store) plan(policy *stint.Policy) plan {
	return policy.Prepared(s, func() any { return s.prepare(policy) }).(plan)
}

func (s *Store) prepare(policy *stint.Policy) plan {
	p := make(plan, policy.Len())
	for i := range p {
		l := policy.Limit(i)
		p[i] = limit{
			suffix:      keySuffix(policy.Name(), l, s.options.LogEncoding),
			description: describe(l, s.options.LogEncoding),
		}
		if l.Calendar != stint.CalendarNone {
			p[i].calendar = algorithm.NewFixedWindow(l)
		}
	}
	return p
}

// describe writes a limit as the script reads it.
func describe(l stint.Limit, encoding LogEncoding) string {
	switch l.Algorithm {
	case stint.AlgorithmLeakyBucket:
		permits, period := algorithm.NewLeakyBucket(l).Rate()
		return join("l", l.Capacity, l.Debt(), permits, period)
	case stint.AlgorithmFixedWindow:
		if l.Calendar != stint.CalendarNone {
			return join("c", l.Capacity, l.Debt())
		}
		return join("f", l.Capacity, l.Debt(), l.Window.Microseconds())
	case stint.AlgorithmSlidingWindowCounter:
		return join("s", l.Capacity, l.Debt(), l.Window.Microseconds())
	case stint.AlgorithmSlidingWindowLog:
		counts := int64(0)
		if l.CountDenied {
			counts = 1
		}
		return join(logLetters[encoding], l.Capacity, l.Debt(), l.Window.Microseconds(), l.MinInterval.Microseconds(), counts)
	default:
		permits, period := algorithm.NewTokenBucket(l).Rate()
		return join("t", l.Capacity, l.Debt(), permits, period)
	}
}

// describeAt is the description with, for a calendar, the bounds of the window that
// holds t and of its neighbours.
func (l *limit) describeAt(t stint.Instant) string {
	if l.calendar == nil {
		return l.description
	}
	start, end := l.calendar.Window(t)
	before, _ := l.calendar.Window(start - 1)
	_, after := l.calendar.Window(end)
	return join(l.description, int64(before), int64(start), int64(end), int64(after))
}

func join(first string, rest ...int64) string {
	text := []byte(first)
	for _, n := range rest {
		text = append(text, ':')
		text = strconv.AppendInt(text, n, 10)
	}
	return string(text)
}
