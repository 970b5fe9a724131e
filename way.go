package stint

import (
	"fmt"
	"time"

	"github.com/stint-go/stint/internal/least"
)

// A Way says how a claim stands to the claims before it in its operation. The zero value is that it
// has to admit, whatever else does.
//
// Claims can be alternatives: a group of ways, each of one or more claims, which are tried in order
// in the same atomic step. The first way whose limits all admit is charged, it alone, and the
// operation's answer says which (see [Decision.Via]). An operation is admitted if its claims of no
// group all admit, and a way of each group does.
//
// Ways of one group may share a state, under limits that are equal, and may keep different amounts
// of it. Nothing else in the operation may name that state. Ways can't have limits that count
// denied requests, leaky buckets or limits with leases.
type Way uint8

const (
	// Must is a claim of no group, and ends a group before it.
	Must Way = iota
	// Either begins a group of ways with its first.
	Either
	// With adds the claim to the way of the claim before it.
	With
	// Else begins the next way of the group.
	Else
	// Aside is not for claims: a store passes over a limit of a way that a hold is not on (see [BindWays]).
	Aside
)

// MaxWays bounds the ways of a group.
const MaxWays = 8

// String is the way's name in lower case.
func (w Way) String() string {
	if int(w) >= len(wayNames) {
		return "unknown"
	}
	return wayNames[w]
}

var wayNames = [...]string{"must", "either", "with", "else", "aside"}

// HasWays reports whether the operation has alternatives.
func (op *Op) HasWays() bool {
	for i := range op.Claims() {
		if op.NthClaim(i).Way != Must {
			return true
		}
	}
	return false
}

// validateWays reports what is wrong with the operation's ways.
func (op *Op) validateWays() error {
	before, ways := Must, 0
	for i := range op.Claims() {
		claim := op.NthClaim(i)
		switch claim.Way {
		case Either:
			ways = 1
		case Else:
			ways++
		default:
		}
		switch {
		case ways > MaxWays:
			return Invalid("way", ways, fmt.Sprintf("at most %d ways of one group", MaxWays))
		case claim.Way > Else:
			return Invalid("way", uint8(claim.Way), "must, either, with or else")
		case claim.Way == Must:
		case claim.Way >= With && before == Must:
			return Invalid("way", claim.Way, "either, since no way is before the claim")
		case op.Verb == Settle:
			return Invalid("way", claim.Way, "the claims of the way that was charged alone, without ways (see Decision.Via)")
		default:
			if claim.Policy.notWay != nil {
				return claim.Policy.notWay
			}
		}
		before = claim.Way
	}
	return nil
}

// canBeWay reports why the policy can't be decided as one of several ways.
func (p *Policy) canBeWay() error {
	for _, l := range p.limits {
		switch {
		case l.CountDenied:
			return Invalid("count_denied", true,
				"a limit that counts no denied requests, since a way may deny and another admit")
		case l.Algorithm == AlgorithmLeakyBucket:
			return Invalid("algorithm", l.Algorithm, "one without a queue, since of several ways one is taken")
		case l.Lease != 0:
			return Invalid("lease", l.Lease, "a limit without a lease, since the ways are tried together")
		}
	}
	return nil
}

// canShare reports whether two claims of one key may name states in common, as claims i and j of
// the operation: those of two ways of one group, under equal limits.
func (op *Op) canShare(i, j int) bool {
	elsewhere := false
	for k := i + 1; k <= j; k++ {
		switch op.NthClaim(k).Way {
		case With:
		case Else:
			elsewhere = true
		default:
			return false
		}
	}
	if !elsewhere || op.NthClaim(i).Way == Must {
		return false
	}
	p, q := op.NthClaim(i).Policy, op.NthClaim(j).Policy
	if p == q {
		return true
	}
	for _, a := range p.limits {
		for _, b := range q.limits {
			if a.Name == b.Name && a.Algorithm == b.Algorithm && a != b {
				return false
			}
		}
	}
	return true
}

// Ways is the way of each limit of the operation; nil if it has no ways. It is for stores.
func (op *Op) Ways() []Way { return op.AppendWays(nil) }

// AppendWays appends the way of each limit of the operation to a list; it returns nil if there are
// no ways. It is for stores.
func (op *Op) AppendWays(list []Way) []Way {
	if !op.HasWays() {
		return nil
	}
	for i := range op.Claims() {
		claim := op.NthClaim(i)
		way := claim.Way
		for range claim.Policy.limits {
			list = append(list, way)
			if way != Must {
				way = With
			}
		}
	}
	return list
}

// Combine is the decision of the operation, of its limits' outcomes. It is for stores.
//
// Of a Settle, Applied is the least of the limits that it concerns: those without a cost of their own, whose permits
// are not places. It is 0 if there is none.
func (op *Op) Combine(outcomes []Outcome, at Instant) Decision {
	if ways := op.Ways(); ways != nil {
		return CombineWays(outcomes, ways, at)
	}
	d := Combine(outcomes, at)
	if op.Verb == Settle {
		d.Applied = op.settled(outcomes)
	}
	return d
}

// settled is the least that a Settle has applied.
func (op *Op) settled(outcomes []Outcome) int64 {
	var all least.Applied
	i := 0
	for c := range op.Claims() {
		for _, l := range op.NthClaim(c).Policy.limits {
			if l.Cost == 0 && l.Algorithm != AlgorithmConcurrency {
				all.Add(outcomes[i].Applied)
			}
			i++
		}
	}
	return all.N
}

