package oracle_test

import (
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/storetest"
)

var treeOperations = flag.Int("tree-operations", 5_000, "random operations on trees of floors")

// farthestBack is how far the clock is set back at most, in microseconds: states are kept for longer.
const farthestBack = 900_000

// treeEpisode is how many operations one tree gets.
const treeEpisode = 400

// A tree is an organisation with teams with users. Each is a token bucket. Those of teams and users are floors:
// what a user has of its floor nobody else can take. A request of a user is charged on the first of these ways
// that admits:
//
//   - its floor, its team's and the organisation's;
//   - its team's, without what the floors of the team's users may hold, and the organisation's;
//   - the organisation's, without what the floors of the teams may hold.
//
// The floors of one parent have at most the parent's capacity and rate together. Then, as long as all that is
// charged was admitted, and no floor is reset or changed:
//
//	level(parent) >= the sum of level(child), of those above 0, at every instant
//
// for each way takes as much off a parent as off its children, or leaves their capacities; a parent that is not
// full refills at least as fast as its children together; and a hold, of which nothing refills, is on a child and
// its parent, or leaves the children's capacities beside it. So a parent never denies what a floor holds.
//
// Otherwise floors may be late, by at most a number of permits for each parent:
//
//	level(parent) + late(parent) >= the sum of level(child), of those above 0
//
// It is 0 at first.
//
//   - A charge that is not asked (Settle, a Commit beyond its hold, a late one) of n permits adds n.
//   - A reset of a child of capacity C adds C, and so does a change of it, to C.
//   - A change of the parent itself, to C or from C, adds C.
//   - A step back of the clock adds what each child refills in that time, at most its capacity: a state that was changed
//     later stays at that time, and so refills nothing until the clock is there again, while others refill.
//   - When the parent is full, and the clock is where it was, all of it was paid back: it is 0 again; but a step back to
//     before that brings it back.
type tree struct {
	*testing.T
	rng   *rand.Rand
	clock *storetest.Clock
	store stint.Store
	model *oracle.Oracle
	nodes []*node // the organisation first
	holds []*treeHold
	log   []string
	ids   int

	overdrafts, resets, changes, back bool // what episodes do beside requests
	busy                              bool // little time passes, so that all that refills is taken

	blind bool // the store is not held to the model, but to the invariants alone

	highest, safe stint.Instant // the latest time, and that before which the clock is not set back
	period        time.Duration

	denied, borrowed, floored, late, lates int
}

// A node is the organisation, a team or a user.
type node struct {
	name     string
	parent   *node
	children []*node
	limit    stint.Limit
	policy   *stint.Policy
	other    *stint.Policy // of another version of the limit, which the store knows as long as this is here
	late     int64
	paid     int64         // of late, what was paid back
	paidAt   stint.Instant // when it was
	left     int64         // as the last peek said
}

// A treeHold is a hold of a node on one of its ways.
type treeHold struct {
	id      string
	of      *node
	via     int
	ttl     time.Duration
	keep    bool
	held    int64
	expires stint.Instant
	expired bool
}

func TestTreesInMemory(t *testing.T) { plant(t, memory, *treeOperations) }

func TestTreesInRedis(t *testing.T) { plant(t, inRedis(t), *treeOperations/20) }

// plant runs random operations on trees.
func plant(t *testing.T, open newStore, operations int) {
	begun, done, seed := time.Now(), 0, *firstSeed
	var sum tree
	for ; done < operations; seed++ {
		tr := newTree(t, open, seed)
		fault := ""
		for n := 0; n < treeEpisode && fault == ""; n++ {
			done++
			if fault = tr.step(); fault == "" {
				fault = tr.check()
			}
		}
		if fault != "" {
			from := max(0, len(tr.log)-60)
			t.Fatalf("seed %d (again: -seed %d -tree-operations 1):\n%s\n%s\n%s", seed, seed, tr, strings.Join(tr.log[from:], "\n"), fault)
		}
		sum.denied, sum.borrowed, sum.floored = sum.denied+tr.denied, sum.borrowed+tr.borrowed, sum.floored+tr.floored
		sum.late, sum.lates = sum.late+tr.late, sum.lates+tr.lates
	}
	t.Logf("%d operations in %v, seeds %d to %d: %d admitted by floors, %d by parents, %d denied; %d times a floor could be late, %d times one was",
		done, time.Since(begun).Round(time.Millisecond), *firstSeed, seed-1, sum.floored, sum.borrowed, sum.denied, sum.lates, sum.late)
}

