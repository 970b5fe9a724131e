package oracle_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/oracle"
)

// A generator draws the operations of one episode. Some things happen in some episodes only, so that in the others the
// ledger can say more.
type generator struct {
	t        *testing.T
	rng      *rand.Rand
	maxHolds int
	many     bool // large capacities, and hundreds of holds
	back     bool // the clock is set back at times
	refunds  bool // Settle refunds, too
	changes  bool // a policy has several versions
	resets   bool
	keeps    bool              // claims leave permits to others at times
	ways     bool              // claims are alternatives at times; no policy has a leaky bucket
	blocks   []*stint.Policy   // versions of a policy that counts denials, of which nothing is held; nil in most episodes
	shapes   [][]*stint.Policy // policies of one name each, whose limits differ in their parameters
	ids      int
	next     int
	keys     []string
	latest   stint.Instant
}

func newGenerator(t *testing.T, seed uint64) *generator {
	g := &generator{t: t, rng: rand.New(rand.NewPCG(seed, 11))}
	g.maxHolds = 2 + g.rng.IntN(5)
	if g.many = g.rng.IntN(12) == 0; g.many {
		g.maxHolds = 90 + g.rng.IntN(100)
	}
	g.back, g.refunds = g.rng.IntN(2) == 0, g.rng.IntN(2) == 0
	g.changes, g.resets = g.rng.IntN(5) > 1, g.rng.IntN(3) > 0
	g.keeps = g.rng.IntN(3) > 0
	g.ids = 3 + g.rng.IntN(6)
	g.keys = []string{"k", "other"}[:1+g.rng.IntN(2)]
	g.ways = !*noWays && g.rng.IntN(2) == 0
	g.shapes = append(g.shapes, g.policies("p"))
	if g.rng.IntN(3) == 0 || g.ways {
		g.shapes = append(g.shapes, g.policies("q"))
	}
	if g.ways {
		g.shapes = append(g.shapes, g.policies("r"))
	}
	if g.rng.IntN(3) == 0 {
		g.blocks = g.blocking()
	}
	return g
}

// episode lets a run do random steps until they are enough, or the store differs from the model. At the end all
// holders die: after the longest ttl all that they held is looked at.
func (g *generator) episode(r *run) (fault string) {
	r.clock.Set(dawn + stint.Instant(g.rng.Int64N(1_000_000_000)))
	for r.operations < episodeLength {
		g.pass(r)
		s := step{at: r.clock.Instant()}
		if g.resets && g.rng.IntN(200) == 0 {
			s.reset = &stint.Scope{All: g.rng.IntN(4) == 0, Policy: "p"}
		} else {
			s.ops = make([]stint.Op, 1)
			if g.rng.IntN(4) == 0 {
				s.ops = make([]stint.Op, 1+g.rng.IntN(6))
			}
			for i := range s.ops {
				s.ops[i] = g.op(r)
			}
		}
		if fault, goOn := r.do(s); fault != "" || !goOn {
			return fault
		}
	}
	end := max(g.latest, r.clock.Instant())
	for _, p := range r.told {
		end = max(end, p.expiresAt)
	}
	last := step{at: end}
	for _, key := range g.keys {
		for _, versions := range g.shapes {
			claim := stint.Claim{Key: key, Policy: versions[len(versions)-1], Permits: 1}
			last.ops = append(last.ops, stint.Op{Verb: stint.VerbPeek, Claim: claim}, stint.Op{
				Verb: stint.VerbList, Claim: claim, Extra: &stint.Extra{Live: new([]stint.Hold)},
			})
		}
	}
	fault, _ = r.do(last)
	return fault
}

// pass lets time pass, and at times sets the clock back, by less than the margin for which states are kept.
func (g *generator) pass(r *run) {
	if g.rng.IntN(3) > 0 {
		most := g.pick(1, 1000, 300_000, 2_000_000, 2_000_000, 20_000_000)
		if g.rng.IntN(40) == 0 {
			most = 200_000_000
		}
		r.clock.Advance(time.Duration(1+g.rng.Int64N(most)) * time.Microsecond)
	}
	if g.rng.IntN(6) == 0 { // to the instant of an expiry, and one microsecond around it
		if at := r.told[g.id()].expiresAt + stint.Instant(g.rng.IntN(3)-1); at > r.clock.Instant() {
			r.clock.Set(at)
		}
	}
	g.latest = max(g.latest, r.clock.Instant())
	if g.back && g.rng.IntN(16) == 0 {
		back := 1 + g.rng.Int64N(g.pick(1, 100_000, 900_000))
		r.clock.Set(max(r.clock.Instant()-stint.Instant(back), g.latest-900_000))
	}
}

func (g *generator) pick(of ...int64) int64 { return of[g.rng.IntN(len(of))] }

