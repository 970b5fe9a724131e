// Package spans says how long limits take to renew themselves.
package spans

import (
	"math/bits"
	"time"

	"github.com/stint-go/stint"
)

// Of is the time in which a valid limit renews itself: its window; nominally that of its calendar; or how long a bucket
// takes to fill or drain at its rate, rounded up to a microsecond.
func Of(l stint.Limit) time.Duration {
	switch {
	case l.IsBucket():
		// capacity x period / permits, which is less than ten years, though the product may not fit.
		hi, lo := bits.Mul64(uint64(l.Capacity), uint64(l.Rate.Period.Microseconds()))
		micros, rest := bits.Div64(hi, lo, uint64(l.Rate.Permits))
		return time.Duration(micros+min(rest, 1)) * time.Microsecond
	case l.Calendar != 0:
		nominal, _ := OfCalendar(l.Calendar)
		return nominal
	default:
		return l.Window
	}
}

// OfCalendar is how long a window of the unit lasts: nominally, where a month has 30 days and a year 365; and at the
// longest, with what a zone's clocks may be set back within it. No unit has none.
func OfCalendar(c stint.Calendar) (nominal, longest time.Duration) {
	const day = 24 * time.Hour
	switch c {
	case stint.CalendarMinute:
		return time.Minute, time.Minute
	case stint.CalendarHour:
		return time.Hour, time.Hour + day
	case stint.CalendarDay:
		return day, 2*day + time.Hour
	case stint.CalendarWeek:
		return 7 * day, 9 * day
	case stint.CalendarMonth:
		return 30 * day, 33 * day
	case stint.CalendarYear:
		return 365 * day, 368 * day
	default:
		return 0, 0
	}
}
