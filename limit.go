package stint

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"
	_ "time/tzdata" // the zones, where the machine has none

	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/internal/prefix"
)

// NoDebt as a [Limit.MaxDebt] says that a charge never goes into debt.
const NoDebt = -1

// LeaseAuto as a [Limit.Lease] lets the store size leases by the recent rate.
const LeaseAuto = -1

// An Algorithm names one of the five ways to count, or concurrency. The zero value is not an
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
	// AlgorithmConcurrency bounds what is held at once, see [Limiter.Reserve]. It is not one of the five.
	AlgorithmConcurrency
)

var algorithmNames = [...]string{
	AlgorithmTokenBucket:          "TOKEN_BUCKET",
	AlgorithmLeakyBucket:          "LEAKY_BUCKET",
	AlgorithmFixedWindow:          "FIXED_WINDOW",
	AlgorithmSlidingWindowLog:     "SLIDING_WINDOW_LOG",
	AlgorithmSlidingWindowCounter: "SLIDING_WINDOW_COUNTER",
	AlgorithmConcurrency:          "CONCURRENCY",
}

// String is the canonical name, such as TOKEN_BUCKET.
func (a Algorithm) String() string {
	if a == 0 || int(a) >= len(algorithmNames) {
		return "UNKNOWN"
	}
	return algorithmNames[a]
}

// A Calendar is a unit of the calendar that a fixed window can follow. The zero
// value is no calendar: the window is a plain duration.
type Calendar uint8

