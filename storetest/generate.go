package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// A Step is one operation of a sequence.
type Step struct {
	// At is the time that the clock is set to before.
	At stint.Instant
	// Op is the operation. Its Each is nil; see Each.
	Op stint.Op
	// Batch, if not 0, is carried out by one DecideAll together with the
	// neighbouring steps of the same number, which have the same At.
	Batch int
	// Each says that the operation asks for the outcome of every limit.
	Each bool
}

// A Sequence is a list of steps to be carried out in order on an empty store, or
// on keys that it has not seen.
type Sequence struct {
	// Seed is what the sequence was generated from; 0 for one decoded from bytes.
	Seed uint64
	// Steps are the operations in order.
	Steps []Step
}

// Generate returns the sequence of a seed: operations on a few keys under a few
// policies, at least one limit of which has the algorithm. Times start near 2026
// and go to where mistakes are likely: the same instant, edges of windows, the
// ends of earlier waits and one microsecond around them, changes of the clocks in
// the zones of calendar windows, far later, and at times back. Keys differ between
// seeds.
func Generate(seed uint64, algorithm stint.Algorithm, operations int) Sequence {
	rng := rand.New(rand.NewPCG(seed, uint64(algorithm))) // #nosec G404 -- must be repeatable
	g := newGenerator(rng, algorithm, fmt.Sprintf("%x:", seed))
	for len(g.steps) < operations {
		g.batch(operations - len(g.steps))
	}
	return Sequence{Seed: seed, Steps: g.steps}
}

// The times that sequences keep to: what a state may need beyond latest still is
// below 2^53 microseconds.
const (
	earliest = stint.Instant(1_500_000_000_000_000) // 2017
	year2026 = stint.Instant(1_767_225_600_000_000)
	latest   = stint.Instant(5_000_000_000_000_000) // 2128
)

// suffixes make keys that collide if they are joined carelessly.
var suffixes = [...]string{
	"a", "b", "a:b", "a_b", "{a}", "a}", "", ":", "a\x00", "%3A", "\xff\xfe", "naïve", strings.Repeat("k", 200),
}

// policyNames and limitNames likewise.
var (
	policyNames = [...]string{"", "p", "p:", "{p}", "a"}
	limitNames  = [...]string{"", "x", "x:a", ":", "burst"}
)

type generator struct {
	rng      *rand.Rand
	oracle   *Oracle // its answers say which times and costs are worth trying
	now      stint.Instant
	keys     []string
	policies [][]*stint.Policy // each with what it is changed to
	targets  []stint.Instant   // times worth visiting
	probes   []Step            // steps to take next, alone
	recent   stint.Decision
	steps    []Step
	batches  int
}

func newGenerator(rng *rand.Rand, algorithm stint.Algorithm, prefix string) *generator {
	g := &generator{rng: rng, oracle: NewOracle()}
	for range 1 + rng.IntN(4) {
		g.keys = append(g.keys, prefix+pick(rng, suffixes[:]...))
	}
	for range 1 + rng.IntN(5)/3 {
		g.policies = append(g.policies, g.newPolicies(algorithm))
	}
	g.now = year2026 + stint.Instant(rng.Int64N(int64(365*24*hour)))
	for _, l := range g.policies[0][0].Limits() {
		if l.Calendar != stint.CalendarNone && rng.IntN(2) == 0 {
			g.now = aroundChangeOfClocks(rng, l.TimeZone, g.now)
			break
		}
	}
	return g
}

// aroundChangeOfClocks is a time in the hours around the next change of the zone's
// clocks within a year, or around now.
func aroundChangeOfClocks(rng *rand.Rand, zone string, now stint.Instant) stint.Instant {
	at := now
	if location, err := stint.LoadTimeZone(zone); err == nil {
		_, end := now.Time().In(location).ZoneBounds()
		if change := stint.Instant(end.UnixMicro()); !end.IsZero() && change < now+366*24*hour {
			at = change
		}
	}
	if rng.IntN(4) == 0 {
		return at + stint.Instant(rng.IntN(3)-1)
	}
	return at + hour - draw(rng, 3*hour)
}

