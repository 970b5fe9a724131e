package storetest

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// A change is one row of the table: what an old limit recorded, and what the new
// one of the same name makes of it.
type change struct {
	name    string
	old     stint.Limit
	do      func(b *bench, old *stint.Policy) // from noon on
	at      time.Duration                     // after noon
	changed stint.Limit
	left    int64         // what a peek finds
	full    time.Duration // ResetAfter of the peek
	retry   time.Duration // RetryAfter of a take of one; 0: admitted
	delay   time.Duration // Delay of it
}

func takes(permits int64) func(*bench, *stint.Policy) {
	return func(b *bench, old *stint.Policy) { b.take("k", old, permits) }
}

// then is one step after another, so long later.
func then(first func(*bench, *stint.Policy), at time.Duration, second func(*bench, *stint.Policy)) func(*bench, *stint.Policy) {
	return func(b *bench, old *stint.Policy) {
		first(b, old)
		b.at(at)
		second(b, old)
	}
}

func charges(permits int64) func(*bench, *stint.Policy) {
	return func(b *bench, old *stint.Policy) { b.do(stint.Settle, "k", old, permits) }
}

const ms = time.Millisecond

func bucketChanges() []change {
	tokens := func(c, r int64) stint.Limit { return stint.TokenBucket(c, stint.PerSecond(r)) }
	leaks := func(c, r int64) stint.Limit { return stint.LeakyBucket(c, stint.PerSecond(r)) }
	return []change{
		{
			name: "token bucket/smaller: at most the new capacity",
			old:  tokens(10, 1), do: takes(4), at: 500 * ms, changed: tokens(5, 1), left: 5,
		},
		{
			name: "token bucket/larger and faster: the whole permits held",
			old:  tokens(10, 1), do: takes(4), at: 500 * ms, changed: tokens(20, 2), left: 6, full: 7 * time.Second,
		},
		{
			name: "token bucket/faster: the fraction is not held",
			old:  tokens(10, 1), do: takes(10), at: 500 * ms, changed: tokens(10, 3),
			full: 3_333_334 * time.Microsecond, retry: 333_334 * time.Microsecond,
		},
		{
			name: "token bucket/the same rate in other words is no change",
			old:  tokens(10, 1), do: takes(10), at: 500 * ms, changed: stint.TokenBucket(10, stint.Per(2, 2*time.Second)),
			full: 9500 * ms, retry: 500 * ms,
		},
		{
			name: "token bucket/another max_debt is no change",
			old:  tokens(10, 1), do: takes(10), at: 500 * ms, changed: tokens(10, 1).WithMaxDebt(3),
			full: 9500 * ms, retry: 500 * ms,
		},
		{
			name: "token bucket/debt: whole permits, rounded down",
			old:  tokens(2, 1), do: charges(4), at: 500 * ms, changed: tokens(10, 1),
			full: 12 * time.Second, retry: 3 * time.Second,
		},
		{
			name: "token bucket/full under the old limit is untouched",
			old:  tokens(2, 1), do: takes(2), at: 2 * time.Second, changed: tokens(100, 1), left: 100,
		},
		{
			name: "token bucket/not quite full under the old limit",
			old:  tokens(2, 1), do: takes(2), at: 2*time.Second - time.Microsecond, changed: tokens(100, 1), left: 1, full: 99 * time.Second,
		},
		{
			name: "token bucket/no further than ten years from full",
			old:  tokens(stint.MaxPermits, stint.MaxPermits), do: charges(2 * stint.MaxPermits), at: 0,
			changed: stint.TokenBucket(2, stint.Every(time.Hour)), full: stint.MaxDrain, retry: stint.MaxDrain - time.Hour,
		},
		{
			name: "leaky bucket/faster: the permits queued",
			old:  leaks(10, 1), do: takes(5), at: 0, changed: leaks(10, 2), left: 5, full: 2500 * ms, delay: 2500 * ms,
		},
		{
			name: "leaky bucket/slower: the permits queued, rounded up",
			old:  leaks(10, 2), do: takes(5), at: 250 * ms, changed: leaks(10, 1), left: 5, full: 5 * time.Second, delay: 5 * time.Second,
		},
		{
			name: "leaky bucket/smaller: more is queued than fits",
			old:  leaks(10, 1), do: takes(5), at: 0, changed: leaks(3, 1), full: 5 * time.Second, retry: 3 * time.Second,
		},
		{
			name: "leaky bucket/drained under the old limit is untouched",
			old:  leaks(10, 1), do: takes(5), at: 5 * time.Second, changed: leaks(2, 1), left: 2,
		},
	}
}

