// Package notation reads what documents, flags and requests write of limits: algorithms, durations, rates and units of
// the calendar. Errors wrap [stint.ErrInvalid].
package notation

import (
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/duration"
)

// Algorithms lists the five algorithms, by which takes are decided.
func Algorithms() []stint.Algorithm {
	return []stint.Algorithm{
		stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket, stint.AlgorithmFixedWindow,
		stint.AlgorithmSlidingWindowLog, stint.AlgorithmSlidingWindowCounter,
	}
}

// ParseAlgorithm reads the canonical name of one of the five in any case. SLIDING_WINDOW is an alias
// of SLIDING_WINDOW_LOG.
func ParseAlgorithm(name string) (stint.Algorithm, error) {
	upper := strings.ToUpper(name)
	if upper == "SLIDING_WINDOW" {
		return stint.AlgorithmSlidingWindowLog, nil
	}
	var names []string
	for _, a := range Algorithms() {
		if a.String() == upper {
			return a, nil
		}
		names = append(names, a.String())
	}
	return 0, stint.Invalid("algorithm", name, "one of "+strings.Join(names, ", "))
}

// ParseCalendar reads the name of a unit: minute, hour, day, week, month or
// year.
func ParseCalendar(name string) (stint.Calendar, error) {
	var names []string
	for c := stint.CalendarMinute; c <= stint.CalendarYear; c++ {
		if c.String() == name {
			return c, nil
		}
		names = append(names, c.String())
	}
	return 0, stint.Invalid("calendar", name, "one of "+strings.Join(names, ", "))
}

// ParseDuration reads a duration as [time.ParseDuration] does, and the unit d of
// 24 hours besides: 1d, 1d12h, 1.5d.
func ParseDuration(text string) (time.Duration, error) {
	if d, ok := duration.Parse(text); ok {
		return d, nil
	}
	const allowed = "a number with a unit (us, ms, s, m, h, d), such as 500ms, 90s or 1d12h"
	return 0, stint.Invalid("duration", text, allowed+unitless(text))
}

// unitless asks which unit a number lacks; "" if the text is no number, or too long to be meant as one.
func unitless(text string) string {
	if n, err := strconv.ParseUint(text, 10, 32); err != nil || n == 0 {
		return ""
	}
	return " (" + text + " has no unit; did you mean " + text + "ms or " + text + "s?)"
}

// ParseRate reads N/DURATION, where a duration of one unit may leave out its
// number: 10/s, 2/3s, 1000/24h.
func ParseRate(text string) (stint.Rate, error) {
	count, period, found := strings.Cut(text, "/")
	if period != "" && !strings.Contains(".0123456789", period[:1]) {
		period = "1" + period
	}
	n, err := strconv.ParseInt(count, 10, 64)
	d, ok := duration.Parse(period)
	if !found || err != nil || !ok {
		return stint.Rate{}, stint.Invalid("rate", text, "N/DURATION, such as 10/s, 2/3s or 1000/24h"+unitless(period))
	}
	return stint.Per(n, d), nil
}
