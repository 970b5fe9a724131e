package redis

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// A scenario is what the callers ask for.
type scenario struct {
	name string
	// quotas are decided together, each for a client of its own. Most loads have one.
	quotas []quota
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
	generousHot  = quota{Permits: 100_000_000, Refill: 1, Period: 3 * time.Second}
	generousMany = quota{Permits: 1_000_000, Refill: 1, Period: 300 * time.Second}
	// The next permit is a minute away.
	onePerMinute = quota{Permits: 1, Refill: 1, Period: time.Minute}
	// Any load is above it.
	small = quota{Permits: 100, Refill: 500, Period: time.Second}
	// So large that a process takes permits in advance, and a burst that lasts for all
	// that callers can ask for.
	millions = quota{Permits: 1_000_000_000, Refill: 1_000_000, Period: time.Second, Leased: true}
	// Many clients want more, and nothing comes back meanwhile.
	three = quota{Permits: 3, Refill: 3, Period: 24 * time.Hour}
)

func loads() []scenario {
	one := func(q quota) []quota { return []quota{q} }
	return []scenario{
		{name: "hot", quotas: one(generousHot), draws: []draw{single}, filled: true, counters: true, check: books},
		{name: "uniform", quotas: one(generousMany), draws: []draw{uniform}, filled: true, counters: true, check: books},
		{name: "zipf", quotas: one(generousMany), draws: []draw{zipfian}, filled: true, counters: true, check: books},
		{
			// Everybody together, each user and each address.
			name:   "policy",
			quotas: []quota{generousHot, generousMany, generousMany},
			draws:  []draw{single, zipfian, uniform},
			filled: true, check: books, impls: []string{stintName, redisRate},
		},
		{name: "denied", quotas: one(onePerMinute), draws: []draw{single}, filled: true, fresh: true, check: exact},
		{name: "saturated", quotas: one(small), draws: []draw{single}, fresh: true, check: bound},
		{
			name:   "lease",
			quotas: one(millions),
			draws:  []draw{single},
			fresh:  true,
			check:  bound,
			impls:  []string{stintName},
		},
		{name: "exhausted", quotas: one(three), draws: []draw{zipfian}, fresh: true, check: exact},
	}
}

// has reports whether an implementation takes part.
func (l *scenario) has(c contender) bool {
	if c.Counter && !l.counters {
		return false
	}
	return l.impls == nil || slices.Contains(l.impls, c.Name)
}

// turnsOfAll is about how many turns are drawn for all callers of a load together; who
// has had all of his begins again.
const turnsOfAll = 1 << 20

// traffic is which clients each caller asks for, drawn beforehand. It depends on the
// load and the callers only, so that all implementations get the same.
type traffic struct {
	names   [][]string   // the clients of each quota
	indexes [][][]uint32 // of each caller and quota
}

// newTraffic draws the traffic of a load. Each caller has a generator of its own.
func newTraffic(l *scenario, keys, callers int) *traffic {
	t := &traffic{names: names(l, keys), indexes: make([][][]uint32, callers)}
	turns := max(turnsOfAll/callers, 1)
	for caller := range t.indexes {
		t.indexes[caller] = make([][]uint32, len(l.draws))
		for quota, d := range l.draws {
			random := rand.New(rand.NewPCG(uint64(caller), uint64(quota)))
			t.indexes[caller][quota] = d.sequence(random, turns, len(t.names[quota]))
		}
	}
	return t
}

// names returns the clients of each quota as ready strings.
func names(l *scenario, keys int) [][]string {
	all := make([][]string, len(l.draws))
	for quota, d := range l.draws {
		if d == single {
			all[quota] = []string{"everybody"}
			continue
		}
		all[quota] = make([]string, keys)
		for i := range all[quota] {
			all[quota][i] = name(quota, i)
		}
	}
	return all
}

// name tells the clients of the quotas apart, since not everybody keeps quotas apart.
func name(quota, i int) string {
	if quota == 2 {
		return "address:10." + strconv.Itoa(i>>16) + "." + strconv.Itoa(i>>8&255) + "." + strconv.Itoa(i&255)
	}
	return "user:" + strconv.Itoa(i)
}

func (d draw) sequence(random *rand.Rand, turns, keys int) []uint32 {
	if d == single {
		return []uint32{0}
	}
	sequence := make([]uint32, turns)
	zipf := rand.NewZipf(random, 1.1, 1, uint64(keys-1))
	for i := range sequence {
		if d == zipfian {
			sequence[i] = uint32(zipf.Uint64())
		} else {
			sequence[i] = random.Uint32N(uint32(keys))
		}
	}
	return sequence
}