func newTree(t *testing.T, open newStore, seed uint64) *tree {
	tr := &tree{T: t, rng: rand.New(rand.NewPCG(seed, 23)), clock: storetest.NewClock(dawn), model: oracle.New(1000)}
	tr.store = open(tr.clock, 1000, seed)
	switch tr.rng.IntN(6) { // the others do nothing beside
	case 0:
		tr.overdrafts = true
	case 1:
		tr.overdrafts, tr.resets = tr.rng.IntN(2) == 0, true
	case 2:
		tr.changes, tr.resets = true, tr.rng.IntN(2) == 0
	}
	tr.back, tr.busy = tr.rng.IntN(3) == 0, tr.rng.IntN(2) == 0
	tr.clock.Set(dawn + stint.Instant(tr.rng.Int64N(1_000_000_000)))
	tr.period = time.Duration(tr.pick(1_000_000, 7_000_000, 60_000_000, 1_000_000+tr.rng.Int64N(20_000_000))) * time.Microsecond
	capacity := 8 + tr.rng.Int64N(tr.pick(8, 60, 400))
	org := tr.add(nil, "org", capacity, 8+tr.rng.Int64N(tr.pick(4, 30, 1000)))
	teams := 1 + tr.rng.Int64N(3)
	capacities, rates := tr.share(org.limit.Capacity, teams, 2), tr.share(org.limit.Rate.Permits, teams, 2)
	for i := range teams {
		team := tr.add(org, fmt.Sprint("team", i), capacities[i], rates[i])
		users := 1 + tr.rng.Int64N(min(3, capacities[i], rates[i]))
		c, r := tr.share(capacities[i], users, 1), tr.share(rates[i], users, 1)
		for j := range users {
			tr.add(team, fmt.Sprintf("user%d.%d", i, j), c[j], r[j])
		}
	}
	tr.highest, tr.safe = tr.clock.Instant(), tr.clock.Instant()
	return tr
}

func (tr *tree) pick(of ...int64) int64 { return of[tr.rng.IntN(len(of))] }

// share divides a number into parts of at least the least; at times something is left.
func (tr *tree) share(total, parts, least int64) []int64 {
	list := make([]int64, parts)
	spare := total - parts*least
	if tr.rng.IntN(2) == 0 {
		spare = tr.rng.Int64N(spare + 1)
	}
	for i := range list {
		more := tr.rng.Int64N(spare + 1)
		if i == len(list)-1 && tr.rng.IntN(2) == 0 {
			more = spare
		}
		list[i], spare = least+more, spare-more
	}
	return list
}

func (tr *tree) add(parent *node, name string, capacity, rate int64) *node {
	n := &node{name: name, parent: parent}
	debt := tr.pick(0, 0, stint.NoDebt, 1+tr.rng.Int64N(capacity))
	tr.set(n, capacity, rate, debt)
	if tr.changes {
		tr.announce(n)
	}
	if parent != nil {
		parent.children = append(parent.children, n)
	}
	tr.nodes = append(tr.nodes, n)
	return n
}

// announce lets the store know another version of a limit, before its first change. While it knows several, a store keeps
// a full bucket until that is worth an untouched one to all of them, as the model does; while it knows one, only until it
// is full.
func (tr *tree) announce(n *node) {
	limit := n.limit
	limit.Capacity++
	n.other = must.Get(stint.NewPolicy(n.name, limit))(tr)
	claim := stint.Claim{Key: "nobody", Policy: n.other, Permits: 1}
	must.Get(tr.store.Decide(tr.Context(), stint.Op{Verb: stint.VerbPeek, Claim: claim}))(tr)
}

func (tr *tree) set(n *node, capacity, rate, debt int64) {
	n.limit = stint.TokenBucket(capacity, stint.Per(rate, tr.period))
	n.limit.MaxDebt = debt
	policy := must.Get(stint.NewPolicy(n.name, n.limit))(tr)
	n.policy = policy
}

// path is a node and those above it.
func (n *node) path() (list []*node) {
	for ; n != nil; n = n.parent {
		list = append(list, n)
	}
	return list
}

// floors is what the floors of a node's children may hold.
func (n *node) floors() (sum int64) {
	for _, c := range n.children {
		sum += c.limit.Capacity
	}
	return sum
}

func (n *node) claim(permits int64) stint.Claim {
	return stint.Claim{Key: "k", Policy: n.policy, Permits: permits}
}

// op is an operation of a node, in the ways that it may be charged.
func (n *node) op(verb stint.Verb, permits int64) stint.Op {
	path := n.path()
	if len(path) == 1 {
		c := n.claim(permits)
		c.Keep = n.floors()
		return stint.Op{Verb: verb, Claim: c, Extra: &stint.Extra{}}
	}
	var group []stint.Way
	for i, at := range path {
		c := at.claim(permits)
		c.Keep = at.floors()
		way := stint.Way{c}
		for _, above := range path[i+1:] {
			way = append(way, above.claim(permits))
		}
		group = append(group, way)
	}
	return stint.Op{Verb: verb, Extra: &stint.Extra{Groups: [][]stint.Way{group}}}
}

func (tr *tree) say(format string, args ...any) {
	tr.log = append(tr.log, fmt.Sprintf("%.6f: ", float64(tr.clock.Instant()-dawn)/1e6)+fmt.Sprintf(format, args...))
}

