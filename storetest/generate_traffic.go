package storetest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
)

// The times that sequences keep to: what a state may need beyond latest still is
// below 2^53 microseconds.
const (
	earliest = stint.Instant(1_500_000_000_000_000) // 2017
	year2026 = stint.Instant(1_767_225_600_000_000)
	latest   = stint.Instant(5_000_000_000_000_000) // 2128

	second = stint.Instant(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
)

// Names that collide if they are joined carelessly, or taken for a pattern. Keys end with suffixes.
var (
	suffixes = [...]string{
		"a", "b", "a:b", "a_b", "{a}", "a}", "", ":", "a\x00", "%3A", "\xff\xfe", "naïve", strings.Repeat("k", 200),
		"cur", "rule/a:x:cur",
	}
	policyNames = [...]string{"", "p", "p:", "{p}", "a", "rule/a", "rule/*", "*"}
	limitNames  = [...]string{"", "x", "x:a", ":", "burst", "cur"}
)

// traffic draws operations on a few keys under a few policies. Times go to where mistakes
// are likely: the same instant, edges of windows, the ends of earlier waits and one microsecond
// around them, changes of the clocks in the zones of calendar windows, far later, and at times back.
type traffic struct {
	chooser
	resets   bool // policies are reset, too
	now      stint.Instant
	keys     []string
	policies [][]*stint.Policy // each with what it is changed to
	targets  []stint.Instant   // times worth visiting
	recent   stint.Decision
	denied   Step          // the newest
	end      stint.Instant // of its wait; 0: it was tried
	batches  int
}

// newTraffic draws keys with a prefix, and policies of which the first has a limit of the algorithm.
func newTraffic(c chooser, algorithm stint.Algorithm, prefix string, resets bool) *traffic {
	g := &traffic{chooser: c, resets: resets}
	c.oneOrMore(2, 3, func(c chooser) { g.keys = append(g.keys, prefix+pick(c, suffixes[:]...)) })
	again := 1
	if resets {
		again = 2 // so that some policies stay as they are
	}
	c.oneOrMore(again, 3, func(c chooser) {
		g.policies = append(g.policies, c.policies(algorithm))
		algorithm = pick(c, notation.Algorithms()...) // of the next
	})
	g.now = year2026 + stint.Instant(c.int64n(int64(365*24*hour)))
	for _, l := range g.policies[0][0].Limits() {
		if l.Calendar != 0 && c.oneIn(2) {
			g.now = g.aroundChangeOfClocks(l.TimeZone)
			break
		}
	}
	return g
}

// GoString says which keys there are, for messages of property tests.
func (g *traffic) GoString() string { return fmt.Sprintf("keys %q", g.keys) }

// aroundChangeOfClocks is a time in the hours around the next change of the zone's
// clocks within a year, or around now.
func (g *traffic) aroundChangeOfClocks(zone string) stint.Instant {
	at := g.now
	if location, err := time.LoadLocation(zone); err == nil {
		_, end := g.now.Time().In(location).ZoneBounds()
		if change := stint.Instant(end.UnixMicro()); !end.IsZero() && change < g.now+366*24*hour {
			at = change
		}
	}
	if g.oneIn(4) {
		return at + stint.Instant(g.intn(3)-1)
	}
	return at + hour - g.upTo(3*hour)
}

// next draws what comes next: at most room operations of one instant, or one again that was
// denied, when its wait is over and just before.
func (g *traffic) next(room int) []Step {
	if g.oneIn(10) && g.end > 0 {
		before, after := g.denied, g.denied
		before.At, after.At = g.end-1, g.end
		before.Batch, after.Batch = 0, 0
		if g.oneIn(2) {
			before.Op.Verb = stint.VerbPeek
		}
		g.now, g.end = g.end, 0
		return []Step{before, after}[:min(room, 2)]
	}
	g.advance()
	if g.resets && g.oneIn(20) {
		name := g.policy().Name()
		if g.oneIn(4) {
			name = pick(g.chooser, policyNames[:]...)
		}
		return []Step{{At: g.now, reset: &stint.Scope{All: g.oneIn(8), Policy: name}}}
	}
	number := 0
	if g.intn(4) > 0 {
		g.batches++
		number = g.batches
	}
	again, burst := pick(g.chooser, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 5, 5, 5, 5, 5, 31), g.oneIn(3)
	var steps []Step
	g.oneOrMore(again, again+1, func(c chooser) {
		defer func(outer chooser) { g.chooser = outer }(g.chooser)
		g.chooser = c
		step := Step{At: g.now, Batch: number, Each: c.intn(3) > 0}
		if len(steps) > 0 && burst && !c.oneIn(8) {
			step.Op = steps[len(steps)-1].Op
		} else {
			step.Op = g.op()
		}
		steps = append(steps, step)
	})
	return steps[:min(room, len(steps))]
}

// learn looks at an answer for times and costs that are worth trying. It draws nothing: what
// is drawn for one batch must not depend on how many came before it, or it can't be shrunk.
func (g *traffic) learn(step Step, answer oracle.Answer) {
	d, outcomes := answer.Decision, answer.Each
	g.recent = d
	waits := []time.Duration{d.RetryAfter, d.ResetAfter, d.Delay}
	if len(outcomes) > 0 {
		waits = append(waits, outcomes[len(g.targets)%len(outcomes)].GrowsAfter)
	}
	for _, wait := range waits {
		if wait > 0 && wait != stint.Never {
			g.targets = append(g.targets, step.At.Add(wait))
		}
	}
	g.targets = g.targets[max(0, len(g.targets)-16):]
	if !d.Allowed && d.RetryAfter != stint.Never && step.At.Add(d.RetryAfter) < latest {
		g.denied, g.end = step, step.At.Add(d.RetryAfter)
	}
}

// advance moves the time on, or back.
func (g *traffic) advance() {
	limit := g.limitOf(g.policy())
	short, long := g.scales(limit)
	now := g.now
	switch n := g.intn(40); {
	case n < 9:
	case n < 12:
		now += stint.Instant(1 + g.intn(3))
	case n < 20:
		now += g.upTo(short)
	case n < 25:
		now += g.upTo(long)
	case n < 27:
		now += g.upTo(3 * long)
	case n < 33:
		if len(g.targets) > 0 {
			target := pick(g.chooser, g.targets...) + stint.Instant(g.intn(3)-1)
			if target > now || g.oneIn(4) {
				now = target
			}
		}
	case n < 37:
		if limit.Calendar != 0 && g.oneIn(2) {
			now = g.aroundChangeOfClocks(limit.TimeZone)
			break
		}
		edge := now - now%long + long // for a window of that length
		now = edge + stint.Instant(g.intn(3)-1)
	case n < 39:
		now -= g.upTo(pick(g.chooser, short, min(short, second)))
	default:
		if g.oneIn(4) {
			now -= g.upTo(2*long + 3*second)
		}
	}
	if now >= earliest && now <= latest {
		g.now = now
	}
}

// scales are two lengths of time that matter to one of the limits: per permit,
// and in all.
func (g *traffic) scales(l stint.Limit) (short, long stint.Instant) {
	switch {
	case l.IsBucket():
		each := float64(l.Rate.Period.Microseconds()) / float64(l.Rate.Permits)
		short, long = stint.Instant(math.Ceil(each)), stint.Instant(math.Ceil(each*float64(l.Capacity)))
	case l.Calendar != 0:
		units := [...]stint.Instant{minute, hour, 24 * hour, 7 * 24 * hour, 30 * 24 * hour, 365 * 24 * hour}
		long = units[l.Calendar-stint.CalendarMinute]
		short = min(long/4, hour)
	case l.MinInterval > 0 && g.oneIn(2):
		short, long = micros(l.MinInterval), micros(l.Window)
	case l.Window > 0:
		long = micros(l.Window)
		short = long/stint.Instant(l.Capacity) + 1
	default:
		return unknown[stint.Instant]("lengths of time", l.Algorithm), 0
	}
	return short, long
}

// policy draws a policy, at times what another one is changed to.
func (g *traffic) policy() *stint.Policy {
	policies := pick(g.chooser, g.policies...)
	if g.oneIn(4) {
		return pick(g.chooser, policies...)
	}
	return policies[0]
}

// limitOf draws one of a policy's limits.
func (g *traffic) limitOf(p *stint.Policy) stint.Limit { return p.Limit(g.intn(p.Len())) }

// op draws a valid operation.
func (g *traffic) op() stint.Op {
	verb := pick(
		g.chooser, stint.VerbTake, stint.VerbTake, stint.VerbTake, stint.VerbTake, stint.VerbTake, stint.VerbTake,
		stint.VerbTake, stint.VerbPeek, stint.VerbTry, stint.VerbSettle,
	)
	if g.oneIn(100) {
		verb = stint.VerbReset
	}
	if verb != stint.VerbSettle && g.oneIn(6) {
		if op, ok := g.ways(verb); ok {
			return op
		}
	}
	for {
		op := stint.Op{Verb: verb, Claim: g.claim(verb)}
		if g.oneIn(12) {
			for range 1 + g.intn(2) {
				op.And = append(op.And, g.claim(verb))
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

// claim draws a claim with what the verb is about.
func (g *traffic) claim(verb stint.Verb) stint.Claim {
	c := stint.Claim{Key: pick(g.chooser, g.keys...), Policy: g.policy()}
	l := g.limitOf(c.Policy)
	switch verb {
	case stint.VerbReset:
	case stint.VerbSettle:
		c.Permits = g.amount(l)
		if slices.ContainsFunc(
			c.Policy.Limits(),
			func(l stint.Limit) bool { return l.Algorithm == stint.AlgorithmLeakyBucket },
		) {
			c.Permits = max(1, c.Permits) // which can't be refunded
		}
	default: // a take, a try or a peek
		c.Permits = g.cost(l)
	}
	c.Keep = g.keep(l, c.Permits)
	if slices.ContainsFunc(c.Policy.Limits(), func(l stint.Limit) bool { return l.Denials }) {
		c.Keep = 0
	}
	return c
}

// keep draws how many permits a claim leaves to others: mostly none, else a few, nearly all that there are or that are
// left beside the claim's own, or more than there are.
func (g *traffic) keep(l stint.Limit, permits int64) int64 {
	beside := min(max(permits, 0), bounds.MaxPermits)
	keep := int64(0)
	switch n := g.intn(24); {
	case n < 16:
	case n < 18:
		keep = 1 + g.int64n(3)
	case n < 20:
		keep = g.recent.Remaining - beside + int64(g.intn(3)-1)
	case n < 21:
		keep = g.recent.Remaining + int64(g.intn(3)-1)
	case n < 22:
		keep = l.Capacity - beside + int64(g.intn(3)-1)
	case n < 23:
		keep = l.Capacity + int64(g.intn(3)-1)
	default:
		keep = pick(g.chooser, g.near(l.Capacity), bounds.MaxPermits)
	}
	return min(max(keep, 0), bounds.MaxPermits)
}

// cost draws the permits of a request.
func (g *traffic) cost(l stint.Limit) int64 {
	switch n := g.intn(40); {
	case n < 18:
		if l.Capacity > 1000 {
			return 1 + g.int64n(l.Capacity/2)
		}
		return 1
	case n < 26:
		return 1 + g.int64n(max(1, l.Capacity/3))
	case n < 32:
		return max(1, g.recent.Remaining+int64(g.intn(3)/2))
	case n < 36:
		return l.Capacity + int64(g.intn(4)/3)
	case n < 37:
		return pick[int64](g.chooser, bounds.MaxPermits+1, math.MaxInt64, math.MaxInt64-1, 1<<53)
	}
	return g.near(l.Capacity)
}

// amount draws the permits of a settlement.
func (g *traffic) amount(l stint.Limit) int64 {
	var n int64
	switch g.intn(8) {
	case 0, 1:
		n = 1 + g.int64n(3)
	case 2:
		n = l.Capacity + bounds.Debt(l.MaxDebt, l.Capacity) + int64(g.intn(3)-1)
	case 3:
		n = bounds.Debt(l.MaxDebt, l.Capacity) + int64(g.intn(2))
	case 4:
		n = pick[int64](g.chooser, math.MaxInt64, 2*bounds.MaxPermits, 2*bounds.MaxPermits+1, 1<<53)
		if g.oneIn(4) {
			return math.MinInt64
		}
	default:
		n = 1 + g.int64n(l.Capacity)
	}
	if g.oneIn(2) {
		n = -n
	}
	return n
}

// micros is a duration in microseconds.
func micros(d time.Duration) stint.Instant { return stint.Instant(d.Microseconds()) }

// unknown ends a test, as the package lacks something for an algorithm.
func unknown[T any](lacks string, a stint.Algorithm) T {
	panic("storetest has no " + lacks + " of " + a.String()) //nolint:forbidigo // no T is at hand to fail
}
