package algorithm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/oracle"
)

// zones has those with the oddest changes of the offset: by half an hour, at
// midnight, a minute after it, by a whole day.
var zones = []string{
	"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana",
	"America/Sao_Paulo", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia",
}

// Calendar windows: minute, hour, day, week from Monday, month and year, in a named
// time zone; a repeated local hour is one window (docs/internals/semantics.md, Fixed window).
func TestCalendarWindows(t *testing.T) {
	const (
		minute, hour, day = stint.CalendarMinute, stint.CalendarHour, stint.CalendarDay
		week, month, year = stint.CalendarWeek, stint.CalendarMonth, stint.CalendarYear
	)
	for _, c := range []struct {
		zone           string
		unit           stint.Calendar
		at, start, end string // UTC
	}{
		// The hour from 2 to 3 is skipped, the day has 23 hours.
		{"Europe/Berlin", day, "2026-03-29T12:00:00", "2026-03-28T23:00:00", "2026-03-29T22:00:00"},
		{"Europe/Berlin", hour, "2026-03-29T00:59:59", "2026-03-29T00:00:00", "2026-03-29T01:00:00"},
		{"Europe/Berlin", hour, "2026-03-29T01:00:00", "2026-03-29T01:00:00", "2026-03-29T02:00:00"},
		// The hour from 2 to 3 comes twice, the day has 25 hours.
		{"Europe/Berlin", day, "2026-10-25T00:30:00", "2026-10-24T22:00:00", "2026-10-25T23:00:00"},
		{"Europe/Berlin", hour, "2026-10-25T00:30:00", "2026-10-25T00:00:00", "2026-10-25T02:00:00"},
		{"Europe/Berlin", hour, "2026-10-25T01:30:00", "2026-10-25T00:00:00", "2026-10-25T02:00:00"},
		// A minute that comes again an hour later is another minute.
		{"Europe/Berlin", minute, "2026-10-25T00:30:30", "2026-10-25T00:30:00", "2026-10-25T00:31:00"},
		{"Europe/Berlin", minute, "2026-10-25T01:30:30", "2026-10-25T01:30:00", "2026-10-25T01:31:00"},
		// A machine may boot in 1970, when west of Greenwich it was 1969.
		{"America/New_York", minute, "1970-01-01T00:01:30", "1970-01-01T00:01:00", "1970-01-01T00:02:00"},
		{"Africa/Monrovia", minute, "1970-01-01T00:02:31", "1970-01-01T00:02:30", "1970-01-01T00:03:30"},
		{"Europe/Berlin", week, "2026-03-29T21:59:59", "2026-03-22T23:00:00", "2026-03-29T22:00:00"},
		{"Europe/Berlin", week, "2026-03-29T22:00:00", "2026-03-29T22:00:00", "2026-04-05T22:00:00"},
		{"Europe/Berlin", day, "2026-10-25T12:00:00", "2026-10-24T22:00:00", "2026-10-25T23:00:00"},
		{"Europe/Berlin", year, "2026-12-31T22:59:59", "2025-12-31T23:00:00", "2026-12-31T23:00:00"},
		{"Europe/Berlin", year, "2026-12-31T23:00:00", "2026-12-31T23:00:00", "2027-12-31T23:00:00"},
		{"Europe/Berlin", month, "2026-10-31T22:59:59", "2026-09-30T22:00:00", "2026-10-31T23:00:00"},

		{"America/New_York", day, "2026-03-08T12:00:00", "2026-03-08T05:00:00", "2026-03-09T04:00:00"},
		{"America/New_York", hour, "2026-03-08T07:10:00", "2026-03-08T07:00:00", "2026-03-08T08:00:00"},
		{"America/New_York", day, "2026-11-01T12:00:00", "2026-11-01T04:00:00", "2026-11-02T05:00:00"},
		{"America/New_York", hour, "2026-11-01T06:10:00", "2026-11-01T05:00:00", "2026-11-01T07:00:00"},
		{"America/New_York", month, "2026-03-31T12:00:00", "2026-03-01T05:00:00", "2026-04-01T04:00:00"},
		{"America/New_York", year, "2028-07-01T00:00:00", "2028-01-01T05:00:00", "2029-01-01T05:00:00"},

		// Half an hour: at 2:00 the clock goes back to 1:30, or on to 2:30.
		{"Australia/Lord_Howe", hour, "2026-04-04T15:10:00", "2026-04-04T14:00:00", "2026-04-04T15:30:00"},
		{"Australia/Lord_Howe", hour, "2026-04-04T15:30:00", "2026-04-04T15:30:00", "2026-04-04T16:30:00"},
		{"Australia/Lord_Howe", hour, "2026-10-03T15:45:00", "2026-10-03T15:30:00", "2026-10-03T16:00:00"},
		{"Australia/Lord_Howe", hour, "2026-10-03T15:29:59", "2026-10-03T14:30:00", "2026-10-03T15:30:00"},

		// At midnight on to 1:00: the day starts at 1:00.
		{"America/Havana", day, "2025-03-09T12:00:00", "2025-03-09T05:00:00", "2025-03-10T04:00:00"},
		{"America/Havana", hour, "2026-03-08T04:59:59", "2026-03-08T04:00:00", "2026-03-08T05:00:00"},
		{"America/Sao_Paulo", day, "2018-11-04T12:00:00", "2018-11-04T03:00:00", "2018-11-05T02:00:00"},
		// At 1:00 back to midnight, of the same day.
		{"America/Havana", day, "2025-11-02T05:00:00", "2025-11-02T04:00:00", "2025-11-03T05:00:00"},
		{"America/Havana", hour, "2025-11-02T05:00:00", "2025-11-02T04:00:00", "2025-11-02T06:00:00"},
		// At midnight back to 23:00: the new day is not reached before that hour is over.
		{"America/Sao_Paulo", day, "2018-02-18T02:30:00", "2018-02-17T02:00:00", "2018-02-18T03:00:00"},
		{"America/Sao_Paulo", hour, "2018-02-18T02:30:00", "2018-02-18T01:00:00", "2018-02-18T03:00:00"},
		// At 0:01 back to 23:01: the new day was reached, and goes on.
		{"America/St_Johns", day, "2010-11-07T02:29:59", "2010-11-06T02:30:00", "2010-11-07T02:30:00"},
		{"America/St_Johns", day, "2010-11-07T03:00:00", "2010-11-07T02:30:00", "2010-11-08T03:30:00"},
		{"America/St_Johns", hour, "2010-11-07T03:00:00", "2010-11-07T02:30:00", "2010-11-07T04:30:00"},
		{"America/St_Johns", day, "2010-03-14T03:45:00", "2010-03-14T03:30:00", "2010-03-15T02:30:00"},

		// A day that there never was.
		{"Pacific/Apia", day, "2011-12-30T09:59:59", "2011-12-29T10:00:00", "2011-12-30T10:00:00"},
		{"Pacific/Apia", day, "2011-12-30T10:00:00", "2011-12-30T10:00:00", "2011-12-31T10:00:00"},

		{"Asia/Kathmandu", hour, "2026-01-01T00:00:00", "2025-12-31T23:15:00", "2026-01-01T00:15:00"},
		{"Asia/Kathmandu", day, "2026-01-01T18:14:59", "2025-12-31T18:15:00", "2026-01-01T18:15:00"},

		{"", minute, "2026-05-05T10:20:30", "2026-05-05T10:20:00", "2026-05-05T10:21:00"},
		{"", week, "2026-05-03T10:20:30", "2026-04-27T00:00:00", "2026-05-04T00:00:00"},
		{"", week, "2026-01-01T00:00:00", "2025-12-29T00:00:00", "2026-01-05T00:00:00"},
		{"", month, "2028-02-29T00:00:00", "2028-02-01T00:00:00", "2028-03-01T00:00:00"},
		{"", month, "2100-02-28T00:00:00", "2100-02-01T00:00:00", "2100-03-01T00:00:00"},
		{"", year, "2028-12-31T00:00:00", "2028-01-01T00:00:00", "2029-01-01T00:00:00"},
		// The last day of a leap year for which zone files have no more than a rule.
		{"Europe/Berlin", day, "2076-12-31T12:00:00", "2076-12-30T23:00:00", "2076-12-31T23:00:00"},
		{"Europe/Berlin", year, "2076-12-31T12:00:00", "2075-12-31T23:00:00", "2076-12-31T23:00:00"},
	} {
		at, start, end := instant(t, c.at), instant(t, c.start), instant(t, c.end)
		if s, e := newCalendarWindow(c.unit, c.zone).Window(at); s != start || e != end {
			t.Errorf("the %v of %s in %q is %v to %v, want %s to %s", c.unit, c.at, c.zone, s.Time(), e.Time(), c.start, c.end)
		}
		for when, want := range map[stint.Instant]stint.Instant{at: end, start: end, end - 1: end, start - 1: start} {
			if got := modelledEnd(t, c.unit, c.zone, when); got != want {
				t.Errorf("to the model the %v of %v in %q ends at %v, want %v", c.unit, when, c.zone, got, want)
			}
		}
	}
}

