package algorithm

import (
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// calendar divides time into units of the calendar in one zone. A unit starts at the first instant
// at which the zone's wall clock reaches or passes the unit's start: an hour that the zone repeats
// is one window, one that it skips is none. Minutes are the exception, since a repeated one comes
// an hour later: they follow the offset in force.
type calendar struct {
	unit stint.Calendar
	zone *time.Location
	// the window used last: nearly always the next one too
	last atomic.Pointer[window]
}

// A window is [start, end).
type window struct{ start, end stint.Instant }

// holds reports whether an instant is in the window.
func (w *window) holds(t stint.Instant) bool { return w.start <= t && t < w.end }

// newCalendar divides time by a unit in a zone.
func newCalendar(unit stint.Calendar, zone string) *calendar {
	location, err := time.LoadLocation(zone)
	if err != nil {
		location = time.UTC // a valid limit names a zone that loads
	}
	return &calendar{unit: unit, zone: location}
}

// window returns the window that holds t.
func (c *calendar) window(t stint.Instant) (start, end stint.Instant) {
	if w := c.last.Load(); w != nil && w.holds(t) {
		return w.start, w.end
	}
	w := c.find(t)
	c.last.Store(&w)
	return w.start, w.end
}

// find computes the window that holds t.
func (c *calendar) find(t stint.Instant) window {
	at := time.UnixMicro(int64(t)).In(c.zone)
	if c.unit == stint.CalendarMinute {
		_, offset := at.Zone()
		shift := stint.Instant(offset) * second
		start := t - (t+shift+day)%minute // a day later, since the remainder of a time before 1970 is negative
		return window{start, start + minute}
	}
	// The wall clock is written as a UTC time of the same digits, on which calendar
	// arithmetic has no gaps.
	wall := c.floor(wallOf(at))
	w := window{c.first(wall), c.first(c.next(wall))}
	for t >= w.end { // the wall clock was set back across the unit's start
		wall = c.next(wall)
		w = window{w.end, c.first(c.next(wall))}
	}
	return w
}

const (
	second = stint.Instant(time.Second / time.Microsecond)
	minute = 60 * second
	day    = 24 * 60 * minute
)

// wallOf is the time with the same date and clock, in UTC.
func wallOf(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// floor is the start of the wall clock's unit.
func (c *calendar) floor(wall time.Time) time.Time {
	year, month, day := wall.Date()
	hour := 0
	switch c.unit {
	case stint.CalendarHour:
		hour = wall.Hour()
	case stint.CalendarWeek: // weeks start on Monday (ISO 8601)
		day -= (int(wall.Weekday()) + 6) % 7
	case stint.CalendarMonth:
		day = 1
	case stint.CalendarYear:
		month, day = time.January, 1
	case 0, stint.CalendarMinute, stint.CalendarDay:
	}
	return time.Date(year, month, day, hour, 0, 0, 0, time.UTC)
}

// next is the start of the unit after the one that starts at wall.
func (c *calendar) next(wall time.Time) time.Time {
	switch c.unit {
	case stint.CalendarHour:
		return wall.Add(time.Hour)
	case stint.CalendarWeek:
		return wall.AddDate(0, 0, 7)
	case stint.CalendarMonth:
		return wall.AddDate(0, 1, 0)
	case stint.CalendarYear:
		return wall.AddDate(1, 0, 0)
	default:
		return wall.AddDate(0, 0, 1)
	}
}

// first is the first instant at which the zone's wall clock reads wall or later.
func (c *calendar) first(wall time.Time) stint.Instant {
	// Two days before, no zone on earth has reached it yet. From there, walk from
	// one change of the offset to the next.
	at := wall.Add(-48 * time.Hour).In(c.zone)
	for {
		_, offset := at.Zone()
		reached := wall.Add(-time.Duration(offset) * time.Second)
		_, end := at.ZoneBounds()
		if !end.IsZero() && !end.After(at) {
			end = at.AddDate(0, 0, 1) // on the last day of leap years after 2037, ZoneBounds ends where it starts
		}
		if end.IsZero() || reached.Before(end) {
			if reached.Before(at) {
				reached = at // the change of the offset jumped over it
			}
			return stint.Instant(reached.UnixMicro())
		}
		at = end
	}
}
