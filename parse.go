package stint

import (
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// ParseDuration reads a duration as [time.ParseDuration] does, and the unit d of
// 24 hours besides: 1d, 1d12h, 1.5d.
func ParseDuration(text string) (time.Duration, error) {
	if d, ok := parseDuration(text); ok {
		return d, nil
	}
	const allowed = "a number with a unit (us, ms, s, m, h, d), such as 500ms, 90s or 1d12h"
	return 0, Invalid("duration", text, allowed+unitless(text))
}

// unitless asks which unit a number lacks; "" if the text is no number, or too long to be meant as one.
func unitless(text string) string {
	if n, err := strconv.ParseUint(text, 10, 32); err != nil || n == 0 {
		return ""
	}
	return " (" + text + " has no unit; did you mean " + text + "ms or " + text + "s?)"
}

// parseDuration is time.ParseDuration with days, d, before the other units: 1d12h is 36h. A day is
// 24 hours.
func parseDuration(text string) (d time.Duration, ok bool) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		return d, err == nil
	}
	// Days come first, so what precedes the unit is one number; hours carry its
	// fraction exactly as far as time.ParseDuration does.
	negative := strings.HasPrefix(days, "-")
	whole, err := time.ParseDuration(days + "h")
	if err != nil || strings.Trim(days, "+-.0123456789") != "" || whole > maxDuration/24 || whole < -maxDuration/24 {
		return 0, false
	}
	whole *= 24
	if rest == "" {
		return whole, true
	}
	if strings.ContainsAny(rest, "+-") {
		return 0, false
	}
	part, err := time.ParseDuration(rest)
	if err != nil {
		return 0, false
	}
	if negative {
		part = -part
	}
	sum := whole + part
	if (sum < whole) != (part < 0) {
		return 0, false
	}
	return sum, true
}

const maxDuration = time.Duration(1<<63 - 1)

// FormatDuration writes a duration as a number of the largest unit that expresses it
// exactly, such as 36h or 90s, as [ParseDuration] reads it.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	for _, unit := range []struct {
		name string
		size time.Duration
	}{
		{"d", day},
		{"h", time.Hour},
		{"m", time.Minute},
		{"s", time.Second},
		{"ms", time.Millisecond},
		{"us", time.Microsecond},
	} {
		if d%unit.size == 0 {
			return strconv.FormatInt(int64(d/unit.size), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// ParseRate reads N/DURATION, where a duration of one unit may leave out its
// number: 10/s, 2/3s, 1000/24h.
func ParseRate(text string) (Rate, error) {
	count, period, found := strings.Cut(text, "/")
	if period != "" && (period[0] < '0' || period[0] > '9') {
		period = "1" + period
	}
	n, err := strconv.ParseInt(count, 10, 64)
	d, ok := parseDuration(period)
	if !found || err != nil || !ok {
		return Rate{}, Invalid("rate", text, "N/DURATION, such as 10/s, 2/3s or 1000/24h"+unitless(period))
	}
	return Per(n, d), nil
}
