package oracle

import (
	"time"

	"github.com/stint-go/stint"
)

const (
	second = stint.Instant(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
)

// calendarWindows finds the window of an instant. For a calendar it looks at the zone's
// wall time, instant by instant, and remembers what it found.
type calendarWindows struct {
	zones      map[string]*time.Location
	firstShown map[wallTime]stint.Instant // what firstInstant has found
}

// A wallTime is what a clock on the wall of a zone shows: the microseconds since
// the epoch after which a clock in UTC shows the same.
type wallTime struct {
	zone string
	time stint.Instant
}

// newCalendarWindows has found nothing yet.
func newCalendarWindows() *calendarWindows {
	return &calendarWindows{zones: map[string]*time.Location{}, firstShown: map[wallTime]stint.Instant{}}
}

// window returns the window of an instant: from start, up to but without end.
func (w *calendarWindows) window(limit *stint.Limit, at stint.Instant) (start, end stint.Instant) {
	zone := limit.TimeZone
	switch limit.Calendar {
	case 0:
		if start = at; !limit.FirstRequest {
			start -= at % micros(limit.Window)
		}
		return start, start + micros(limit.Window)
	case stint.CalendarMinute:
		start = at - (w.wallTimeAt(zone, at)+24*hour)%minute // west of Greenwich 1970 begins in 1969
		return start, start + minute
	case stint.CalendarHour, stint.CalendarDay, stint.CalendarWeek, stint.CalendarMonth, stint.CalendarYear:
	}
	unit := unitStart(limit.Calendar, w.wallTimeAt(zone, at).Time())
	for {
		next := unitNext(limit.Calendar, unit)
		end = w.firstInstant(zone, next)
		if end > at {
			return w.firstInstant(zone, unit), end
		}
		// A clock that was set back shows a unit again whose successor has begun.
		unit = next
	}
}

// wallTimeAt is what the zone's clocks show at an instant.
func (w *calendarWindows) wallTimeAt(zone string, at stint.Instant) stint.Instant {
	location, known := w.zones[zone]
	if !known {
		location, _ = time.LoadLocation(zone) // the limit's validation has loaded it
		w.zones[zone] = location
	}
	_, offset := at.Time().In(location).Zone()
	return at + stint.Instant(offset)*second
}

// firstInstant is the first instant at which the zone's clocks show the wall time or a later one. A
// wall time that a step forward skips begins with the step. It searches minute by minute and then back
// by the second, as offsets of old zones have seconds.
func (w *calendarWindows) firstInstant(zone string, wall time.Time) stint.Instant {
	key := wallTime{zone, stint.Instant(wall.UnixMicro())}
	if at, known := w.firstShown[key]; known {
		return at
	}
	// Begin where the zone's clocks cannot show it yet: with the farthest ahead that
	// they are about that time.
	ahead := -24 * hour
	for at := key.time - 30*hour; at <= key.time+30*hour; at += hour {
		ahead = max(ahead, w.wallTimeAt(zone, at)-at)
	}
	at := key.time - ahead
	for w.wallTimeAt(zone, at) < key.time {
		at += minute
	}
	for w.wallTimeAt(zone, at-second) >= key.time && at > key.time-ahead {
		at -= second
	}
	w.firstShown[key] = at
	return at
}

// unitStart is the start of the unit that a wall time lies in.
func unitStart(unit stint.Calendar, wall time.Time) time.Time {
	year, month, day := wall.Date()
	switch unit {
	case stint.CalendarHour:
		return time.Date(year, month, day, wall.Hour(), 0, 0, 0, time.UTC)
	case stint.CalendarWeek:
		for wall.Weekday() != time.Monday {
			wall = wall.AddDate(0, 0, -1)
		}
		year, month, day = wall.Date()
	case stint.CalendarMonth:
		day = 1
	case stint.CalendarYear:
		month, day = time.January, 1
	case 0, stint.CalendarMinute, stint.CalendarDay:
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// unitNext is the start of the following unit. A start plus the longest length of a unit lies in
// it: 1 February + 31 days is in March.
func unitNext(unit stint.Calendar, start time.Time) time.Time {
	days := map[stint.Calendar]int{
		stint.CalendarDay: 1, stint.CalendarWeek: 7, stint.CalendarMonth: 31, stint.CalendarYear: 366,
	}[unit]
	if unit == stint.CalendarHour {
		return start.Add(time.Hour)
	}
	return unitStart(unit, start.AddDate(0, 0, days))
}