// modelledEnd is when a window ends for the exact model.
func modelledEnd(t *testing.T, unit stint.Calendar, zone string, at stint.Instant) stint.Instant {
	t.Helper()
	policy := must.Get(stint.NewPolicy("", stint.CalendarWindow(1, unit, zone)))(t)
	d := oracle.New(0).Decide(stint.Op{Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}}, at).Decision
	return at.Add(d.ResetAfter)
}

func instant(t *testing.T, text string) stint.Instant {
	t.Helper()
	at := must.Get(time.Parse("2006-01-02T15:04:05", text))(t)
	return stint.Instant(at.UnixMicro())
}

func newCalendarWindow(unit stint.Calendar, zone string) *algorithm.Machine {
	m := algorithm.NewMachine(stint.CalendarWindow(1, unit, zone))
	return &m
}

// Windows tile time, each holds one reading of the calendar, and every instant of a
// window finds that window, whatever was asked before.
func TestCalendarWindowsTile(t *testing.T) {
	const year2060 = stint.Instant(2_840_140_800_000_000)
	for _, zone := range zones {
		location := must.Get(time.LoadLocation(zone))(t)
		for unit := stint.CalendarMinute; unit <= stint.CalendarYear; unit++ {
			t.Run(fmt.Sprintf("%v/%s", unit, zone), func(t *testing.T) {
				random := rand.New(rand.NewPCG(*seed, uint64(unit)))
				asked := newCalendarWindow(unit, zone)
				for range 60 {
					at := year2000 + stint.Instant(random.Int64N(int64(year2060-year2000)))
					if _, change := at.Time().In(location).ZoneBounds(); random.IntN(2) == 0 && !change.IsZero() {
						at = stint.Instant(change.UnixMicro()).Add(time.Duration(random.Int64N(int64(4*time.Hour))) - 2*time.Hour)
					}
					checkTile(t, random, asked, unit, location, at)
				}
				if t.Failed() {
					t.Logf("seed %d", *seed)
				}
			})
		}
	}
}

