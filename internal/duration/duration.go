// Package duration reads and writes durations with days.
package duration

import (
	"strconv"
	"strings"
	"time"
)

// Parse reads a duration as [time.ParseDuration] does, and days, d, before the other units: 1d12h is 36h. A day is 24
// hours.
func Parse(text string) (d time.Duration, ok bool) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		return d, err == nil
	}
	// Days come first, so what precedes the unit is one number; hours carry its
	// fraction exactly as far as time.ParseDuration does.
	negative := strings.HasPrefix(days, "-")
	whole, err := time.ParseDuration(days + "h")
	if err != nil || strings.Trim(days, "+-.0123456789") != "" || whole > longest/24 || whole < -longest/24 {
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

const longest = time.Duration(1<<63 - 1)

// Format writes a duration as a number of the largest unit that expresses it exactly, such as 36h or 90s, as [Parse]
// reads it.
func Format(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	for _, unit := range []struct {
		name string
		size time.Duration
	}{
		{"d", 24 * time.Hour},
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