// String lists the tree.
func (tr *tree) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "overdrafts %t, resets %t, changes %t, back %t", tr.overdrafts, tr.resets, tr.changes, tr.back)
	for _, n := range tr.nodes {
		fmt.Fprintf(&b, "\n%s: %d, %v, debt %d, late %d, %d left", n.name, n.limit.Capacity, n.limit.Rate, bounds.Debt(n.limit.MaxDebt, n.limit.Capacity), n.late, n.left)
		fmt.Fprintf(&b, ", level %s by the model", tr.level(n).RatString())
	}
	return b.String()
}

// decide has the store decide an operation, and holds it to the model. It returns what both say, and in what they
// differ.
func (tr *tree) decide(op stint.Op) (d stint.Decision, want oracle.Answer, fault string) {
	if err := op.Validate(); err != nil {
		tr.Fatalf("%v: %s", err, oracle.Describe(op))
	}
	carried, now := oracle.Copy(op), tr.clock.Instant()
	carried.Each = make([]stint.Outcome, op.Limits())
	d, err := tr.store.Decide(tr.Context(), carried)
	if tr.blind {
		want = tr.model.Decide(op, now)
	} else if want, err = tr.model.Check(op, now, oracle.Got(carried, stint.Result{Decision: d, Err: err})); err == nil {
		err = want.Err
	}
	if err != nil {
		fault = err.Error()
	}
	if h := op.Hold(); h != nil {
		*h = *carried.Hold()
	}
	return d, want, fault
}

// level is what a node's bucket holds by the model, exactly; below 0 in debt.
func (tr *tree) level(n *node) *big.Rat {
	return tr.model.Level(n.policy, "k", tr.clock.Instant())
}

// check holds the store's peeks and the model's levels to the invariants.
func (tr *tree) check() string {
	for _, n := range tr.nodes {
		d, _, fault := tr.decide(stint.Op{Verb: stint.VerbPeek, Claim: n.claim(1)})
		if fault != "" {
			return fault
		}
		n.left = d.Remaining
		if tr.highest > n.paidAt+farthestBack {
			n.paid = 0
		}
		if d.ResetAfter == 0 && tr.clock.Instant() >= tr.highest && n.late > 0 {
			n.late, n.paid, n.paidAt = 0, n.paid+n.late, tr.clock.Instant()
		}
	}
	for _, n := range tr.nodes {
		if len(n.children) == 0 {
			continue
		}
		sum, held := int64(0), rat(0)
		for _, c := range n.children {
			sum += c.left
			held.Add(held, greater(tr.level(c), rat(0)))
		}
		if sum > n.left+n.late {
			return fmt.Sprintf("the floors of %s have %d left together, it has %d itself, and they may be late by %d", n.name, sum, n.left, n.late)
		}
		if has := tr.level(n); !tr.blind && !tr.changes && held.Cmp(has.Add(has, rat(n.late))) > 0 {
			return fmt.Sprintf("the floors of %s hold %s, it holds %s, with that by which they may be late", n.name, held.RatString(), has.RatString())
		}
		if n.late > 0 {
			tr.lates++
			if sum > n.left {
				tr.late++
			}
		}
	}
	for _, n := range tr.nodes[1:] {
		permits := n.left
		for _, above := range n.path()[1:] {
			permits -= above.late
		}
		if len(n.children) > 0 || permits < 1 {
			continue
		}
		if d, _, fault := tr.decide(n.op(stint.VerbPeek, permits)); fault != "" || !d.Allowed || d.Via != 0 {
			return fmt.Sprintf("%d of the %d that the floor of %s has left: %v, via %d, %s", permits, n.left, n.name, d, d.Via, fault)
		}
	}
	return ""
}

// The invariants find stores that are wrong in one point, though the model has no say, and nothing in one that is not.
func TestTreesFindFaults(t *testing.T) {
	each := func(change func(c *stint.Claim)) func(op *stint.Op) {
		return func(op *stint.Op) {
			for _, c := range oracle.Claims(op) {
				change(c)
			}
		}
	}
	for name, wrong := range map[string]func(op *stint.Op){
		"":                 func(*stint.Op) {},
		"nothing is kept":  each(func(c *stint.Claim) { c.Keep = 0 }),
		"one too few kept": each(func(c *stint.Claim) { c.Keep = max(0, c.Keep-1) }),
	} {
		found := ""
		for seed := uint64(0); seed < 20 && found == "" && (name != "" || seed < 3); seed++ {
			tr := newTree(t, func(clock *storetest.Clock, maxHolds int, _ uint64) stint.Store {
				return newModelled(oracle.Altering(wrong), clock, maxHolds)
			}, seed)
			if name != "" && (tr.overdrafts || tr.resets || tr.changes || tr.back) {
				continue
			}
			tr.blind = name != ""
			for n := 0; n < treeEpisode/2 && found == ""; n++ {
				if found = tr.step(); found == "" {
					found = tr.check()
				}
			}
		}
		if (found == "") != (name == "") {
			t.Errorf("%q: found %q", name, found)
		}
	}
}