func windowChanges() []change {
	fixed := stint.FixedWindow
	log := stint.SlidingWindowLog
	counter := stint.SlidingWindowCounter
	spaced := func(l stint.Limit, d time.Duration) stint.Limit { return l.WithMinInterval(d) }
	return []change{
		{
			name: "fixed window/larger limit: its count",
			old:  fixed(5, time.Minute), do: takes(3), at: 20 * time.Second, changed: fixed(10, time.Minute), left: 7, full: 40 * time.Second,
		},
		{
			name: "fixed window/limit below the count",
			old:  fixed(5, time.Minute), do: takes(3), at: 20 * time.Second, changed: fixed(2, time.Minute), full: 40 * time.Second, retry: 40 * time.Second,
		},
		{
			name: "fixed window/longer: the window under way",
			old:  fixed(5, time.Minute), do: takes(3), at: 20 * time.Second, changed: fixed(6, time.Hour), left: 3, full: 40 * time.Second,
		},
		{
			name: "fixed window/shorter: the window under way",
			old:  fixed(5, time.Hour), do: takes(3), at: 20 * time.Second, changed: fixed(3, time.Second), full: time.Hour - 20*time.Second,
			retry: time.Hour - 20*time.Second,
		},
		{
			name: "fixed window/the next has the new length",
			old:  fixed(5, time.Minute), do: takes(3), at: time.Minute, changed: fixed(5, time.Hour), left: 5,
		},
		{
			name: "fixed window/the next has the new length, the old limit reads it",
			old:  fixed(5, time.Minute), do: then(takes(5), time.Minute, func(b *bench, _ *stint.Policy) {
				b.take("k", policyOf(b.t, fixed(5, time.Hour)), 4)
			}), at: 2 * time.Minute, changed: fixed(5, time.Minute), left: 1, full: 58 * time.Minute,
		},
		{
			name: "fixed window/all given back: untouched",
			old:  fixed(5, time.Minute), do: then(takes(3), time.Second, charges(-3)), at: 20 * time.Second, changed: fixed(5, time.Hour), left: 5,
		},
		{
			name: "fixed window/a calendar window with the same edges",
			old:  fixed(5, time.Hour), do: takes(3), at: 20 * time.Minute, changed: stint.CalendarWindow(4, stint.CalendarHour, ""), left: 1, full: 40 * time.Minute,
		},
		{
			name: "fixed window/a day of another zone: the day under way",
			old:  stint.CalendarWindow(5, stint.CalendarDay, ""), do: takes(3), at: 0,
			changed: stint.CalendarWindow(5, stint.CalendarDay, "Asia/Kathmandu"), left: 2, full: 12 * time.Hour,
		},
		{
			name: "fixed window/a week of the calendar: the day under way",
			old:  stint.CalendarWindow(5, stint.CalendarDay, "Europe/Berlin"), do: takes(3), at: 0,
			changed: stint.CalendarWindow(5, stint.CalendarWeek, "Europe/Berlin"), left: 2, full: 11 * time.Hour,
		},
		{
			name: "log/longer window: its entries",
			old:  log(5, 10*time.Second), do: takes(3), at: 5 * time.Second, changed: log(5, 20*time.Second), left: 2, full: 15 * time.Second,
		},
		{
			name: "log/longer window: what the old one dropped stays dropped",
			old:  log(5, time.Second), do: then(takes(3), 500*ms, takes(1)), at: 1200 * ms, changed: log(5, 10*time.Second), left: 4, full: 9300 * ms,
		},
		{
			name: "log/longer window: nothing counted under the old one is untouched",
			old:  log(5, time.Second), do: takes(3), at: time.Second, changed: log(5, 10*time.Second), left: 5,
		},
		{
			name: "log/shorter window",
			old:  log(5, 10*time.Second), do: takes(5), at: time.Second, changed: log(5, time.Second), left: 5,
		},
		{
			name: "log/lower limit",
			old:  log(5, 10*time.Second), do: then(takes(2), time.Second, takes(2)), at: 2 * time.Second, changed: log(2, 10*time.Second),
			full: 9 * time.Second, retry: 9 * time.Second,
		},
		{
			name: "log/min_interval added: counts from the last request",
			old:  log(5, 10*time.Second), do: takes(1), at: time.Second, changed: spaced(log(5, 10*time.Second), 15*time.Second),
			left: 4, full: 14 * time.Second, retry: 14 * time.Second,
		},
		{
			name: "log/min_interval removed",
			old:  spaced(log(5, 10*time.Second), 15*time.Second), do: takes(1), at: time.Second, changed: log(5, 10*time.Second), left: 4, full: 9 * time.Second,
		},
		{
			name: "counter/larger limit: its counts",
			old:  counter(5, time.Minute), do: takes(3), at: 20 * time.Second, changed: counter(10, time.Minute), left: 7, full: 100 * time.Second,
		},
		{
			name: "counter/limit below the count: from the closed form",
			old:  counter(5, time.Minute), do: takes(4), at: 20 * time.Second, changed: counter(2, time.Minute),
			full: 100 * time.Second, retry: 85 * time.Second,
		},
		{
			name: "counter/longer: the estimate is counted in the current window",
			old:  counter(5, time.Minute), do: takes(3), at: 20 * time.Second, changed: counter(5, 2*time.Minute), left: 2, full: 220 * time.Second,
		},
		{
			name: "counter/shorter: the estimate, rounded up",
			old:  counter(5, time.Minute), do: then(takes(5), 75*time.Second, takes(1)), at: 75 * time.Second, changed: counter(5, 10*time.Second),
			full: 15 * time.Second, retry: 7 * time.Second,
		},
		{
			name: "counter/nothing left under the old limit is untouched",
			old:  counter(5, time.Minute), do: takes(3), at: 2 * time.Minute, changed: counter(5, time.Hour), left: 5,
		},
		{
			name: "another algorithm starts empty",
			old:  fixed(5, time.Minute), do: takes(5), at: 0, changed: counter(5, time.Minute), left: 5,
		},
	}
}