// newPolicies draws a policy, at times of several limits, and at times what it is
// changed to later.
func (g *generator) newPolicies(algorithm stint.Algorithm) []*stint.Policy {
	name := pick(g.rng, policyNames[:]...)
	var limits []stint.Limit
	count := 1
	if g.rng.IntN(4) == 0 {
		count += 1 + g.rng.IntN(3)
	}
	for i := range count {
		a := algorithm
		if i > 0 {
			a = pick(g.rng, stint.Algorithms()...)
		}
		limits = append(limits, randomLimit(g.rng, a).Named(pick(g.rng, limitNames[:]...)))
	}
	g.rng.Shuffle(count, func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
	policy, err := stint.NewPolicy(name, limits...)
	if err != nil { // two limits of one name and algorithm
		return g.newPolicies(algorithm)
	}
	policies := []*stint.Policy{policy}
	if g.rng.IntN(3) == 0 {
		for range 1 + g.rng.IntN(2) {
			changed := policy.Limits()
			for i := range changed {
				changed[i] = changedLimit(g.rng, changed[i])
			}
			if p, err := stint.NewPolicy(name, changed...); err == nil {
				policies = append(policies, p)
			}
		}
	}
	return policies
}

// batch adds at least one step and at most room.
func (g *generator) batch(room int) {
	if len(g.probes) > 0 {
		probe := g.probes[0]
		g.probes = g.probes[1:]
		g.now = probe.At
		g.add(probe)
		return
	}
	g.advance()
	var size, number int
	switch n := g.rng.IntN(16); {
	case n < 1:
		size = 1 + g.rng.IntN(64)
	case n < 6:
		size = 1 + g.rng.IntN(12)
	default:
		size = 1 + g.rng.IntN(3)
	}
	size = min(size, room)
	if g.rng.IntN(4) > 0 {
		g.batches++
		number = g.batches
	}
	burst := g.rng.IntN(3) == 0
	op := g.op()
	for range size {
		g.add(Step{At: g.now, Op: op, Batch: number, Each: g.rng.IntN(3) > 0})
		if !burst || g.rng.IntN(8) == 0 {
			op = g.op()
		}
	}
}

// add appends the step and learns from the oracle's answer to it.
func (g *generator) add(step Step) {
	g.steps = append(g.steps, step)
	d, outcomes := g.oracle.Decide(step.Op, step.At)
	g.recent = d
	waits := []time.Duration{d.RetryAfter, d.ResetAfter, d.Delay, outcomes[g.rng.IntN(len(outcomes))].GrowsAfter}
	if w := pick(g.rng, waits...); w > 0 && w != stint.Never {
		g.targets = append(g.targets, step.At+micros(w))
		if len(g.targets) > 8 {
			g.targets = g.targets[1:]
		}
	}
	end := step.At + micros(d.RetryAfter)
	if !d.Allowed && d.RetryAfter != stint.Never && end < latest && len(g.probes) == 0 && g.rng.IntN(12) == 0 {
		// The same again when the wait is over, and just before.
		before, after := step, step
		before.At, after.At = end-1, end
		before.Batch, after.Batch = 0, 0
		if g.rng.IntN(2) == 0 {
			before.Op.Verb = stint.Peek
		}
		g.probes = append(g.probes, before, after)
	}
}

// advance moves the time on, or back.
func (g *generator) advance() {
	limit := g.limit(g.policy())
	short, long := g.scales(limit)
	now := g.now
	switch n := g.rng.IntN(40); {
	case n < 9:
	case n < 12:
		now += stint.Instant(1 + g.rng.IntN(3))
	case n < 20:
		now += draw(g.rng, short)
	case n < 25:
		now += draw(g.rng, long)
	case n < 27:
		now += draw(g.rng, 3*long)
	case n < 33:
		if len(g.targets) > 0 {
			target := pick(g.rng, g.targets...) + stint.Instant(g.rng.IntN(3)-1)
			if target > now || g.rng.IntN(4) == 0 {
				now = target
			}
		}
	case n < 37:
		if limit.Calendar != stint.CalendarNone && g.rng.IntN(2) == 0 {
			now = aroundChangeOfClocks(g.rng, limit.TimeZone, now)
			break
		}
		edge := now - now%long + long // for a window of that length
		now = edge + stint.Instant(g.rng.IntN(3)-1)
	case n < 38:
		now -= draw(g.rng, min(short, second))
	case n < 39:
		now -= draw(g.rng, short)
	default:
		if g.rng.IntN(4) == 0 {
			now -= draw(g.rng, 2*long+3*second)
		}
	}
	if now >= earliest && now <= latest {
		g.now = now
	}
}

func draw(rng *rand.Rand, bound stint.Instant) stint.Instant {
	return 1 + stint.Instant(rng.Int64N(int64(max(bound, 1))))
}

// scales are two lengths of time that matter to one of the limits: per permit,
// and in all.
func (g *generator) scales(l stint.Limit) (short, long stint.Instant) {
	switch {
	case l.IsBucket():
		each := float64(l.Rate.Period.Microseconds()) / float64(l.Rate.Permits)
		short, long = stint.Instant(math.Ceil(each)), stint.Instant(math.Ceil(each*float64(l.Capacity)))
	case l.Calendar != stint.CalendarNone:
		units := [...]stint.Instant{minute, hour, 24 * hour, 7 * 24 * hour, 30 * 24 * hour, 365 * 24 * hour}
		long = units[l.Calendar-stint.CalendarMinute]
		short = min(long/4, hour)
	case l.MinInterval > 0 && g.rng.IntN(2) == 0:
		short, long = micros(l.MinInterval), micros(l.Window)
	default:
		long = micros(l.Window)
		short = long/stint.Instant(l.Capacity) + 1
	}
	return short, long
}

func (g *generator) policy() *stint.Policy {
	policies := pick(g.rng, g.policies...)
	if g.rng.IntN(4) == 0 {
		return pick(g.rng, policies...)
	}
	return policies[0]
}

func (g *generator) limit(p *stint.Policy) stint.Limit { return p.Limit(g.rng.IntN(p.Len())) }

// op draws a valid operation.
func (g *generator) op() stint.Op {
	verbs := [...]struct {
		weight int
		verb   stint.Verb
	}{{70, stint.Take}, {80, stint.Peek}, {87, stint.Try}, {99, stint.Settle}, {100, stint.Reset}}
	for {
		op := stint.Op{}
		draw := g.rng.IntN(100)
		for _, v := range verbs {
			if draw < v.weight {
				op.Verb = v.verb
				break
			}
		}
		op.Claim = g.claim(op.Verb)
		if g.rng.IntN(12) == 0 {
			for range 1 + g.rng.IntN(2) {
				op.And = append(op.And, g.claim(op.Verb))
			}
		}
		if op.Validate() != nil {
			op.And = nil // a state is named twice
		}
		if op.Validate() == nil {
			return op
		}
	}
}

func (g *generator) claim(verb stint.Verb) stint.Claim {
	c := stint.Claim{Key: pick(g.rng, g.keys...), Policy: g.policy()}
	l := g.limit(c.Policy)
	switch verb {
	case stint.Reset:
	case stint.Settle:
		c.Permits = g.amount(l)
		for i := range c.Policy.Len() {
			if c.Policy.Limit(i).Algorithm == stint.AlgorithmLeakyBucket {
				c.Permits = max(1, c.Permits)
			}
		}
	case stint.Take, stint.Try, stint.Peek:
		c.Permits = g.cost(l)
	}
	return c
}

// cost draws the permits of a request.
func (g *generator) cost(l stint.Limit) int64 {
	switch n := g.rng.IntN(40); {
	case n < 18:
		if l.Capacity > 1000 {
			return 1 + g.rng.Int64N(l.Capacity/2)
		}
		return 1
	case n < 26:
		return 1 + g.rng.Int64N(max(1, l.Capacity/3))
	case n < 30:
		return max(1, g.recent.Remaining)
	case n < 32:
		return g.recent.Remaining + 1
	case n < 35:
		return l.Capacity
	case n < 36:
		return l.Capacity + 1
	case n < 37:
		return pick[int64](g.rng, stint.MaxPermits+1, math.MaxInt64, math.MaxInt64-1, 1<<53)
	}
	return near(g.rng, l.Capacity)
}

// amount draws the permits of a settlement.
func (g *generator) amount(l stint.Limit) int64 {
	var n int64
	switch g.rng.IntN(8) {
	case 0, 1:
		n = 1 + g.rng.Int64N(3)
	case 2:
		n = l.Capacity + l.Debt() + int64(g.rng.IntN(3)-1)
	case 3:
		n = l.Debt() + int64(g.rng.IntN(2))
	case 4:
		n = pick[int64](g.rng, math.MaxInt64, settleBound, settleBound+1, 1<<53)
		if g.rng.IntN(4) == 0 {
			return math.MinInt64
		}
	default:
		n = 1 + g.rng.Int64N(l.Capacity)
	}
	if g.rng.IntN(2) == 0 {
		n = -n
	}
	return n
}
