package main

import (
	"slices"
	"time"

	"github.com/stint-go/stint/bench/internal/redislimit"
)

// A load is what the callers ask for.
type load struct {
	name string
	// quotas are decided together, each for a client of its own. Most loads have one.
	quotas []redislimit.Quota
	// draws says for each quota how its clients are drawn.
	draws []draw
	// filled says that every client has taken a permit before: clients are not new to
	// Redis.
	filled bool
	// fresh says that each number of callers begins with an empty Redis.
	fresh bool
	// counters says that the bare counters take part.
	counters bool
	// impls names the implementations that take part; nil for all.
	impls []string
	// check is what must be right about what was admitted.
	check check
}

// A draw is a way to draw clients.
type draw uint8

const (
	single  draw = iota // there is one
	uniform             // all alike
	zipfian             // by Zipf's law with exponent 1.1
)

// The generous quotas are never used up, so that every request is to be admitted; and
// they refill so slowly that what was taken can be counted afterwards. Their product
// stays below the ten years that a bucket may take to fill.
var (
	generousHot  = redislimit.Quota{Permits: 100_000_000, Refill: 1, Period: 3 * time.Second}
	generousMany = redislimit.Quota{Permits: 1_000_000, Refill: 1, Period: 300 * time.Second}
	// The next permit is a minute away.
	onePerMinute = redislimit.Quota{Permits: 1, Refill: 1, Period: time.Minute}
	// Any load is above it.
	small = redislimit.Quota{Permits: 100, Refill: 500, Period: time.Second}
	// So large that a process takes permits in advance, and a burst that lasts for all
	// that callers can ask for.
	millions = redislimit.Quota{Permits: 1_000_000_000, Refill: 1_000_000, Period: time.Second, Leased: true}
	// Many clients want more, and nothing comes back meanwhile.
	three = redislimit.Quota{Permits: 3, Refill: 3, Period: 24 * time.Hour}
)

func loads() []load {
	one := func(q redislimit.Quota) []redislimit.Quota { return []redislimit.Quota{q} }
	return []load{
		{name: "hot", quotas: one(generousHot), draws: []draw{single}, filled: true, counters: true, check: books},
		{name: "uniform", quotas: one(generousMany), draws: []draw{uniform}, filled: true, counters: true, check: books},
		{name: "zipf", quotas: one(generousMany), draws: []draw{zipfian}, filled: true, counters: true, check: books},
		{
			// Everybody together, each user and each address.
			name:   "policy",
			quotas: []redislimit.Quota{generousHot, generousMany, generousMany},
			draws:  []draw{single, zipfian, uniform},
			filled: true, check: books, impls: []string{redislimit.Stint, redislimit.RedisRate},
		},
		{name: "denied", quotas: one(onePerMinute), draws: []draw{single}, filled: true, fresh: true, check: none},
		{name: "saturated", quotas: one(small), draws: []draw{single}, fresh: true, check: bound},
		{
			name:   "lease",
			quotas: one(millions),
			draws:  []draw{single},
			fresh:  true,
			check:  bound,
			impls:  []string{redislimit.Stint},
		},
		{name: "exhausted", quotas: one(three), draws: []draw{zipfian}, fresh: true, check: exact},
	}
}

// has reports whether an implementation takes part.
func (l *load) has(c redislimit.Contender) bool {
	if c.Counter && !l.counters {
		return false
	}
	return l.impls == nil || slices.Contains(l.impls, c.Name)
}