func (g *generator) id() string {
	if g.many && g.rng.IntN(3) > 0 {
		g.next++
		return fmt.Sprint("m", g.next)
	}
	if g.rng.IntN(6) == 0 {
		g.next++
	}
	return fmt.Sprint("h", g.next/4*4+g.rng.IntN(g.ids))
}

func (g *generator) claim(shape int) stint.Claim {
	versions := g.shapes[shape]
	key := g.keys[0]
	if g.rng.IntN(4) == 0 {
		key = g.keys[len(g.keys)-1]
	}
	c := stint.Claim{Key: key, Policy: versions[g.rng.IntN(len(versions))], Permits: 1 + g.rng.Int64N(4)}
	g.keep(&c)
	return c
}

// keep draws how many permits a claim leaves to others: mostly none, in some episodes always.
func (g *generator) keep(c *stint.Claim) {
	c.Keep = 0
	if g.keeps && g.rng.IntN(3) == 0 {
		capacity := c.Policy.Limit(g.rng.IntN(c.Policy.Len())).Capacity
		c.Keep = g.pick(1+g.rng.Int64N(3), g.rng.Int64N(capacity+2), max(0, capacity-c.Permits+g.rng.Int64N(3)-1))
	}
}

// claims are one claim or two, or have alternatives.
func (g *generator) claims() (op stint.Op) {
	if g.ways && g.rng.IntN(4) > 0 {
		return g.alternatives()
	}
	first := 0
	if len(g.shapes) > 1 && g.rng.IntN(5) == 0 {
		first = 1
	}
	op.Claim = g.claim(first)
	if len(g.shapes) > 1 && g.rng.IntN(2) == 0 {
		op.And = append(op.And, g.claim(1-first))
	}
	return op
}

// alternatives are claims with a group of ways: mostly a floor and its parent, else the parent without what it keeps. At
// times the last way is empty, and then the only other one may be short.
func (g *generator) alternatives() (op stint.Op) {
	order := g.rng.Perm(len(g.shapes))
	parent, child := g.claim(order[0]), g.claim(order[1])
	child.Permits, child.Keep = parent.Permits, 0
	if g.rng.IntN(3) == 0 {
		op.Claim = g.claim(order[2])
	}
	var group []stint.Way
	for range 1 + g.rng.IntN(5)/4 {
		group = append(group, stint.Way{child, parent})
		child.Key = g.keys[g.rng.IntN(len(g.keys))]
		g.keep(&parent)
	}
	group = append(group, stint.Way{parent})
	if g.rng.IntN(3) == 0 { // one that is charged if it fits
		if g.rng.IntN(2) == 0 {
			group = group[len(group)-1:]
		}
		group = append(group, nil)
	}
	groups := [][]stint.Way{group}
	if last := len(group) - 1; g.rng.IntN(5) == 0 {
		switch c := g.claim(order[2]); g.rng.IntN(5) {
		case 0:
			groups = append(groups, []stint.Way{{c}})
		case 1:
			groups = append(groups, []stint.Way{{c}, nil})
		case 2:
			groups[0] = slices.Insert(group, last, stint.Way{c})
		case 3:
			group[0] = append(group[0], c)
		case 4:
			if op.Policy == nil {
				op.Claim = c
			} else {
				op.And = []stint.Claim{c}
			}
		}
	}
	op.Extra = &stint.Extra{Groups: groups}
	if check := holding(op, &stint.HoldOp{Hold: stint.Hold{ID: "h"}}); !isValid(check, stint.VerbReserve) { // a state is named where it may not be
		return g.alternatives()
	}
	return op
}

// holding is an operation on a hold.
func holding(op stint.Op, h *stint.HoldOp) stint.Op {
	op.Extra = &stint.Extra{Groups: op.Groups(), Hold: h}
	return op
}

func isValid(op stint.Op, verb stint.Verb) bool {
	op.Verb = verb
	return op.Validate() == nil
}

// again are the claims of a hold as its holder knows them, in one case of three by other versions of their policies.
func (g *generator) again(op stint.Op) stint.Op {
	op = oracle.Copy(op)
	op.Verb = stint.VerbTake
	other := map[string]*stint.Policy{} // ways that share a state have the same version
	for _, versions := range g.shapes {
		if g.rng.IntN(3) == 0 {
			other[versions[0].Name()] = versions[g.rng.IntN(len(versions))]
		}
	}
	for _, c := range oracle.Claims(&op) {
		if p := other[c.Policy.Name()]; p != nil {
			c.Policy = p
		}
		if g.rng.IntN(4) == 0 {
			g.keep(c)
		}
	}
	return op
}