func checkTile(t *testing.T, random *rand.Rand, asked *algorithm.Machine, unit stint.Calendar, zone *time.Location, at stint.Instant) {
	t.Helper()
	start, end := newCalendarWindow(unit, zone.String()).Window(at)
	if at < start || at >= end {
		t.Fatalf("the window of %v is %v to %v", at.Time(), start.Time(), end.Time())
	}
	if next, _ := asked.Window(end); next != end {
		t.Errorf("after the window up to %v comes one from %v", end.Time(), next.Time())
	}
	if _, before := asked.Window(start - 1); before != start {
		t.Errorf("before the window from %v is one to %v", start.Time(), before.Time())
	}
	reading := readingOf(unit, zone, start)
	if before := readingOf(unit, zone, start-1); unit != stint.CalendarMinute && before >= reading {
		t.Errorf("the window from %v reads %s, the instant before %s", start.Time(), reading, before)
	}
	if after := readingOf(unit, zone, end); unit != stint.CalendarMinute && after <= reading {
		t.Errorf("the window to %v reads %s, the instant after %s", end.Time(), reading, after)
	}
	for range 6 {
		other := start + stint.Instant(random.Int64N(int64(end-start)))
		if s, e := asked.Window(other); s != start || e != end {
			t.Errorf("%v, of the window %v to %v, finds %v to %v", other.Time(), start.Time(), end.Time(), s.Time(), e.Time())
		}
		// The wall clock may have been set back across the start, never on to the next.
		if r := readingOf(unit, zone, other); r > reading {
			t.Errorf("the window from %v reads %s, within it %s", start.Time(), reading, r)
		}
	}
	if last := readingOf(unit, zone, end-1); last > reading {
		t.Errorf("the window to %v reads %s in the end, %s at the start", end.Time(), last, reading)
	}
}

