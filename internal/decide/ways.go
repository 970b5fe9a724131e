// Package decide carries out an operation on several limits whose states are loaded, or whose answers are known: it
// asks them, chooses among alternatives, charges, and says what is left. It knows no lock, clock or store.
package decide

import (
	"math"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// Aside stands in the place of a way's number at a limit that an operation on a hold passes over, since the hold is on
// another way of the group (see [Bind]).
const Aside = ^uint16(0)

// PerGroup is the difference between the numbers of the first ways of two groups (see [stint.WayNumber]).
const PerGroup = 16

// groupOf is a way's group, from 1; 0 of a limit of none. placeOf is the way's place in it, from 0.
func groupOf(way uint16) uint16 { return way / PerGroup }
func placeOf(way uint16) uint8  { return uint8(way % bounds.MaxWays) }

// SameGroup reports whether two ways are of one group.
func SameGroup(a, b uint16) bool { return groupOf(a) == groupOf(b) }

// IsOptional reports whether a way's group has a last way that is empty.
func IsOptional(way uint16) bool { return way%PerGroup >= bounds.MaxWays }

// isChoice reports whether a limit is of a group that is to be chosen among.
func isChoice(way uint16) bool { return way != 0 && way != Aside }

// Ways appends the number of each limit's way to a list, and nothing if the operation has no groups.
func Ways(op *stint.Op, list []uint16) []uint16 {
	if op.Groups() == nil {
		return list
	}
	for nth := range op.Len() {
		claim, way := op.NthClaim(nth)
		for range claim.Policy.Len() {
			list = append(list, way)
		}
	}
	return list
}

// endOfWay is where the limits end that are of the way of the limit at a place.
func endOfWay(ways []uint16, at int) (end int) {
	for end = at + 1; end < len(ways) && ways[end] == ways[at]; end++ {
	}
	return end
}

// endOfGroup is where those end that are of its group, which is to be chosen among.
func endOfGroup(ways []uint16, at int) (end int) {
	for end = at + 1; end < len(ways) && SameGroup(ways[end], ways[at]); end++ {
	}
	return end
}

// Append adds a claim to an operation by the number of its way: claims come in their order.
func Append(op *stint.Op, claim stint.Claim, way uint16) {
	switch {
	case way == 0 && op.Policy == nil:
		op.Claim = claim
		return
	case way == 0:
		op.And = append(op.And, claim)
		return
	case op.Extra == nil:
		op.Extra = new(stint.Extra)
	}
	groups := op.Extra.Groups
	if int(groupOf(way)) > len(groups) {
		var group []stint.Way
		if IsOptional(way) {
			group = []stint.Way{nil} // the empty one, before which the others are put
		}
		groups = append(groups, group)
	}
	group := groups[len(groups)-1]
	if at := int(placeOf(way)); at < len(group) && len(group[at]) > 0 {
		group[at] = append(group[at], claim)
	} else {
		group = slices.Insert(group, at, stint.Way{claim})
	}
	groups[len(groups)-1] = group
	op.Extra.Groups = groups
}

// Admit reports whether all limits do.
func Admit(outs []stint.Outcome) bool {
	for i := range outs {
		if !outs[i].Allowed {
			return false
		}
	}
	return true
}

// Choose finds the limits that an operation charges, from what each says and its way: it marks them as taken, unless
// that is nil, and reports whether the operation is admitted, and by which way of its first group.
func Choose(outs []stint.Outcome, ways []uint16, taken []bool) (allowed bool, via uint8) {
	allowed = true
	clear(taken)
	for at := 0; at < len(ways); {
		from, to, end := at, at+1, at+1
		found := ways[at] == Aside || outs[at].Allowed
		if isChoice(ways[at]) {
			end = endOfGroup(ways, at)
			from, to, found = firstThatAdmits(outs, ways, at, end)
			if groupOf(ways[at]) == 1 && found {
				via = numberOf(ways, from, end)
			}
		}
		allowed = allowed && found
		for i := from; i < to && found && taken != nil; i++ {
			taken[i] = ways[i] != Aside
		}
		at = end
	}
	return allowed, via
}

// firstThatAdmits finds the first way of a group that admits: its limits, none of the empty way.
func firstThatAdmits(outs []stint.Outcome, ways []uint16, at, end int) (from, to int, found bool) {
	for from = at; from < end; from = to {
		if to = endOfWay(ways, from); Admit(outs[from:to]) {
			return from, to, true
		}
	}
	return end, end, IsOptional(ways[at])
}

// numberOf is the number of the way whose limits begin at a place, or, at the group's end, of the empty one.
func numberOf(ways []uint16, from, end int) uint8 {
	if from < end {
		return placeOf(ways[from])
	}
	return placeOf(ways[end-1]) + 1
}

// Bind binds an operation on a hold to the ways that it is on, those with a limit that on reports: their limits have to
// admit, and those of the group's other ways are passed over. A group of which it is on no way stays open. It returns
// the number of the first group's way.
func Bind(ways []uint16, on func(limit int) bool) (via uint8) {
	for at := 0; at < len(ways); {
		if !isChoice(ways[at]) {
			at++
			continue
		}
		end, group := endOfGroup(ways, at), groupOf(ways[at])
		for i := at; i < end; i++ {
			if on(i) {
				number := placeOf(ways[i])
				BindGroup(ways[at:end], number)
				if group == 1 {
					via = number
				}
				break
			}
		}
		at = end
	}
	return via
}

// BindGroup binds an operation to the way of a number of the group that all of these limits are of, to none of them if
// that is the empty way.
func BindGroup(ways []uint16, number uint8) {
	for i := range ways {
		if placeOf(ways[i]) == number {
			ways[i] = 0
		} else {
			ways[i] = Aside
		}
	}
}

// BindTo binds an operation to the way of a number of its first group, and, if that is all that is known of it, to the
// first ways of the others.
func BindTo(ways []uint16, via uint8, others bool) {
	for at := 0; at < len(ways); {
		if !isChoice(ways[at]) {
			at++
			continue
		}
		end := endOfGroup(ways, at)
		switch {
		case groupOf(ways[at]) == 1:
			BindGroup(ways[at:end], via)
		case others:
			BindGroup(ways[at:end], 0)
		}
		at = end
	}
}

// PassOver binds an operation to none of the ways of the groups that are still open, and returns what is the first
// one's empty way then.
func PassOver(ways []uint16) (via uint8) {
	for i := range ways {
		if !isChoice(ways[i]) {
			continue
		}
		if groupOf(ways[i]) == 1 {
			via = placeOf(ways[i]) + 1
		}
		ways[i] = Aside
	}
	return via
}

// Combine makes the decision of an operation from its limits' outcomes, of which there is at least one, and the numbers
// of their ways, nil without groups. All must allow, and a way of each group. The deciding limit is, on denial, the one
// with the longest wait, otherwise the one with the least Remaining, the first on a tie. Denied, a group waits as long
// as the way that waits least; admitted, it has left what the way has that is charged. A group that may charge nothing
// does not decide. In formulas without groups, for outcomes o:
//
//	Allowed   = all o.Allowed
//	decider   = Allowed ? argmin o.Remaining : argmax o.RetryAfter, the first of equals
//	Applied   = the o.Applied of the least magnitude
//	Delay     = max o.Delay if Allowed
func Combine(outs []stint.Outcome, ways []uint16, at stint.Instant) stint.Decision {
	if len(ways) == 0 {
		return combine(outs, nil, Admit(outs), 0, at)
	}
	allowed, via := Choose(outs, ways, nil)
	return combine(outs, ways, allowed, via, at)
}

// Single is the decision of an operation from the outcome of its only limit. Like those of algorithms, it has a
// RetryAfter only if it denies, and a Delay only if it allows.
func Single(o *stint.Outcome, at stint.Instant) stint.Decision {
	return stint.Decision{
		Allowed: o.Allowed, Limit: o.Limit, Remaining: o.Remaining, RetryAfter: o.RetryAfter,
		ResetAfter: o.ResetAfter, Delay: o.Delay, Applied: o.Applied, At: at,
	}
}

// combine is Combine where it is known what was chosen.
func combine(outs []stint.Outcome, ways []uint16, allowed bool, via uint8, at stint.Instant) (d stint.Decision) {
	d.Allowed, d.Via, d.At = allowed, via, at
	var applied Least
	decider := 0
	if len(ways) == 0 {
		for i := range outs {
			applied.Add(outs[i].Applied)
			d.Delay = max(d.Delay, outs[i].Delay)
			if isWorse(&outs[i], &outs[decider], allowed) {
				decider = i
			}
		}
	} else {
		decider, d.Delay = deciderOf(outs, ways, allowed)
	}
	o := &outs[decider]
	d.Index, d.Applied = int16(decider), applied.N // #nosec G115 -- MaxOpLimits bounds it
	d.Limit, d.Remaining, d.ResetAfter = o.Limit, o.Remaining, o.ResetAfter
	if !d.Allowed {
		d.RetryAfter, d.Delay, d.Via = o.RetryAfter, 0, 0
	}
	return d
}

// deciderOf finds the limit that decides an operation with groups: of each group that of the way that is charged, or on
// denial of the one that waits least, and of these the worst. It returns the longest delay of the limits of no group,
// too, since no way has any.
func deciderOf(outs []stint.Outcome, ways []uint16, allowed bool) (decider int, delay time.Duration) {
	decider = -1
	for i := 0; i < len(ways); {
		best := i
		switch ways[i] {
		case Aside:
			i++
			continue
		case 0:
			delay = max(delay, outs[i].Delay)
			i++
		default:
			end, optional := endOfGroup(ways, i), IsOptional(ways[i])
			at := i
			if i = end; optional {
				continue
			}
			if from, to, _ := firstThatAdmits(outs, ways, at, end); allowed {
				best = worstOf(outs, from, to, true)
			} else {
				best = soonestOf(outs, ways, at, end)
			}
		}
		if decider < 0 || isWorse(&outs[best], &outs[decider], allowed) {
			decider = best
		}
	}
	return max(0, decider), delay
}

// soonestOf is the limit that decides a group that denies: the worst of the way that waits least, the first of equals.
func soonestOf(outs []stint.Outcome, ways []uint16, at, end int) (best int) {
	best = -1
	for from, to := at, 0; from < end; from = to {
		to = endOfWay(ways, from)
		if worst := worstOf(outs, from, to, false); best < 0 || isWorse(&outs[best], &outs[worst], false) {
			best = worst
		}
	}
	return best
}

// worstOf is the worst of the limits of a way, the first of equals.
func worstOf(outs []stint.Outcome, from, to int, allowed bool) (worst int) {
	worst = from
	for i := from + 1; i < to; i++ {
		if isWorse(&outs[i], &outs[worst], allowed) {
			worst = i
		}
	}
	return worst
}

// isWorse reports whether a limit has less left than another one, or, where the operation is denied, a longer wait.
// What is left of a limit on denials says nothing of what is admitted next.
func isWorse(o, than *stint.Outcome, allowed bool) bool {
	if allowed {
		if o.Denials != than.Denials {
			return than.Denials
		}
		return o.Remaining < than.Remaining
	}
	return o.RetryAfter > than.RetryAfter
}

// Available is how many permits an operation's limits have, from their outcomes, for one request after another of one
// permit each if nobody else takes any: of a group what its ways have together, of all the least. It reports false if
// there is nothing to choose among. For the outcomes o of a group, and w and v of its ways:
//
//	of(w)     = min over its limits of max(0, o.Remaining - the sum of of(v), v before w, that name the limit's state)
//	available = the sum of of(w)
func Available(op *stint.Op, outs []stint.Outcome) (n int64, chooses bool) {
	n = math.MaxInt64
	ways := Ways(op, nil)
	for at, end := 0, 0; at < len(ways); at = end {
		if !isChoice(ways[at]) {
			end = at + 1
			if !outs[at].Denials {
				n = min(n, outs[at].Remaining)
			}
			continue
		}
		if end = endOfGroup(ways, at); !IsOptional(ways[at]) {
			n, chooses = min(n, together(op, outs[:end], ways, at)), true
		}
	}
	return n, chooses
}

// together is Available of one group, of the limits from a place on.
func together(op *stint.Op, outs []stint.Outcome, ways []uint16, at int) (sum int64) {
	var buffer [2 * inline]int64
	taken := append(buffer[:0], make([]int64, len(outs)-at)...) // of each limit's state
	for from, to := at, 0; from < len(outs); from = to {
		to = endOfWay(ways, from)
		of := outs[from].Remaining - taken[from-at]
		for i := from; i < to; i++ {
			of = max(0, min(of, outs[i].Remaining-taken[i-at]))
		}
		sum += of
		for i := from; i < to && of > 0; i++ {
			limit, claim := op.LimitAt(i)
			for j := to; j < len(outs); j++ {
				if isOf(op, j, &limit, claim) {
					taken[j-at] += of
				}
			}
		}
	}
	return sum
}

// isOf reports whether limit i of an operation names the state of a claim's limit.
func isOf(op *stint.Op, i int, limit *stint.Limit, claim *stint.Claim) bool {
	other, by := op.LimitAt(i)
	return by.Key == claim.Key && by.Policy.Name() == claim.Policy.Name() &&
		other.Name == limit.Name && other.Algorithm == limit.Algorithm
}

// Of is the decision of an operation from its limits' outcomes. Applied of a Settle is [Settled]'s.
func Of(op *stint.Op, outs []stint.Outcome, at stint.Instant) stint.Decision {
	d := Combine(outs, Ways(op, nil), at)
	if op.Verb == stint.VerbSettle {
		d.Applied = Settled(outs[:op.Limits()], func(i int) bool {
			limit, _ := op.LimitAt(i)
			return limit.Cost == 0 && !limit.Denials && limit.Algorithm != stint.AlgorithmConcurrency
		})
	}
	return d
}

// Settled is the least that a Settle has applied, of the limits that it concerns: those without a cost of their own,
// whose permits are not places. It is 0 if there is none.
func Settled(outs []stint.Outcome, concerns func(limit int) bool) int64 {
	var all Least
	for i := range outs {
		if concerns(i) {
			all.Add(outs[i].Applied)
		}
	}
	return all.N
}

// Least is the least of charges (positive) and refunds (negative), by their size. The zero value has none.
type Least struct {
	// N is the least, the first of equals; 0 if there is none.
	N int64
	// Some says that there is one.
	Some bool
}

// Add adds what a limit has applied.
func (l *Least) Add(n int64) {
	if !l.Some || max(n, -n) < max(l.N, -l.N) {
		l.N, l.Some = n, true
	}
}

// LeastTimeout is the Timeout that counts for operations in one call: the least that is not 0.
func LeastTimeout(ops []stint.Op) (least time.Duration) {
	for i := range ops {
		if t := ops[i].Timeout; t > 0 && (least == 0 || t < least) {
			least = t
		}
	}
	return least
}