// testChangedLimits is check 5 of ALGORITHMS.md: "the stored state is brought to
// now by the limit that wrote it (worthless there = untouched), then taken over by
// the limit that reads it".
func testChangedLimits(t *testing.T, newStore NewStore) {
	for _, row := range append(bucketChanges(), windowChanges()...) {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, newStore)
			changed := policyOf(t, row.changed)
			row.do(b, policyOf(t, row.old))
			b.at(row.at)
			peek := b.do(stint.Peek, "k", changed, 1)
			if peek.Remaining != row.left || peek.ResetAfter != row.full {
				t.Errorf("%s became %s: remaining %d, reset after %s; expected %d, %s", describeLimit(row.old), describeLimit(row.changed),
					peek.Remaining, formatWait(peek.ResetAfter), row.left, formatWait(row.full))
			}
			d := b.take("k", changed, 1)
			if d.Allowed != (row.retry == 0) || d.RetryAfter != row.retry || d.Delay != row.delay {
				t.Errorf("%s became %s: take allowed %t, retry after %s, delay %s; expected %t, %s, %s", describeLimit(row.old), describeLimit(row.changed),
					d.Allowed, formatWait(d.RetryAfter), formatWait(d.Delay), row.retry == 0, formatWait(row.retry), formatWait(row.delay))
			}
		})
	}
}

// testLimitsInTurn is a rolling deployment: two processes decide in turn for one client,
// one by the old limit and one by the changed one, "and admit no more than the larger
// limit in each window" (ALGORITHMS.md, check 5).
func testLimitsInTurn(t *testing.T, newStore NewStore) {
	day := func(limit int64, zone string) stint.Limit {
		return stint.CalendarWindow(limit, stint.CalendarDay, zone)
	}
	for _, row := range []struct {
		name          string
		one, other    stint.Limit
		window, pause time.Duration // every such span from noon on is looked at; between takes
	}{
		{"fixed window", stint.FixedWindow(5, time.Hour), stint.FixedWindow(5, 2*time.Hour), time.Hour, 36 * time.Second},
		{"fixed window/another limit", stint.FixedWindow(4, time.Hour), stint.FixedWindow(5, 3*time.Hour), time.Hour, 36 * time.Second},
		{"fixed window/zones", day(5, ""), day(5, "Asia/Kathmandu"), 6 * time.Hour, 5 * time.Minute},
		{"fixed window/calendar", day(5, ""), stint.CalendarWindow(5, stint.CalendarMonth, ""), 12 * time.Hour, 5 * time.Minute},
		{"counter", stint.SlidingWindowCounter(5, time.Hour), stint.SlidingWindowCounter(5, 2*time.Hour), time.Hour, 36 * time.Second},
		{"counter/another limit", stint.SlidingWindowCounter(5, time.Hour), stint.SlidingWindowCounter(3, time.Minute), time.Minute, 7 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, newStore)
			policies := [...]*stint.Policy{policyOf(t, row.one), policyOf(t, row.other)}
			admitted := map[int]int64{}
			for i := range 200 {
				at := time.Duration(i) * row.pause
				b.at(at)
				if b.take("k", policies[i%2], 1).Allowed {
					admitted[int(at/row.window)]++
				}
			}
			for window, n := range admitted {
				if most := max(row.one.Capacity, row.other.Capacity); n > most {
					t.Errorf("%d admitted in span %d of %s, at most %d are right", n, window, row.window, most)
				}
			}
		})
	}
}
