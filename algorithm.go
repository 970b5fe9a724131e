package stint

import (
	"strings"
	"time"
)

// An Algorithm names one of the five ways to count. The zero value is not an
// algorithm.
type Algorithm uint8

// The algorithms, in the order in which the documentation lists them.
const (
	// AlgorithmTokenBucket fills continuously and pays for bursts from what it holds.
	AlgorithmTokenBucket Algorithm = iota + 1
	// AlgorithmLeakyBucket queues requests and lets them out evenly.
	AlgorithmLeakyBucket
	// AlgorithmFixedWindow counts per window of the clock or the calendar.
	AlgorithmFixedWindow
	// AlgorithmSlidingWindowLog remembers every admission and is exact over every span.
	AlgorithmSlidingWindowLog
	// AlgorithmSlidingWindowCounter estimates a sliding window from two counters.
	AlgorithmSlidingWindowCounter
)

var algorithmNames = [...]string{
	AlgorithmTokenBucket:          "TOKEN_BUCKET",
	AlgorithmLeakyBucket:          "LEAKY_BUCKET",
	AlgorithmFixedWindow:          "FIXED_WINDOW",
	AlgorithmSlidingWindowLog:     "SLIDING_WINDOW_LOG",
	AlgorithmSlidingWindowCounter: "SLIDING_WINDOW_COUNTER",
}

// Algorithms lists the five algorithms.
func Algorithms() []Algorithm {
	return []Algorithm{
		AlgorithmTokenBucket, AlgorithmLeakyBucket, AlgorithmFixedWindow,
		AlgorithmSlidingWindowLog, AlgorithmSlidingWindowCounter,
	}
}

// String is the canonical name, such as TOKEN_BUCKET.
func (a Algorithm) String() string {
	if a == 0 || int(a) >= len(algorithmNames) {
		return "UNKNOWN"
	}
	return algorithmNames[a]
}

// ParseAlgorithm reads a canonical name in any case. SLIDING_WINDOW is an alias
// of SLIDING_WINDOW_LOG.
func ParseAlgorithm(name string) (Algorithm, error) {
	upper := strings.ToUpper(name)
	if upper == "SLIDING_WINDOW" {
		return AlgorithmSlidingWindowLog, nil
	}
	for _, a := range Algorithms() {
		if algorithmNames[a] == upper {
			return a, nil
		}
	}
	return 0, Invalid("algorithm", name, "one of "+strings.Join(algorithmNames[1:], ", "))
}

// A Calendar is a unit of the calendar that a fixed window can follow. The zero
// value is no calendar: the window is a plain duration.
type Calendar uint8

// The calendar's units. A week starts on Monday.
const (
	CalendarNone Calendar = iota
	CalendarMinute
	CalendarHour
	CalendarDay
	CalendarWeek
	CalendarMonth
	CalendarYear
)

var calendarNames = [...]string{"none", "minute", "hour", "day", "week", "month", "year"}

// String is the unit's name in lower case.
func (c Calendar) String() string {
	if int(c) >= len(calendarNames) {
		return "unknown"
	}
	return calendarNames[c]
}

// ParseCalendar reads the name of a unit: minute, hour, day, week, month or
// year.
func ParseCalendar(name string) (Calendar, error) {
	for i, n := range calendarNames[1:] {
		if n == name {
			return Calendar(i + 1), nil
		}
	}
	return CalendarNone, Invalid("calendar", name, "one of "+strings.Join(calendarNames[1:], ", "))
}

// Length is how long a window of the unit lasts: nominally, where a month has 30 days and a year 365; and at the longest,
// with what a zone's clocks may be set back within it. CalendarNone has none.
func (c Calendar) Length() (nominal, longest time.Duration) {
	const day = 24 * time.Hour
	switch c {
	case CalendarMinute:
		return time.Minute, time.Minute
	case CalendarHour:
		return time.Hour, time.Hour + day
	case CalendarDay:
		return day, 2*day + time.Hour
	case CalendarWeek:
		return 7 * day, 9 * day
	case CalendarMonth:
		return 30 * day, 33 * day
	case CalendarYear:
		return 365 * day, 368 * day
	default:
		return 0, 0
	}
}
