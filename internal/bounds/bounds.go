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
	// MaxBatch is the largest number of checks in one request to the service.
	MaxBatch = 1000
)

// What holds accept.
const (
	// MaxHoldIDBytes bounds the id of a hold.
	MaxHoldIDBytes = 128
	// MinHoldTTL and MaxHoldTTL bound how long a hold lives that nobody renews.
	MinHoldTTL = time.Second
	MaxHoldTTL = time.Hour
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