// firstWays is how many ways the operation's first group has; 0 if it has none.
func (op *Op) firstWays() (n int) {
	for i := range op.Claims() {
		switch op.NthClaim(i).Way {
		case Either:
			if n > 0 {
				return n
			}
			n = 1
		case Else:
			n++
		case Must:
			if n > 0 {
				return n
			}
		default: // of the way before it
		}
	}
	return n
}

// groupEnd is where the limits of a group of ways end that begins at a limit, and wayEnd where those of a way end.
func groupEnd(ways []Way, at int) int {
	for at++; at < len(ways) && (ways[at] == With || ways[at] == Else); at++ {
	}
	return at
}

// wayEnd is where the alternative that begins at a claim ends: behind the claims that go With it.
func wayEnd(ways []Way, at int) int {
	for at++; at < len(ways) && ways[at] == With; at++ {
	}
	return at
}

// Choose finds the limits that an operation charges, from what each says and its way: it marks them
// as taken, unless that is nil, and reports whether the operation is admitted. It is for stores.
func Choose(outcomes []Outcome, ways []Way, taken []bool) (allowed bool) {
	allowed, _ = choose(outcomes, ways, taken)
	return allowed
}

// choose is Choose with the way of the first group that admits.
func choose(outcomes []Outcome, ways []Way, taken []bool) (allowed bool, via uint8) {
	allowed = true
	clear(taken)
	for at, groups := 0, 0; at < len(ways); {
		from, to, found := at, at+1, outcomes[at].Allowed
		switch at = to; ways[from] {
		case Must:
		case Aside:
			from, found = to, true // nothing is taken
		default:
			number := uint8(0)
			for to, found = wayAdmits(outcomes, ways, from); !found && to < len(ways) && ways[to] == Else; number++ {
				from = to
				to, found = wayAdmits(outcomes, ways, from)
			}
			if groups++; groups == 1 && found {
				via = number
			}
			at = groupEnd(ways, to-1)
		}
		if allowed = allowed && found; taken != nil && found {
			for i := from; i < to; i++ {
				taken[i] = true
			}
		}
	}
	return allowed, via
}

// wayAdmits reports whether the way admits that begins at a limit, and where it ends.
func wayAdmits(outcomes []Outcome, ways []Way, at int) (end int, admits bool) {
	for admits = outcomes[at].Allowed; ; {
		if at++; at == len(ways) || ways[at] != With {
			return at, admits
		}
		admits = admits && outcomes[at].Allowed
	}
}

// BindWays binds an operation on a hold to the ways that it is on, those with a limit that on
// reports: their limits have to admit, and those of the group's other ways are passed over. A group
// of which it is on no way stays open. It returns the number of the first group's way. It is for
// stores.
func BindWays(ways []Way, on func(limit int) bool) (via uint8) {
	first := true
	for at := 0; at < len(ways); {
		if ways[at] == Must {
			at++
			continue
		}
		end := groupEnd(ways, at)
		number, bound, from, to := uint8(0), false, at, at
		for ; to < end && !bound; number++ {
			from, to = to, wayEnd(ways, to)
			for i := from; i < to; i++ {
				bound = bound || on(i)
			}
		}
		for i := at; i < end && bound; i++ {
			if ways[i] = Aside; i >= from && i < to {
				ways[i] = Must
			}
		}
		if first && bound {
			via = number - 1
		}
		first, at = false, end
	}
	return via
}

// CombineWays is [Combine] for an operation with ways. Denied, a group waits as long as the way
// that waits least, whose limit with the longest wait decides. Admitted, a group has left what the
// way has that has most, whose limit with the least Remaining decides. It is for stores.
func CombineWays(outcomes []Outcome, ways []Way, at Instant) Decision {
	allowed, via := choose(outcomes, ways, nil)
	decider, delay := -1, time.Duration(0)
	for i := 0; i < len(ways); { // the best way of each group, and of those the worst
		best := i
		switch ways[i] {
		case Must:
			delay = max(delay, outcomes[i].Delay)
			i++
		case Aside:
			i++
			continue
		default:
			best, i = worstOf(outcomes, ways, i, allowed)
			for i < len(ways) && ways[i] == Else {
				var worst int
				if worst, i = worstOf(outcomes, ways, i, allowed); outcomes[best].worse(&outcomes[worst], allowed) {
					best = worst
				}
			}
		}
		if decider < 0 || outcomes[best].worse(&outcomes[decider], allowed) {
			decider = best
		}
	}
	o := &outcomes[decider]
	if !allowed {
		return Decision{
			Index: int16(decider), Limit: o.Limit, Remaining: o.Remaining, RetryAfter: o.RetryAfter,
			ResetAfter: o.ResetAfter, At: at,
		}
	}
	return Decision{
		Allowed: true, Index: int16(decider), Via: via, Limit: o.Limit, Remaining: o.Remaining, ResetAfter: o.ResetAfter,
		Delay: delay, At: at,
	}
}

// worstOf is the limit of a way that decides it, the first of several, and where the way ends.
func worstOf(outcomes []Outcome, ways []Way, at int, allowed bool) (worst, end int) {
	worst = at
	for at++; at < len(ways) && ways[at] == With; at++ {
		if outcomes[at].worse(&outcomes[worst], allowed) {
			worst = at
		}
	}
	return worst, at
}

// worse reports whether a limit has less left than another one, or, where the operation is denied, a longer wait.
func (o *Outcome) worse(than *Outcome, allowed bool) bool {
	if allowed {
		return o.Remaining < than.Remaining
	}
	return o.RetryAfter > than.RetryAfter
}
