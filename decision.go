package stint

import (
	"fmt"
	"math"
	"time"
)

// An Instant is a store's time: microseconds since the Unix epoch. It covers the years that int64
// does; states keep to 2^53, the year 2255, so that Lua reads them exactly.
type Instant int64

// Time is the instant as a time.Time in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// Add returns the instant d later, in whole microseconds.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Microseconds()) }

// String is the time in UTC as RFC 3339 has it, with microseconds.
func (i Instant) String() string { return i.Time().Format("2006-01-02T15:04:05.000000Z07:00") }

// Never as a RetryAfter says that no wait will do: the cost is above the limit
// itself.
const Never time.Duration = math.MaxInt64

// A Source says where a decision was made. The zero value is the store.
type Source uint8

// The places where a decision can be made.
const (
	SourceStore Source = iota
	SourceDenialCache
	SourceLease
	SourceFailurePolicy
)

var sourceNames = [...]string{"store", "denial-cache", "lease", "failure-policy"}

// String is the source's name on the wire.
func (s Source) String() string {
	if int(s) >= len(sourceNames) {
		return "unknown"
	}
	return sourceNames[s]
}

// A Decision is what a store answers. A denial is a decision, not an error. Of a
// policy with several limits it holds the fields of the deciding one: on denial
// the limit with the longest wait, on admission the one with the least Remaining,
// the first on a tie.
type Decision struct {
	// Allowed says whether the request is admitted (Take), or would be (Peek). It is
	// true for Reset and Settle, which are not asked.
	Allowed bool
	// Degraded says that a failure policy answered instead of the store.
	Degraded bool
	// Leased says of a denial that permits of the limit may be leased (see
	// [Limit.Lease]): what is not spent of them comes back, so RetryAfter is a bound,
	// and the wait may be shorter.
	Leased bool
	// Full says of a denied Reserve that the client has as many holds as the store allows.
	Full bool
	// Source says where the decision was made.
	Source Source
	// Via is the number of the way that was charged, or would be, of the operation's first group of ways: 0 is the first
	// way, as without any.
	Via uint8
	// Index is the deciding limit's place among the operation's limits.
	Index int16
	// Limit is the deciding limit's capacity in permits.
	Limit int64
	// Remaining is how many whole permits are left right after the decision, never
	// below 0.
	Remaining int64
	// RetryAfter is the shortest wait after which the same cost would be admitted if
	// nobody else took any: 0 when allowed, Never when the cost is above the limit. Of what is held it is until the
	// holds expire; they may end sooner.
	RetryAfter time.Duration
	// ResetAfter is how long until the state equals an untouched one.
	ResetAfter time.Duration
	// Delay is how long to hold an admitted request so that output is even. Leaky
	// bucket only; of several the longest.
	Delay time.Duration
	// Applied is what a Settle changed: permits charged (positive) or refunded
	// (negative); of several limits the least, but of those with a cost of their own, to which it
	// applies nothing.
	Applied int64
	// At is the store's time of the decision.
	At Instant
}

// String describes the decision for people, as in "allowed, 95 of 100 left" and "denied, 0 of 100
// left, retry after 1.5s".
func (d Decision) String() string {
	text := "allowed"
	if !d.Allowed {
		text = "denied"
	}
	if d.Degraded {
		return text + " by the failure policy, without the store"
	}
	text = fmt.Sprintf("%s, %d of %d left", text, d.Remaining, d.Limit)
	switch {
	case d.RetryAfter == Never:
		text += ", the cost is above the limit"
	case d.RetryAfter > 0:
		text += fmt.Sprintf(", retry after %s", d.RetryAfter)
	case d.Delay > 0:
		text += fmt.Sprintf(", after a delay of %s", d.Delay)
	}
	return text
}

// An Outcome is one limit's part in an operation. A store fills it in for each
// limit when the operation asks (see [Op.Each]).
type Outcome struct {
	// Allowed says whether this limit alone admits.
	Allowed bool
	// Denials says that the limit counts denials (see [Limit.OfDenials]), so that Remaining is how many more are
	// counted. Such a limit decides no admission, unless it is alone.
	Denials bool
	// Limit, Remaining, RetryAfter, ResetAfter, Delay and Applied are as in
	// [Decision], of this limit.
	Limit      int64
	Remaining  int64
	RetryAfter time.Duration
	ResetAfter time.Duration
	Delay      time.Duration
	Applied    int64
	// GrowsAfter is how long until Remaining grows if nobody takes any; 0 when it
	// is at the limit already.
	GrowsAfter time.Duration
}