func (g *generator) op(r *run) (op stint.Op) {
	kind := g.rng.IntN(40)
	if g.many && kind >= 22 && g.rng.IntN(4) > 0 {
		kind = 10
	}
	h := &stint.HoldOp{Hold: stint.Hold{ID: g.id()}}
	if n := len(r.recent); kind >= 20 && n > 0 && g.rng.IntN(8) > 0 { // one that was reserved of late
		h.ID = r.recent[n-1-min(n-1, g.rng.IntN(8))]
	}
	known, isKnown := r.told[h.ID]
	if op = g.claims(); isKnown && kind >= 9 && g.rng.IntN(6) > 0 {
		op = g.again(known.op)
	}
	if kind < 9 {
		g.without(&op, kind)
		return g.turned(op)
	}
	op = holding(op, h)
	claims := oracle.Claims(&op)
	switch {
	case kind < 24:
		op.Verb = stint.VerbReserve
		g.ttl(h)
		h.OnExpiry = g.rng.IntN(3) == 0
		if g.rng.IntN(3) == 0 {
			g.permits(&op, func() int64 { return 1 + g.rng.Int64N(9) })
		}
	case kind == 24:
		op = holding(stint.Op{Verb: stint.VerbDrop, Claim: *claims[g.rng.IntN(len(claims))]}, h)
	default:
		op.Verb = stint.VerbCommit
		same := isKnown && g.rng.IntN(3) == 0 // as much as was reserved last
		last := oracle.Claims(&known.op)
		for i, c := range claims {
			if c.Permits = g.rng.Int64N(7); same && i < len(last) {
				c.Permits = last[i].Permits
			}
			if kind > 35 {
				op.Verb, c.Permits = stint.VerbCancel, 0
			}
		}
		g.knowledge(r, h, known)
		if op.Validate() != nil { // it has other ways than it was told
			h.Via = 0
		}
	}
	return g.turned(op)
}

// turned is an operation with its claims in another order at times: that is no other operation.
func (g *generator) turned(op stint.Op) stint.Op {
	if len(op.And) == 1 && g.rng.IntN(6) == 0 {
		op.Claim, op.And = op.And[0], []stint.Claim{op.Claim}
	}
	if groups := op.Groups(); groups != nil && len(groups[0][0]) == 2 && g.rng.IntN(6) == 0 {
		slices.Reverse(groups[0][0])
	}
	return op
}

// without draws an operation without a hold.
func (g *generator) without(op *stint.Op, kind int) {
	needs, leaky := false, false
	for _, c := range oracle.Claims(op) {
		needs = needs || c.Policy.NeedsReserve()
		for _, l := range c.Policy.Limits() {
			leaky = leaky || l.Algorithm == stint.AlgorithmLeakyBucket
		}
	}
	if g.blocks != nil && kind != 7 && g.rng.IntN(3) > 0 {
		c := stint.Claim{Key: g.keys[0], Policy: g.blocks[g.rng.IntN(len(g.blocks))], Permits: 1 + g.rng.Int64N(4)}
		if op.Policy == nil { // there are groups alone
			op.Claim = c
		} else {
			op.And = append(slices.Clone(op.And), c)
		}
	}
	switch {
	case kind == 0:
		op.Verb = stint.VerbPeek
		if g.resets && g.rng.IntN(2) == 0 {
			op.Verb = stint.VerbReset
		}
	case kind < 5 && !needs:
		op.Verb = stint.VerbTake
		if g.rng.IntN(4) == 0 {
			op.Verb = stint.VerbTry
		}
	case kind < 7 && kind > 4 && op.Groups() == nil:
		op.Verb = stint.VerbSettle
		g.permits(op, func() int64 {
			n := g.rng.Int64N(4) + 1
			if g.refunds && !leaky && g.rng.IntN(2) == 0 {
				return -n
			}
			return n
		})
	case kind == 7:
		*op = stint.Op{Verb: stint.VerbList, Claim: *op.First(), Extra: &stint.Extra{Live: new([]stint.Hold)}}
	default:
		op.Verb = stint.VerbPeek
	}
}

func (g *generator) permits(op *stint.Op, draw func() int64) {
	for _, c := range oracle.Claims(op) {
		c.Permits = draw()
	}
}

// knowledge is what whoever ends a hold says of it: mostly what the last Reserve answered.
func (g *generator) knowledge(r *run, h *stint.HoldOp, known promise) {
	switch g.rng.IntN(8) {
	case 0: // nothing
	case 1: // something wrong
		h.ExpiresAt = max(1, r.clock.Instant()+stint.Instant(g.rng.Int64N(200_000_000)-150_000_000))
		g.ttl(h)
	default:
		h.ExpiresAt, h.TTL, h.Via = known.expiresAt, known.ttl, known.via
	}
}

func (g *generator) ttl(h *stint.HoldOp) {
	switch g.rng.IntN(8) {
	case 0:
		h.TTL = 0
	case 1:
		h.TTL = bounds.MinHoldTTL
	case 2:
		h.TTL = time.Duration(20_000_000+g.rng.Int64N(100_000_000)) * time.Microsecond
	default:
		h.TTL = time.Second + time.Duration(g.rng.Int64N(9_000_000))*time.Microsecond
	}
	if g.many {
		h.TTL = 30*time.Second + time.Duration(g.rng.Int64N(60_000_000))*time.Microsecond
	}
}