// readingOf is what a calendar on the wall would say, in a form that sorts.
func readingOf(unit stint.Calendar, zone *time.Location, at stint.Instant) string {
	wall := at.Time().In(zone)
	switch unit {
	case stint.CalendarMinute:
		return wall.Format("2006-01-02 15:04")
	case stint.CalendarHour:
		return wall.Format("2006-01-02 15")
	case stint.CalendarWeek:
		year, week := wall.ISOWeek()
		return fmt.Sprintf("%d-W%02d", year, week)
	case stint.CalendarMonth:
		return wall.Format("2006-01")
	case stint.CalendarYear:
		return wall.Format("2006")
	default:
		return wall.Format("2006-01-02")
	}
}

// Two hosts whose data of a zone disagree share a state. Zones that differ by an hour, always or for half of the
// year, stand for that. Each window as it ran admits at most L, so a day of either admits at most 2L.
func TestCalendarWindowsOfTwoZones(t *testing.T) {
	const limit = 5
	for _, pair := range [][2]string{{"Europe/Berlin", "Africa/Algiers"}, {"Etc/GMT-1", "Etc/GMT-2"}, {"Asia/Kathmandu", "UTC"}} {
		t.Run(pair[0]+" and "+pair[1], func(t *testing.T) {
			random := rand.New(rand.NewPCG(*seed, 1))
			var hosts [2]algorithm.Machine
			var admitted [2]map[stint.Instant]int64 // by the start of the host's day
			for i, zone := range pair {
				hosts[i] = algorithm.NewMachine(stint.CalendarWindow(limit, stint.CalendarDay, zone))
				admitted[i] = map[stint.Instant]int64{}
			}
			var state algorithm.State
			var most int64
			for now := instant(t, "2026-01-01T00:00:00"); now < instant(t, "2027-01-01T00:00:00"); {
				now += stint.Instant(random.Int64N(int64(2 * time.Hour / time.Microsecond)))
				var out stint.Outcome
				hosts[random.IntN(2)].Apply(algorithm.Take, &state, now, 1, 0, &out)
				if !out.Allowed {
					continue
				}
				for i, host := range hosts {
					day, _ := host.Window(now)
					admitted[i][day]++
					if most = max(most, admitted[i][day]); admitted[i][day] > 2*limit {
						t.Fatalf("the day of %s from %v admits %d", pair[i], day, admitted[i][day])
					}
				}
			}
			if most <= limit {
				t.Errorf("no day admits more than %d: the zones agree, so this shows nothing", most)
			}
		})
	}
}