// The calendar's units. A week starts on Monday.
const (
	_ Calendar = iota
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

// A Rate is a number of permits per period: what a token bucket refills, what a
// leaky bucket lets out.
//
// Equal fractions, such as 10/s and 600/m, mean the same to a bucket; as values they differ.
type Rate struct {
	Permits int64         // 1 to 1,000,000,000
	Period  time.Duration // 1ms to 366 days, whole microseconds
}

// Per is n permits per period.
func Per(n int64, period time.Duration) Rate { return Rate{Permits: n, Period: period} }

// PerSecond is n permits per second.
func PerSecond(n int64) Rate { return Per(n, time.Second) }

// PerMinute is n permits per minute.
func PerMinute(n int64) Rate { return Per(n, time.Minute) }

// PerHour is n permits per hour.
func PerHour(n int64) Rate { return Per(n, time.Hour) }

// PerDay is n permits per 24 hours.
func PerDay(n int64) Rate { return Per(n, 24*time.Hour) }

// Every is one permit per interval.
func Every(interval time.Duration) Rate { return Per(1, interval) }

// String writes the rate as rules have it, such as 10/s or 2/3s.
func (r Rate) String() string {
	d := duration.Format(r.Period)
	switch d {
	case "1s", "1m", "1h", "1d":
		d = d[1:]
	}
	return strconv.FormatInt(r.Permits, 10) + "/" + d
}

// A Limit is one algorithm with its parameters. It is plain data, comparable,
// and safe to copy. The constructors set what each algorithm needs; the other
// fields may be set on the result.
type Limit struct {
	// Name tells apart limits of one algorithm under one key; it also names the
	// limit in the RateLimit header fields. "" is a name like any other. At most
	// 128 bytes of printable ASCII.
	Name string
	// Algorithm decides which of the fields below apply. It has no default.
	Algorithm Algorithm
	// Capacity is the bucket's capacity or the window's limit, in permits, 1 to
	// 1,000,000,000. It has no default.
	Capacity int64
	// Rate is a token bucket's refill or a leaky bucket's leak. Buckets only.
	Rate Rate
	// Window is the window's length, 1ms to 366 days in whole microseconds.
	// Windows only; not with Calendar.
	Window time.Duration
	// Calendar lets a fixed window follow the calendar. Default: none.
	Calendar Calendar
	// TimeZone is the IANA name of the zone that Calendar counts in, as in
	// [time.LoadLocation]: by the machine's data, else by that of the program. Default: "",
	// which is UTC. "Local" is not a name. Only with Calendar.
	TimeZone string
	// FirstRequest lets a client's fixed window begin with its first admitted request, charge or reserve; the next
	// begins with the first one after its end. If all is given back there is none. Default: false, windows begin at
	// multiples of their length. Not with Calendar.
	FirstRequest bool
	// Denials lets a fixed window count denials, in place of what is admitted: a client's window begins with the first
	// request that an operation of the limit denies, whichever limit denies it. Each Take that is denied then counts 1,
	// whatever its cost. From the one that fills the window on, until its end, the limit denies, and counts nothing.
	// Default: false. Only with FirstRequest; not with MaxDebt, Lease or Cost, nor where permits are held.
	Denials bool
	// MinInterval is the least time between two admitted requests, whatever their
	// cost. Default: 0, none. At most 366 days, whole microseconds. Sliding window
	// log only.
	MinInterval time.Duration
	// CountDenied records denied requests as well, so that a client that keeps
	// hammering stays blocked until it pauses. Default: false. Sliding window log only.
	CountDenied bool
	// MaxDebt is how far Settle may charge below zero, in permits, up to 1,000,000,000.
	// Default: 0, which is the capacity; NoDebt allows none.
	MaxDebt int64
	// Lease lets each process take so many permits at a time in advance, and spend
	// them without asking the store, for limits so large that asking for each request
	// is too slow: 1 to the capacity, or LeaseAuto. A token bucket then admits somewhat
	// more at once (docs/redis.md, "Leases"), a window never more than its limit.
	// Default: 0, none. Token buckets and fixed windows only. A store in the process
	// has nothing to lease from, and ignores it.
	Lease int64
	// Cost is what each operation takes of this limit, whatever it asks for: so that one operation may take a
	// place, a request and a thousand tokens. A Settle or Commit leaves what was taken as it is. 1 to the capacity.
	// Default: 0, as many permits as are asked for. Not with Lease.
	Cost int64
}

// TokenBucket holds up to capacity permits, starts full and refills
// continuously.
func TokenBucket(capacity int64, refill Rate) Limit {
	return Limit{Algorithm: AlgorithmTokenBucket, Capacity: capacity, Rate: refill}
}

// LeakyBucket queues up to capacity permits and lets them out evenly. An
// admitted request is to be held for [Decision.Delay].
func LeakyBucket(capacity int64, leak Rate) Limit {
	return Limit{Algorithm: AlgorithmLeakyBucket, Capacity: capacity, Rate: leak}
}

// FixedWindow admits limit permits per window. Windows start at multiples of the
// window since the Unix epoch, or with a client's first request ([Limit.FromFirst]). Around a boundary up to
// twice the limit can pass within one window's length; the sliding windows don't have that weakness.
func FixedWindow(limit int64, window time.Duration) Limit {
	return Limit{Algorithm: AlgorithmFixedWindow, Capacity: limit, Window: window}
}

// FromFirst is a fixed window that begins with a client's first request.
func (l Limit) FromFirst() Limit {
	l.FirstRequest = true
	return l
}

// OfDenials is a fixed window that counts denials: FixedWindow(20, 10*time.Minute).FromFirst().OfDenials() denies a
// client that was denied 20 times, until 10 minutes after the first of them.
func (l Limit) OfDenials() Limit {
	l.Denials = true
	return l
}

// CalendarWindow admits limit permits per minute, hour, day, week, month or year
// of the calendar in the named time zone ("" is UTC). An hour that the zone
// repeats is one window.
func CalendarWindow(limit int64, unit Calendar, timeZone string) Limit {
	return Limit{Algorithm: AlgorithmFixedWindow, Capacity: limit, Calendar: unit, TimeZone: timeZone}
}

// SlidingWindowLog admits limit permits in every span of the window's length,
// exactly. It remembers each admission.
func SlidingWindowLog(limit int64, window time.Duration) Limit {
	return Limit{Algorithm: AlgorithmSlidingWindowLog, Capacity: limit, Window: window}
}

// SlidingWindowCounter estimates a sliding window from the counts of the current
// window and the previous one. It needs little memory, whatever the limit is.
func SlidingWindowCounter(limit int64, window time.Duration) Limit {
	return Limit{Algorithm: AlgorithmSlidingWindowCounter, Capacity: limit, Window: window}
}

// Concurrency lets at most capacity permits be held at once, 1 to 10,000. Only
// [Limiter.Reserve] takes of it, and what is held comes back when the hold ends. Beside limits of other costs give it
// a cost of its own, by WithCost(1): else a request of a thousand tokens asks for a thousand places.
func Concurrency(capacity int64) Limit {
	return Limit{Algorithm: AlgorithmConcurrency, Capacity: capacity}
}

// Named returns the limit with another name.
func (l Limit) Named(name string) Limit { l.Name = name; return l }

// WithMaxDebt returns the limit with another bound on debt.
func (l Limit) WithMaxDebt(permits int64) Limit { l.MaxDebt = permits; return l }

// WithLease returns the limit with leases of so many permits, or LeaseAuto.
func (l Limit) WithLease(permits int64) Limit { l.Lease = permits; return l }

// WithMinInterval returns the limit with a least time between admissions.
func (l Limit) WithMinInterval(d time.Duration) Limit { l.MinInterval = d; return l }

// WithCost returns the limit with a cost of its own, for each operation.
func (l Limit) WithCost(permits int64) Limit { l.Cost = permits; return l }

// Takes is how many permits an operation that asks for n takes of the limit; of denials, how many it counts if it is
// denied.
func (l Limit) Takes(n int64) int64 {
	switch {
	case l.Denials:
		return 1
	case l.Cost > 0:
		return l.Cost
	}
	return n
}

// CanHold reports why permits of the limit can't be reserved, nil if they can: it counts denials or denied
// requests, it leases, or it is a leaky bucket without a cost of its own. The error wraps
// [ErrInvalid].
func (l Limit) CanHold() error {
	switch {
	case l.CountDenied:
		return Invalid("CountDenied", true, "false where permits are reserved: the requests that it counts are not held")
	case l.Denials:
		return Invalid("Denials", true, "false where permits are reserved: a reserve that is denied writes nothing")
	case l.Lease != 0:
		return Invalid("lease", l.Lease, "none where permits are reserved: what is leased is not held")
	case l.Algorithm == AlgorithmLeakyBucket && l.Cost == 0:
		return Invalid("cost", l.Cost, "1 or more for a leaky bucket where permits are reserved: its turns can't go back")
	}
	return nil
}

// CountingDenied returns the limit with denied requests counted too.
func (l Limit) CountingDenied() Limit { l.CountDenied = true; return l }

// IsBucket reports whether the limit refills or drains at a rate.
func (l Limit) IsBucket() bool {
	return l.Algorithm == AlgorithmTokenBucket || l.Algorithm == AlgorithmLeakyBucket
}

// Validate reports everything that is wrong with the limit, joined; each fault is
// an [InvalidError].
func (l Limit) Validate() error {
	var faults faults
	faults.name("name", l.Name)
	if l.Algorithm == 0 || int(l.Algorithm) >= len(algorithmNames) { // which says what else is allowed
		faults.add("algorithm", uint8(l.Algorithm), "one of the five algorithms, or concurrency")
		return prefix.Join(faults...)
	}
	capacity := "limit"
	if l.IsBucket() || l.Algorithm == AlgorithmConcurrency {
		capacity = "capacity"
	}
	switch {
	case l.Algorithm != AlgorithmConcurrency:
		faults.permits(capacity, l.Capacity)
	case l.Capacity < 1 || l.Capacity > bounds.MaxConcurrency:
		faults.add(capacity, l.Capacity, fmt.Sprintf("1 to %d", bounds.MaxConcurrency))
	}
	if l.Cost < 0 || l.Cost > max(1, l.Capacity) {
		faults.add("cost", l.Cost, "0, or 1 to the "+capacity)
	}
	if l.MaxDebt < NoDebt || l.MaxDebt > bounds.MaxPermits {
		faults.add("MaxDebt", l.MaxDebt, fmt.Sprintf("0 to %d", bounds.MaxPermits))
	}
	switch {
	case l.IsBucket():
		l.validateBucket(&faults)
	case l.Algorithm == AlgorithmConcurrency:
		l.validateConcurrency(&faults)
	default:
		l.validateWindow(&faults)
	}
	l.validateOptions(&faults)
	l.validateLease(&faults)
	return prefix.Join(faults...)
}

// validateBucket looks at capacity, rate and debt together: the time in which all of it drains,
// (capacity + debt) x period / permits, has to stay below 3,650 days.
func (l Limit) validateBucket(faults *faults) {
	rate := "refill"
	if l.Algorithm == AlgorithmLeakyBucket {
		rate = "leak"
	}
	sound := len(*faults)
	faults.permits(rate+" permits", l.Rate.Permits)
	faults.period(rate+" period", l.Rate.Period)
	if len(*faults) == sound && l.Capacity >= 1 && l.Capacity <= bounds.MaxPermits {
		// The product needs up to 95 bits; the quotient is compared without dividing.
		debt := bounds.Debt(l.MaxDebt, l.Capacity)
		hi, lo := bits.Mul64(uint64(l.Capacity+debt), uint64(l.Rate.Period.Microseconds()))
		maxHi, maxLo := bits.Mul64(uint64(bounds.MaxDrain.Microseconds()), uint64(l.Rate.Permits))
		if hi > maxHi || hi == maxHi && lo >= maxLo {
			faults.add("(capacity + MaxDebt) x period / permits",
				fmt.Sprintf("(%d + %d) x %s / %d", l.Capacity, debt, duration.Format(l.Rate.Period), l.Rate.Permits),
				"less than 10 years, so that every intermediate value stays below 2^53")
		}
	}
	if l.Window != 0 {
		faults.add("window", l.Window, "none with "+l.Algorithm.String())
	}
}

// validateConcurrency refuses parameters of time: places are held and given back, and no clock
// frees them.
func (l Limit) validateConcurrency(faults *faults) {
	if l.Rate != (Rate{}) {
		faults.add("rate", l.Rate, "none with "+l.Algorithm.String())
	}
	if l.Window != 0 {
		faults.add("window", l.Window, "none with "+l.Algorithm.String())
	}
	if l.MaxDebt != 0 {
		faults.add("MaxDebt", l.MaxDebt, "none with "+l.Algorithm.String())
	}
}

// validateWindow sees to it that there is a window or a calendar, and not both.
func (l Limit) validateWindow(faults *faults) {
	if l.Rate != (Rate{}) {
		faults.add("rate", l.Rate, "none with "+l.Algorithm.String())
	}
	switch {
	case l.Calendar == 0:
		faults.period("window", l.Window)
	case l.Window != 0:
		faults.add("window", l.Window, "none with calendar "+l.Calendar.String())
	}
}

// validateOptions refuses options of other algorithms, which would have no effect.
func (l Limit) validateOptions(faults *faults) {
	if l.Calendar != 0 && l.Algorithm != AlgorithmFixedWindow {
		faults.add("calendar", l.Calendar, "only with FIXED_WINDOW")
	}
	if l.Calendar > CalendarYear {
		faults.add("calendar", uint8(l.Calendar), "minute, hour, day, week, month or year")
	}
	if l.FirstRequest && (l.Algorithm != AlgorithmFixedWindow || l.Calendar != 0) {
		faults.add("start", "first_request", "only with FIXED_WINDOW, and without calendar")
	}
	if l.Denials {
		l.validateDenials(faults)
	}
	if l.TimeZone != "" {
		if l.Calendar == 0 {
			faults.add("TimeZone", l.TimeZone, "only with calendar")
		}
		if _, err := time.LoadLocation(l.TimeZone); err != nil || l.TimeZone == "Local" {
			faults.add("TimeZone", l.TimeZone, "an IANA time zone such as Europe/Berlin, or UTC")
		}
	}
	if l.Algorithm != AlgorithmSlidingWindowLog {
		if l.MinInterval != 0 {
			faults.add("MinInterval", l.MinInterval, "only with SLIDING_WINDOW_LOG")
		}
		if l.CountDenied {
			faults.add("CountDenied", l.CountDenied, "only with SLIDING_WINDOW_LOG")
		}
		return
	}
	if l.MinInterval != 0 && (l.MinInterval < time.Microsecond || l.MinInterval > bounds.MaxPeriod ||
		l.MinInterval%time.Microsecond != 0) {
		faults.add("MinInterval", l.MinInterval, "0, or 1us to 366d in whole microseconds")
	}
}

// validateDenials refuses what has no meaning where denials are counted.
func (l Limit) validateDenials(faults *faults) {
	if !l.FirstRequest {
		faults.add("Denials", true, "only with FirstRequest: FixedWindow(20, 10*time.Minute).FromFirst().OfDenials()")
	}
	if l.MaxDebt != 0 {
		faults.add("MaxDebt", l.MaxDebt, "none where denials are counted")
	}
	if l.Lease != 0 {
		faults.add("lease", l.Lease, "none where denials are counted")
	}
	if l.Cost != 0 {
		faults.add("cost", l.Cost, "none where denials are counted: each counts 1")
	}
}

// validateLease looks at what a process may take at once on behalf of the requests to come.
func (l Limit) validateLease(faults *faults) {
	if l.Lease == 0 {
		return
	}
	if l.Cost != 0 {
		faults.add("lease", l.Lease, "none with a cost")
	}
	if l.Algorithm != AlgorithmTokenBucket && l.Algorithm != AlgorithmFixedWindow {
		faults.add("lease", l.Lease, "only with TOKEN_BUCKET and FIXED_WINDOW")
	}
	if l.Lease < LeaseAuto || l.Lease > max(1, l.Capacity) {
		faults.add("lease", l.Lease, "auto, none, or 1 to the capacity")
	}
}

// faults collects what is wrong with an input, so that all of it is reported at
// once.
type faults []error

func (f *faults) add(param string, value any, allowed string) {
	*f = append(*f, Invalid(param, value, allowed))
}

// permits adds a fault unless n is a number of permits.
func (f *faults) permits(param string, n int64) {
	if n < 1 || n > bounds.MaxPermits {
		f.add(param, n, fmt.Sprintf("1 to %d", bounds.MaxPermits))
	}
}

// period adds a fault unless d is a period or a window. States count microseconds.
func (f *faults) period(param string, d time.Duration) {
	if d < bounds.MinPeriod || d > bounds.MaxPeriod || d%time.Microsecond != 0 {
		f.add(param, d, "1ms to 366d in whole microseconds")
	}
}

// name adds a fault unless a name is short and printable: it is part of keys and of header fields.
func (f *faults) name(param, name string) {
	if len(name) > bounds.MaxNameBytes {
		f.add(param, name, fmt.Sprintf("at most %d bytes", bounds.MaxNameBytes))
	}
	if !bounds.Printable(name) {
		f.add(param, name, "printable ASCII")
	}
}
