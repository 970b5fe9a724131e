package stint_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
)

// The ranges that ALGORITHMS demands ("Time and arithmetic") are accepted.
func TestLimitAcceptsItsRanges(t *testing.T) {
	const most = bounds.MaxPermits
	limits := map[string]stint.Limit{
		"least bucket":          stint.TokenBucket(1, stint.Per(1, time.Millisecond)),
		"largest bucket":        stint.TokenBucket(most, stint.Per(most, bounds.MaxPeriod)),
		"fastest bucket":        stint.LeakyBucket(most, stint.Per(most, time.Millisecond)),
		"slowest bucket":        stint.LeakyBucket(4, stint.Per(1, bounds.MaxPeriod)),
		"just under ten years":  stint.TokenBucket(3649, stint.PerDay(1)).WithMaxDebt(stint.NoDebt),
		"least window":          stint.FixedWindow(1, time.Millisecond),
		"largest window":        stint.SlidingWindowCounter(most, bounds.MaxPeriod),
		"log with all options":  stint.SlidingWindowLog(most, bounds.MaxPeriod).WithMinInterval(time.Second).CountingDenied(),
		"calendar":              stint.CalendarWindow(most, stint.CalendarYear, "America/New_York"),
		"from the first":        stint.FixedWindow(most, time.Second).FromFirst(),
		"of denials":            stint.FixedWindow(most, bounds.MaxPeriod).FromFirst().OfDenials(),
		"calendar in UTC":       stint.CalendarWindow(1, stint.CalendarMinute, ""),
		"least lease":           stint.TokenBucket(1, stint.PerSecond(1)).WithLease(1),
		"largest lease":         stint.FixedWindow(most, time.Second).WithLease(most),
		"lease by the rate":     stint.CalendarWindow(1, stint.CalendarDay, "").WithLease(stint.LeaseAuto),
		"named, with much debt": stint.FixedWindow(1, time.Second).Named("per second").WithMaxDebt(most),
	}
	for name, limit := range limits {
		if err := limit.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is outside is refused with the parameter, the value and the bound.
func TestLimitRefuses(t *testing.T) {
	bucket := stint.TokenBucket(100, stint.PerSecond(10))
	with := func(l stint.Limit, change func(*stint.Limit)) stint.Limit { change(&l); return l }
	tests := []struct {
		name  string
		limit stint.Limit
		says  []string
	}{
		{"no algorithm", stint.Limit{}, []string{"algorithm is 0", "one of the five"}},
		{"no capacity", stint.TokenBucket(0, stint.PerSecond(1)), []string{"capacity is 0", "1 to 1000000000"}},
		{"too large a limit", stint.FixedWindow(bounds.MaxPermits+1, time.Second), []string{"limit is 1000000001"}},
		{"no refill", stint.TokenBucket(1, stint.Rate{}), []string{"refill permits is 0", "refill period is 0s"}},
		{"no leak", stint.LeakyBucket(1, stint.PerSecond(0)), []string{"leak permits is 0"}},
		{"a number for a duration", stint.SlidingWindowLog(1, 60), []string{"window is 60ns", "1ms to 366d"}},
		{"part of a microsecond", stint.FixedWindow(1, time.Second+1), []string{"window is 1.000000001s", "whole microseconds"}},
		{"too long a window", stint.SlidingWindowCounter(1, bounds.MaxPeriod+time.Hour), []string{"window is"}},
		{"ten years to fill", stint.TokenBucket(3650, stint.PerDay(1)).WithMaxDebt(stint.NoDebt), []string{"(3650 + 0) x 1d / 1", "10 years", "2^53"}},
		{"ten years with debt", stint.TokenBucket(1825, stint.PerDay(1)), []string{"(1825 + 1825) x 1d / 1"}},
		{"negative debt", bucket.WithMaxDebt(-2), []string{"MaxDebt is -2"}},
		{"a window on a bucket", with(bucket, func(l *stint.Limit) { l.Window = time.Second }), []string{"window is 1s", "none with TOKEN_BUCKET"}},
		{"a rate on a window", with(stint.FixedWindow(1, time.Second), func(l *stint.Limit) { l.Rate = stint.PerSecond(1) }), []string{"rate is 1/s", "none with FIXED_WINDOW"}},
		{"a calendar on a log", with(stint.SlidingWindowLog(1, 0), func(l *stint.Limit) { l.Calendar = stint.CalendarDay }), []string{"calendar is day", "only with FIXED_WINDOW"}},
		{"a first request with a calendar", stint.CalendarWindow(1, stint.CalendarDay, "").FromFirst(), []string{`start is "first_request"`, "only with FIXED_WINDOW, and without calendar"}},
		{"a first request of a log", stint.SlidingWindowLog(1, time.Second).FromFirst(), []string{"only with FIXED_WINDOW"}},
		{"denials of windows of the clock", stint.FixedWindow(1, time.Second).OfDenials(), []string{"Denials is true", "only with FirstRequest"}},
		{"denials of a log", stint.SlidingWindowLog(1, time.Second).OfDenials(), []string{"Denials is true", "only with FirstRequest"}},
		{"denials with debt", stint.FixedWindow(1, time.Second).FromFirst().OfDenials().WithMaxDebt(1), []string{"MaxDebt is 1", "none where denials are counted"}},
		{"denials with a lease", stint.FixedWindow(1, time.Second).FromFirst().OfDenials().WithLease(1), []string{"lease is 1", "none where denials are counted"}},
		{"denials with a cost", stint.FixedWindow(1, time.Second).FromFirst().OfDenials().WithCost(1), []string{"cost is 1", "each counts 1"}},
		{
			"denials with all that they can't have", stint.FixedWindow(5, time.Second).OfDenials().WithMaxDebt(1).WithLease(1).WithCost(2),
			[]string{"only with FirstRequest", "MaxDebt is 1", "lease is 1; allowed: none where denials", "cost is 2; allowed: none where denials"},
		},
		{"a lease with a cost, of a log", stint.SlidingWindowLog(5, time.Second).WithLease(-2).WithCost(1), []string{"none with a cost", "only with TOKEN_BUCKET and FIXED_WINDOW", "auto, none, or 1 to the capacity"}},
		{"no algorithm, and a name", stint.Limit{Name: "é"}, []string{"algorithm is 0", `name is "é"`}},
		{"a window and a calendar", with(stint.FixedWindow(1, time.Second), func(l *stint.Limit) { l.Calendar = stint.CalendarDay }), []string{"none with calendar day"}},
		{"an unknown zone", stint.CalendarWindow(1, stint.CalendarDay, "Mars/Olympus"), []string{`TimeZone is "Mars/Olympus"`}},
		{"the machine's zone", stint.CalendarWindow(1, stint.CalendarDay, "Local"), []string{`TimeZone is "Local"`}},
		{"a folder of zones", stint.CalendarWindow(1, stint.CalendarDay, "Europe/"), []string{`TimeZone is "Europe/"`}},
		{"a zone outside", stint.CalendarWindow(1, stint.CalendarDay, "../UTC"), []string{`TimeZone is "../UTC"`}},
		{"a file", stint.CalendarWindow(1, stint.CalendarDay, "/etc/localtime"), []string{`TimeZone is "/etc/localtime"`}},
		{"a zone with NUL", stint.CalendarWindow(1, stint.CalendarDay, "Europe/Berlin\x00"), []string{`TimeZone is "Europe/Berlin\x00"`}},
		{"a zone without calendar", with(stint.FixedWindow(1, time.Second), func(l *stint.Limit) { l.TimeZone = "UTC" }), []string{"only with calendar"}},
		{"an interval on a counter", stint.SlidingWindowCounter(1, time.Second).WithMinInterval(time.Second), []string{"MinInterval is 1s", "only with SLIDING_WINDOW_LOG"}},
		{"denied counted on a bucket", bucket.CountingDenied(), []string{"CountDenied is true"}},
		{"a lease on a leaky bucket", stint.LeakyBucket(5, stint.PerSecond(1)).WithLease(1), []string{"lease is 1", "only with TOKEN_BUCKET and FIXED_WINDOW"}},
		{"a lease above the capacity", bucket.WithLease(101), []string{"lease is 101", "1 to the capacity"}},
		{"a negative lease, and a debt", bucket.WithLease(-2).WithMaxDebt(-2), []string{"lease is -2", "MaxDebt is -2"}},
		{"too fine an interval", stint.SlidingWindowLog(1, time.Second).WithMinInterval(5), []string{"MinInterval is 5ns"}},
		{"a name with a newline", bucket.Named("a\nb"), []string{`name is "a\nb"`, "printable ASCII"}},
		{"too long a name", bucket.Named(strings.Repeat("x", 129)), []string{"at most 128 bytes"}},
		{
			"all at once", stint.LeakyBucket(0, stint.Per(0, 0)).WithMaxDebt(-9).CountingDenied().Named("é"),
			[]string{"capacity is 0", "leak permits is 0", "leak period is 0s", "MaxDebt is -9", "CountDenied is true", `name is "é"`},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantSays(t, test.limit.Validate(), test.says...)
		})
	}
}

// wantSays checks that an input is refused with some words.
func wantSays(t *testing.T, err error, says ...string) {
	t.Helper()
	if !errors.Is(err, stint.ErrInvalid) {
		t.Fatalf("error is %v, want ErrInvalid", err)
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

func TestPolicyRefuses(t *testing.T) {
	fine := stint.FixedWindow(1, time.Second)
	tests := []struct {
		name   string
		policy string
		limits []stint.Limit
		says   []string
	}{
		{"no limits", "", nil, []string{"limits is 0", "1 to 64"}},
		{"too many", "", make([]stint.Limit, 65), []string{"limits is 65"}},
		{"a bad name", "\x00", []stint.Limit{fine}, []string{"policy name"}},
		{"two of one name", "", []stint.Limit{fine, fine}, []string{"limit 1: name", "no other limit of the same algorithm"}},
		{"faults of two limits", "", []stint.Limit{stint.FixedWindow(0, time.Second), stint.FixedWindow(1, 0).Named("b")}, []string{"limit 0: limit is 0", "limit 1: window is 0s"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := stint.NewPolicy(test.policy, test.limits...)
			wantSays(t, err, test.says...)
		})
	}
	if _, err := stint.NewPolicy("", fine, stint.SlidingWindowLog(1, time.Second)); err != nil {
		t.Errorf("two unnamed limits of different algorithms: %v", err)
	}
}

// Stores keep what they derive from a policy with it, apart from one another.
func TestPolicyPrepared(t *testing.T) {
	policy := must.Get(stint.NewPolicy("", stint.FixedWindow(1, time.Second)))(t)
	a, b := new(byte), new(byte)
	prepare := func(v string) func() any { return func() any { return v } }
	for range 2 {
		if got := policy.Prepared(a, prepare("of a")); got != "of a" {
			t.Errorf("a has %v", got)
		}
		if got := policy.Prepared(b, prepare("of b")); got != "of b" {
			t.Errorf("b has %v", got)
		}
		prepare = func(string) func() any { return func() any { t.Error("prepared twice"); return nil } }
	}
}
