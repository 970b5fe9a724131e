// Package domains reads limits as they are configured for Envoy's rate limit service: domains of
// nested descriptors, in the files of the reference service, github.com/envoyproxy/ratelimit, with
// three parameters more.
//
//	domain: web
//	descriptors:
//	  - key: remote_address
//	    rate_limit: {unit: minute, requests_per_unit: 60}
//	  - key: tenant
//	    value: free
//	    descriptors:
//	      - key: tokens
//	        rate_limit: {unit: day, requests_per_unit: 100000, accounting: reference}
//
// A document is one domain.
package domains

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A Domain is the limits of requests that name it. Requests choose among them by descriptors.
type Domain struct {
	// Name is what requests call it. It must not be "".
	Name string
	// Descriptors are the first level of the limits.
	Descriptors []Descriptor
	// From says where it was read, for errors: a file, or the control plane.
	From string
}

// A Descriptor is a level of a domain's limits: what it says holds for requests whose entry at this
// level it matches.
type Descriptor struct {
	// Key is the entry's key. It must not be "".
	Key string
	// Value is the entry's value, in which each * stands for any text. Default: "", any value; each then has a counter
	// of its own.
	Value string
	// RateLimit is the limit of requests that end at this level. Default: nil, none.
	RateLimit *RateLimit
	// ShadowMode decides and admits.
	ShadowMode bool
	// QuotaMode admits unless all limits in quota mode that a request meets are exceeded.
	QuotaMode bool
	// DetailedMetric names statistics by the request's values, ValueToMetric by its value at this
	// level.
	DetailedMetric, ValueToMetric bool
	// ShareThreshold gives all values that a wildcard matches one counter.
	ShareThreshold bool
	// Metadata is handed to Envoy with answers, of limits that were asked. Default: nil, none.
	Metadata map[string]any
	// Descriptors are the next level.
	Descriptors []Descriptor
}

// Composite is the key under which its level has a descriptor, KEY_VALUE or KEY. In the reference service the key a_b
// and the key a with the value b are one, so a level may have only one of them. See [Joined].
func (d *Descriptor) Composite() string {
	if d.Value == "" {
		return d.Key
	}
	return d.Key + "_" + d.Value
}

// A RateLimit is so many requests in a unit of time, or no limit.
type RateLimit struct {
	// Name is what answers call it, and what Replaces of others name.
	Name string
	// RequestsPerUnit is the limit; 0 admits nothing.
	RequestsPerUnit uint32
	// Unit is the time.
	Unit Unit
	// Unlimited admits everything, in the place of RequestsPerUnit and Unit.
	Unlimited bool
	// Replaces are the names of limits that do not count where this one matches.
	Replaces []string

	// Algorithm decides. Default: 0, a fixed window, as the reference service has. Of stint.AlgorithmConcurrency,
	// RequestsPerUnit is how many requests run at once; it has no Unit.
	Algorithm stint.Algorithm
	// Calendar lets the windows follow the calendar of TimeZone (UTC by default), so that a month is one.
	// Fixed windows only.
	Calendar bool
	TimeZone string
	// Accounting says what requests count that are denied. Default: "", as for all.
	Accounting Accounting
}

// An Accounting says what is counted of a request that is denied.
type Accounting string

// The accountings.
const (
	// Atomic counts nothing of a request that is denied, anywhere.
	Atomic Accounting = "atomic"
	// Reference counts each descriptor by itself, denied or not, as the reference service does.
	Reference Accounting = "reference"
)

// A Unit is a time in which requests are counted. Its numbers are those of Envoy's protocol.
type Unit uint8

// The units. A month has 30 days and a year 365, unless the calendar is followed. Windows begin at
// multiples of the unit since 1970 in UTC, so weeks on Thursdays.
const (
	UnitUnknown Unit = iota
	Second
	Minute
	Hour
	Day
	Month
	Year
	Week
)

var units = [...]struct {
	name     string
	length   time.Duration
	calendar stint.Calendar
}{
	Second: {"second", time.Second, 0},
	Minute: {"minute", time.Minute, stint.CalendarMinute},
	Hour:   {"hour", time.Hour, stint.CalendarHour},
	Day:    {"day", 24 * time.Hour, stint.CalendarDay},
	Month:  {"month", 30 * 24 * time.Hour, stint.CalendarMonth},
	Year:   {"year", 365 * 24 * time.Hour, stint.CalendarYear},
	Week:   {"week", 7 * 24 * time.Hour, stint.CalendarWeek},
}

// ParseUnit reads a unit's name, in upper or lower case.
func ParseUnit(name string) (Unit, error) {
	for u := Second; u <= Week; u++ {
		if strings.EqualFold(units[u].name, name) {
			return u, nil
		}
	}
	return UnitUnknown, stint.Invalid("unit", name, "second, minute, hour, day, week, month or year")
}

// Known reports whether the unit is one of those above.
func (u Unit) Known() bool { return u >= Second && u <= Week }

// String is the unit's name.
func (u Unit) String() string {
	if !u.Known() {
		return "unknown"
	}
	return units[u].name
}

// Length is the unit's length, where the calendar is not followed.
func (u Unit) Length() time.Duration {
	if !u.Known() {
		return 0
	}
	return units[u].length
}

// Limit is what a store decides by: the limit in several units, 1 for most. A limit of 0 has none. One above
// 1,000,000,000 is that.
func (r *RateLimit) Limit(multiplier int64) (stint.Limit, error) {
	permits := min(int64(r.RequestsPerUnit), bounds.MaxPermits)
	if r.Algorithm == stint.AlgorithmConcurrency {
		return stint.Concurrency(permits).WithCost(1).Named("concurrent"), nil
	}
	length := r.Unit.Length() * time.Duration(multiplier)
	if !r.Unit.Known() || length/time.Duration(multiplier) != r.Unit.Length() {
		return stint.Limit{}, stint.Invalid("unit", r.Unit,
			"a unit, times a number that makes no more than "+bounds.MaxPeriod.String())
	}
	var limit stint.Limit
	switch {
	case r.Calendar && units[r.Unit].calendar != 0:
		limit = stint.CalendarWindow(permits, units[r.Unit].calendar, r.TimeZone)
	case r.Algorithm == stint.AlgorithmTokenBucket:
		limit = stint.TokenBucket(permits, stint.Rate{Permits: permits, Period: length})
	case r.Algorithm == stint.AlgorithmSlidingWindowLog:
		limit = stint.SlidingWindowLog(permits, length)
	case r.Algorithm == stint.AlgorithmSlidingWindowCounter:
		limit = stint.SlidingWindowCounter(permits, length)
	default:
		limit = stint.FixedWindow(permits, length)
	}
	// Under one key the states of different units are apart, as they are in the reference service.
	limit.Name = r.Unit.String()
	if multiplier > 1 {
		limit.Name = fmt.Sprintf("%d %ss", multiplier, limit.Name)
	}
	return limit, nil
}

// names are all parameters of the reference service, and those that are added to it.
var names = []string{
	"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited", "shadow_mode",
	"quota_mode", "name", "replaces", "detailed_metric", "value_to_metric", "share_threshold", "metadata",
	"algorithm", "calendar", "time_zone", "accounting",
}

func isName(text string) bool { return slices.Contains(names, text) }
