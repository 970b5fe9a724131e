package stint

import "fmt"

// A Way says how a claim stands to the claims before it in its operation. The zero value is that it has to admit, whatever
// else does.
//
// Claims can be alternatives: a group of ways, each of one or more claims, which are tried in order in the same atomic step.
// The first way whose limits all admit is charged, it alone, and the operation's answer says which (see [Decision.Via]). An
// operation is admitted if its claims of no group all admit, and a way of each group does.
//
// Ways of one group may share a state, under limits that are equal, and may keep different amounts of it. Nothing else in
// the operation may name that state. Ways can't have limits that count denied requests, leaky buckets or limits with leases.
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
			return Invalid("count_denied", true, "a limit that counts no denied requests, since a way may deny and another admit")
		case l.Algorithm == AlgorithmLeakyBucket:
			return Invalid("algorithm", l.Algorithm, "one without a queue, since of several ways one is taken")
		case l.Lease != 0:
			return Invalid("lease", l.Lease, "a limit without a lease, since the ways are tried together")
		}
	}
	return nil
}

// canShare reports whether two claims of one key may name states in common, as claims i and j of the operation: those of
// two ways of one group, under equal limits.
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

// AppendWays appends the way of each limit of the operation to a list; it returns nil if there are no ways. It is for stores.
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
func (op *Op) Combine(outcomes []Outcome, at Instant) Decision {
	if ways := op.Ways(); ways != nil {
		return CombineWays(outcomes, ways, at)
	}
	return Combine(outcomes, at)
}

// groupEnd is where the limits of a group of ways end that begins at a limit, and wayEnd where those of a way end.
func groupEnd(ways []Way, at int) int {
	for at++; at < len(ways) && (ways[at] == With || ways[at] == Else); at++ {
	}
	return at
}

func wayEnd(ways []Way, at int) int {
	for at++; at < len(ways) && ways[at] == With; at++ {
	}
	return at
}

// Choose finds the limits that an operation charges, from what each says and its way: it marks them as taken, and reports
// whether the operation is admitted. It is for stores.
func Choose(outcomes []Outcome, ways []Way, taken []bool) (allowed bool) {
	allowed = true
	for at := 0; at < len(ways); {
		end, found := at+1, outcomes[at].Allowed
		switch taken[at] = found; ways[at] {
		case Must:
		case Aside:
			taken[at], found = false, true
		default:
			end, found = groupEnd(ways, at), false
			for from := at; from < end; {
				to := wayEnd(ways, from)
				admits := !found
				for i := from; i < to; i++ {
					admits = admits && outcomes[i].Allowed
				}
				for i := from; i < to; i++ {
					taken[i] = admits
				}
				found, from = found || admits, to
			}
		}
		allowed, at = allowed && found, end
	}
	return allowed
}

// BindWays binds an operation on a hold to the ways that it is on, those with a limit that on reports: their limits have to
// admit, and those of the group's other ways are passed over. A group of which it is on no way stays open. It returns the
// number of the first group's way. It is for stores.
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

// CombineWays is [Combine] for an operation with ways. Denied, a group waits as long as the way that waits least, whose
// limit with the longest wait decides. Admitted, a group has left what the way has that has most, whose limit with the least
// Remaining decides. It is for stores.
func CombineWays(outcomes []Outcome, ways []Way, at Instant) Decision {
	d := Decision{Allowed: true, At: at}
	least, longest, grouped := -1, -1, false // the limits that decide if it is admitted, and if it is denied
	for i := 0; i < len(ways); {
		end, g := i+1, oneWay(outcomes, i, i+1)
		switch ways[i] {
		case Must:
			d.Delay = max(d.Delay, outcomes[i].Delay)
		case Aside:
			i = end
			continue
		default:
			end = groupEnd(ways, i)
			if g = oneGroup(outcomes, ways, i, end); !grouped {
				grouped, d.Via = true, g.via
			}
		}
		d.Allowed = d.Allowed && g.admits
		if least < 0 || outcomes[g.least].Remaining < outcomes[least].Remaining {
			least = g.least
		}
		if longest < 0 || outcomes[g.longest].RetryAfter > outcomes[longest].RetryAfter {
			longest = g.longest
		}
		i = end
	}
	if !d.Allowed {
		least, d.Delay, d.Via = longest, 0, 0
		d.RetryAfter = outcomes[longest].RetryAfter
	}
	o := &outcomes[least]
	d.Index, d.Limit, d.Remaining, d.ResetAfter = int16(least), o.Limit, o.Remaining, o.ResetAfter
	return d
}

// part is what a way says, or a group: its limits with the least Remaining and the longest wait.
type part struct {
	admits         bool
	via            uint8 // of a group: the first way that admits
	least, longest int
}

func oneWay(outcomes []Outcome, from, to int) part {
	w := part{admits: true, least: from, longest: from}
	for i := from; i < to; i++ {
		o := &outcomes[i]
		w.admits = w.admits && o.Allowed
		if o.Remaining < outcomes[w.least].Remaining {
			w.least = i
		}
		if o.RetryAfter > outcomes[w.longest].RetryAfter {
			w.longest = i
		}
	}
	return w
}

func oneGroup(outcomes []Outcome, ways []Way, from, end int) (g part) {
	for number := uint8(0); from < end; number++ {
		to := wayEnd(ways, from)
		w := oneWay(outcomes, from, to)
		if w.admits && !g.admits {
			g.admits, g.via = true, number
		}
		if number == 0 || outcomes[w.least].Remaining > outcomes[g.least].Remaining {
			g.least = w.least
		}
		if number == 0 || outcomes[w.longest].RetryAfter < outcomes[g.longest].RetryAfter {
			g.longest = w.longest
		}
		from = to
	}
	return g
}
