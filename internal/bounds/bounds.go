// Package bounds has the ranges that limits, operations, holds and rules accept. Errors tell them, and so do the
// fields and functions that they bound.
package bounds

import "time"

// What limits accept. Inside these ranges every intermediate value of every algorithm stays exact, in Go and in a Lua
// number (an integer up to 2^53).
const (
	// MaxPermits bounds a capacity, a limit, a rate's permits and a debt.
	MaxPermits = 1_000_000_000
	// MinPeriod is the shortest period of a rate and the shortest window.
	MinPeriod = time.Millisecond
	// MaxPeriod is the longest period of a rate and the longest window.
	MaxPeriod = 366 * 24 * time.Hour
	// MaxDrain bounds how long a bucket may take to recover from its deepest debt: (capacity + debt) x period / permits
	// must be shorter.
	MaxDrain = 3650 * 24 * time.Hour
	// MaxNameBytes bounds the name of a limit or policy.
	MaxNameBytes = 128
	// MaxConcurrency bounds the capacity of a concurrency limit.
	MaxConcurrency = 10_000
)

// What operations accept.
const (
	// MaxKeyBytes bounds a key.
	MaxKeyBytes = 256
	// MaxLimits bounds the limits of one policy.
	MaxLimits = 64
	// MaxOpLimits bounds the limits of one operation, of all its claims together.
	MaxOpLimits = 1000
	// MaxWays bounds the ways of a group.
	MaxWays = 8
	// WayBits are how many bits of a way's number tell the ways of a group apart; one more tells whether the group is
	// optional.
	WayBits = 4
	// MaxBatch is the largest number of checks in one request to the service.
	MaxBatch = 1000
)

// What holds accept.
const (
	// MaxHoldIDBytes bounds the id of a hold; HoldIDs says in words what it may be.
	MaxHoldIDBytes = 128
	HoldIDs        = "1 to 128 printable characters of ASCII"
	// MinHoldTTL and MaxHoldTTL bound how long a hold lives that nobody renews.
	MinHoldTTL = time.Second
	MaxHoldTTL = time.Hour
	// HoldTTLs says in words for how long a hold may live.
	HoldTTLs = "1s to 1h in whole microseconds"
	// DefaultHoldTTL is how long it lives unless it says otherwise.
	DefaultHoldTTL = time.Minute
	// MaxHolds bounds the live holds of one client under one limit; DefaultMaxHolds is how many a store allows unless it
	// is set otherwise.
	MaxHolds        = 10_000
	DefaultMaxHolds = 1000
	// MaxListed bounds how many holds of a limit a List tells of.
	MaxListed = 100
)

// What rules accept.
const (
	// MaxRules bounds the rules of a set.
	MaxRules = 100_000
	// MaxIDBytes bounds a rule's ID.
	MaxIDBytes = 96
	// MaxTextBytes bounds a rule's name and its set.
	MaxTextBytes = 128
	// MaxWaitLimit is the longest that a rule may hold a request.
	MaxWaitLimit = 5 * time.Minute
	// MaxOddPathBytes is how long a path of which there are several variants may be, without its query: each of them
	// costs what there is to cut. A path of one variant may be of any length.
	MaxOddPathBytes = 8 << 10
	// MaxOddPathCuts is how many bytes of such a path may separate segments: slashes, backslashes, percent-encoded ones
	// as well, and #. A path that may begin with an authority has twice the variants, and may have half as many; one with
	// parameters has six times the variants, and may have an eighth.
	MaxOddPathCuts = 512
)

// Printable reports whether a text is printable ASCII.
func Printable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// IsHoldID reports whether a hold may have the id: see [HoldIDs].
func IsHoldID(id string) bool { return id != "" && len(id) <= MaxHoldIDBytes && Printable(id) }

// IsHoldTTL reports whether a hold may live for so long: see [HoldTTLs].
func IsHoldTTL(ttl time.Duration) bool {
	return ttl >= MinHoldTTL && ttl <= MaxHoldTTL && ttl%time.Microsecond == 0
}

// HoldTTL is how long a hold lives that asks for so long, with the default filled in.
func HoldTTL(asked time.Duration) time.Duration {
	if asked == 0 {
		return DefaultHoldTTL
	}
	return asked
}

// Remembered is for how long a store remembers how a hold of so long a TTL ended, from its end on, and from its expiry
// if that is later: twice the TTL, and at least a minute. So whoever repeats a Commit as long as it may come finds out
// what became of it.
func Remembered(asked time.Duration) time.Duration { return max(2*HoldTTL(asked), time.Minute) }

// Debt is the bound on a limit's debt in permits, with the default of 0 filled in; -1 is none.
func Debt(maxDebt, capacity int64) int64 {
	switch maxDebt {
	case 0:
		return capacity
	case -1:
		return 0
	default:
		return maxDebt
	}
}

// WayNumber is the number of way w of an operation's group g, both counted from 0: (g+1) x 16 + w, and 8 more in a
// group that is optional, whose last way is empty.
func WayNumber(optional bool, g, w int) uint16 {
	number := uint16(g+1)<<WayBits + uint16(w) // #nosec G115 -- 8 and 1,000 bound them
	if optional {
		number += MaxWays
	}
	return number
}
