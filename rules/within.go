package rules

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/internal/prefix"
)

// Borrow says how much clients may use of a limit beyond what they are sure of. The zero value is
// nothing.
type Borrow struct {
	// Any is all that no floor needs.
	Any bool
	// Rate is a ceiling besides, a token bucket for each client, of a capacity of its permits.
	// Default: none.
	Rate stint.Rate
}

// allowed reports whether clients may borrow.
func (b Borrow) allowed() bool { return b.Any || b.Rate.Permits > 0 }

// maxFloors bounds the clients with floors of one rule, each of which is a policy; maxLevels how
// deep rules may be within each other, as each level adds its limits to every request.
const (
	maxFloors = 10_000
	maxLevels = 8
)

// The names of a rule's states beside those of its limits.
const (
	floorName  = "guaranteed"
	borrowName = "borrow"
)

// What a request was charged by, as [Matched.Vias] says.
const (
	// ViaGuaranteed is the client's floor.
	ViaGuaranteed = "guaranteed"
	// ViaBorrowed is what no floor needs of the limit within which the rule is.
	ViaBorrowed = "borrowed"
	// ViaLimits are the rule's own limits.
	ViaLimits = "limits"
	// ViaOtherwise are those of the rule that Otherwise names.
	ViaOtherwise = "otherwise"
)

// A family is how a rule stands to others of its set.
//
// A limit of capacity C with floors F1, …, Fn within it holds
//
//	F1 + … + Fn <= C                        (validated)
//	a client's own floor admits: charge its floor and the limit
//	otherwise, if it may borrow: charge the limit alone, and leave F1 + … + Fn of it
//
// so that whoever borrows never takes what a floor promises.
type family struct {
	parent, child *compiled // by Within
	otherwise     *compiled
	usedBy        *compiled // whose Within or Otherwise names the rule

	// outer is how many parts of a client's key the names of its floors leave out: those of the
	// parent's scope.
	outer int
	// floors are by the client's key behind those.
	floors map[string]*stint.Policy
	// borrow is the ceiling on what a client borrows; nil: there is none.
	borrow *stint.Policy
	// kept is the sum of the child's floors, which the rule's limit keeps free of others.
	kept int64
}

// validateFamily reports what is wrong in the rule itself about how it stands to others; the others
// are not known yet.
func (r *Rule) validateFamily(f *faults) {
	if r.Within == "" {
		for param, given := range map[string]bool{
			"guaranteed": len(r.Guaranteed) > 0, "weights": len(r.Weights) > 0, "borrow": r.Borrow != Borrow{},
			"max_cost": r.MaxCost != 0,
		} {
			if given {
				f.invalid(param, plain("given"), "only with within, which names the rule whose limit is shared")
			}
		}
	} else {
		r.validateWithin(f)
	}
	if r.Otherwise != "" && (r.Unlimited || r.Banned) {
		f.invalid("otherwise", r.Otherwise, "none of a rule that is unlimited or banned")
	}
	r.validateClasses(f)
}

// validateWithin does so for a rule within another one.
func (r *Rule) validateWithin(f *faults) {
	if len(r.Limits) > 0 || r.Unlimited || r.Banned || r.Otherwise != "" || len(r.Overrides) > 0 {
		f.invalid("within", r.Within, "only of a rule without limits, unlimited, banned, otherwise and overrides: "+
			"what each client has stands in guaranteed and borrow")
	}
	if len(r.Guaranteed) > 0 && len(r.Weights) > 0 {
		f.invalid("weights", len(r.Weights), "none with guaranteed")
	}
	if n := len(r.Guaranteed) + len(r.Weights); n > maxFloors {
		f.invalid("guaranteed", n, fmt.Sprintf("at most %d clients", maxFloors))
	} else if n == 0 && !r.Borrow.allowed() {
		f.invalid("guaranteed", missing, "guaranteed, weights or borrow: without any of them no request is admitted")
	}
	r.validateFloors(f)
	if r.Borrow.Rate != (stint.Rate{}) {
		if err := r.Borrow.limit().Validate(); err != nil {
			f.add("borrow", prefix.Errorf("borrow: %w", err))
		}
	}
	f.permits("max_cost", r.MaxCost, 0)
	named := r.Cost.named()
	switch {
	case named && r.MaxCost == 0 && r.Borrow.allowed():
		f.invalid("max_cost", missing, "the largest cost that requests name, which has to fit beside the floors")
	case !named && r.MaxCost != 0:
		f.invalid("max_cost", r.MaxCost, "none where requests name no cost")
	case named && r.MaxCost > 0 && r.MaxCost < r.Cost.unnamed():
		f.invalid("max_cost", r.MaxCost, fmt.Sprintf("%d or more, what a request costs that names nothing", r.Cost.unnamed()))
	}
}

// limit is the ceiling as a bucket, with a state for each client.
func (b *Borrow) limit() stint.Limit {
	return stint.TokenBucket(b.Rate.Permits, b.Rate).Named(borrowName)
}

// relate finds how the rules of the set stand to each other, and makes their floors. index is a
// rule's place in the list, by ID. A rule is named by one other at most, so that rules form chains:
// outermost limit, rules within it, and so on inwards.
func (s *Set) relate(index map[string]int, previous *Set) error {
	var all []error
	fault := func(c *compiled, param string, value any, allowed string) {
		f := faults{index: index[c.ID], id: c.ID}
		f.invalid(param, value, allowed)
		all = append(all, f.all...)
	}
	some := false
	for _, c := range s.rules {
		c.family = family{outer: len(c.Scope) - len(c.floorNames().Scope)}
		some = some || c.Within != "" || c.Otherwise != ""
	}
	if !some {
		return nil
	}
	for _, c := range s.rules {
		param, name := "within", c.Within
		if name == "" {
			param, name = "otherwise", c.Otherwise
		}
		if name == "" {
			continue
		}
		other, came, allowed := s.byID[name], any(name), ""
		switch {
		case other == nil || other == c:
			allowed = "the ID of another rule of the set"
		case other.usedBy != nil:
			allowed = "a rule that no other one names: rule " + other.usedBy.ID +
				" does, and two rules that match one request can't share a limit"
		case other.Unlimited || other.Banned || len(other.Overrides) > 0 || other.Disabled != c.Disabled:
			allowed = "a rule that limits all of its clients alike: without unlimited, banned and overrides, " +
				"and enabled as this one is"
		case slices.ContainsFunc(other.Scope, other.hasParameter):
			allowed = "a rule whose scope names no parameter of its paths, since its client must be known for every request"
		case (other.OnExceed == Shadow) != (c.OnExceed == Shadow):
			allowed = "a rule in shadow if this one is, since what is in shadow takes nothing of what others are decided by"
		case other.Block != (Block{}):
			allowed = "a rule without block, as its limits alone have to admit"
		case other.OnExceed == Mark:
			allowed = "a rule that does not mark, as its limits have to admit"
		case other.countsAnswers():
			allowed = "a rule without count, as its limits are charged whatever the answer is"
		case param == "within" && other.PartitionBy != c.PartitionBy:
			allowed = "a rule with the same partition_by, since floors of several partitions can't share one limit"
		case c.outer > 0 && (!slices.Equal(c.Scope[:c.outer], other.Scope) ||
			slices.ContainsFunc(other.Scope, c.hasParameter)):
			param, came = c.floorsParam(), plain("of clients by the end of the scope")
			allowed = fmt.Sprintf("clients with all parts of the scope, or with those behind the scope of rule %s, "+
				"if this one begins with it, and none of it is a parameter of a path", name)
		case len(other.Costs) > 0 || len(c.Costs) > 0 ||
			slices.ContainsFunc(c.Overrides, func(o Override) bool { return len(o.Costs) > 0 }):
			allowed = "rules whose limits have no costs of their own"
		}
		if allowed != "" {
			fault(c, param, came, allowed)
			continue
		}
		other.usedBy = c
		if param == "within" {
			c.parent, other.child = other, c
		} else {
			c.otherwise = other
		}
	}
	if err := prefix.Join(all...); err != nil {
		return err
	}
	for _, c := range s.rules {
		if c.parent == nil {
			s.checkOtherwise(c, fault)
			if c.maxLimits = c.mostLimits(); c.otherwise != nil && c.maxLimits > 0 {
				c.maxLimits += c.otherwise.own.limits()
			}
			continue
		}
		levels := 0
		for p := c; p != nil && levels <= maxLevels; p = p.parent {
			levels++
		}
		if levels > maxLevels {
			fault(c, "within", c.Within, fmt.Sprintf("a rule within at most %d others, and not within itself", maxLevels-2))
		}
		if !c.Disabled && c.OnExceed != Shadow {
			c.maxLimits = levels * levels * 2 // its ways have fewer
		}
	}
	if err := prefix.Join(all...); err != nil {
		return err
	}
	for _, c := range s.rules { // from the outermost one inwards
		if c.parent == nil && c.child != nil {
			for of := c.child; of != nil && len(all) == 0; of = of.child {
				if err := of.makeFloors(fault, &previous.was(&of.Rule).family); err != nil {
					return err
				}
			}
		}
	}
	return prefix.Join(all...)
}

// checkOtherwise reports limits that can't be tried one after another.
func (s *Set) checkOtherwise(c *compiled, fault func(*compiled, string, any, string)) {
	if c.otherwise == nil {
		return
	}
	if c.otherwise.otherwise != nil || c.otherwise.parent != nil || c.otherwise.child != nil || c.child != nil {
		fault(c, "otherwise", c.Otherwise, "rules that are related to no others")
		return
	}
	places := hasPlaces(c.otherwise.Limits)
	differs := hasPlaces(c.Limits) != places && len(c.Limits) > 0
	for i := range c.Overrides {
		differs = differs || len(c.Overrides[i].Limits) > 0 && hasPlaces(c.Overrides[i].Limits) != places
	}
	if differs {
		fault(c, "otherwise", c.Otherwise,
			"two rules of which each has a concurrency limit, or neither: only a reserve decides by one")
	}
	for _, of := range []*compiled{c, c.otherwise} {
		of.eachLimit(func(at limitPlace, l *stint.Limit) {
			if !canBeWay(l) {
				fault(c, "otherwise", c.Otherwise, fmt.Sprintf("rules whose limits count no denied requests, "+
					"have no lease and are no leaky buckets, as %v of rule %s does or is", at, of.ID))
			}
		})
	}
}

// hasPlaces reports whether one of the limits is of concurrency.
func hasPlaces(limits []stint.Limit) bool {
	return slices.ContainsFunc(limits, func(l stint.Limit) bool { return l.Algorithm == stint.AlgorithmConcurrency })
}

// makeFloors makes the floors of a rule that is within another, whose own floors are there. Sums
// are exact: capacities in integers, rates scaled to fractions of a permit.
func (c *compiled) makeFloors(fault func(*compiled, string, any, string), old *family) error {
	capacity, rate := int64(bounds.MaxPermits), stint.Rate{}
	if c.parent.parent == nil {
		if len(c.parent.Limits) != 1 || c.parent.Limits[0].Algorithm != stint.AlgorithmTokenBucket ||
			c.parent.Limits[0].Lease != 0 {
			fault(c, "within", c.Within, "a rule with one limit, a token bucket without a lease: "+
				"in a window what one client leaves can't be lent to others")
			return nil
		}
		capacity, rate = c.parent.Limits[0].Capacity, c.parent.Limits[0].Rate
	} else { // each client's floor there has to hold all floors here
		for _, policy := range c.parent.floors {
			l := policy.Limit(0)
			capacity = min(capacity, l.Capacity)
			if rate.Permits == 0 || slower(l.Rate, rate) {
				rate = l.Rate
			}
		}
	}
	if c.parent.parent != nil && len(c.parent.floors) == 0 && len(c.Guaranteed)+len(c.Weights) > 0 {
		fault(c, c.floorsParam(), len(c.Guaranteed)+len(c.Weights),
			"none, since no client of rule "+c.Within+" has a floor that could hold them")
		return nil
	}
	names, floors := c.floorNames(), c.Guaranteed
	if len(c.Weights) > 0 {
		if floors = c.shareOut(capacity, rate, fault); floors == nil {
			return nil
		}
	}
	c.floors = make(map[string]*stint.Policy, len(floors))
	sum, rates := int64(0), new(big.Int)
	for _, name := range slices.Sorted(maps.Keys(floors)) {
		floor := floors[name]
		key, _, err := names.readKey(c.floorParam("guaranteed", name), name, 0, false)
		if err != nil {
			return err
		}
		policy, err := c.policyOf(floor.limit(), old.floors[key])
		if err != nil {
			return err
		}
		c.floors[key] = policy
		sum += floor.Capacity
		rates.Add(rates, scaled(floor.Refill))
	}
	if c.Borrow.Rate.Permits > 0 {
		var err error
		if c.borrow, err = c.policyOf(c.Borrow.limit(), old.borrow); err != nil {
			return err
		}
	}
	c.parent.kept = sum
	param, holds := c.floorsParam(), fmt.Sprintf("what rule %s has", c.Within)
	if c.parent.parent != nil {
		holds = fmt.Sprintf("what the smallest floor of rule %s has", c.Within)
	}
	switch {
	case sum > capacity:
		fault(c, param, plain(fmt.Sprintf("capacities of %d together", sum)), fmt.Sprintf("at most %d, %s", capacity, holds))
	case rate.Permits > 0 && rates.Cmp(scaled(rate)) > 0:
		fault(c, param, plain("refills of "+perSecond(rates)+" together"), fmt.Sprintf("at most %s, %s", rate, holds))
	case c.Borrow.allowed() && capacity-sum < c.largestCost():
		fault(c, "borrow", plain(fmt.Sprintf("of %d permits that no floor needs", capacity-sum)),
			fmt.Sprintf("at least %d, the largest cost, left beside the floors", c.largestCost()))
	}
	return nil
}

// sharesPartition reports whether all that a request takes by both rules is in one partition.
func (c *compiled) sharesPartition(o *compiled) bool {
	if c.PartitionBy != "" || o.PartitionBy != "" {
		return c.PartitionBy == o.PartitionBy
	}
	return slices.Equal(c.Scope, o.Scope) && c.Missing == o.Missing // the client has one key
}

// largestCost is the largest that a request may have.
func (c *compiled) largestCost() int64 { return max(c.MaxCost, c.Cost.unnamed()) }

// policyOf is a policy of one limit of the rule, the old one if it is of the same.
func (c *compiled) policyOf(l stint.Limit, old *stint.Policy) (*stint.Policy, error) {
	if old != nil && old.Limit(0) == l {
		return old, nil
	}
	return c.newPolicy(l)
}

// shareOut makes floors of weights: nine tenths of the capacity, so that there is something to
// borrow, and all of the rate. It returns nil if it has reported that a client's part of the rate
// is none.
func (c *compiled) shareOut(
	capacity int64, rate stint.Rate, fault func(*compiled, string, any, string),
) map[string]Floor {
	total := int64(0)
	for _, w := range c.Weights {
		total += w
	}
	floors := make(map[string]Floor, len(c.Weights))
	for _, name := range slices.Sorted(maps.Keys(c.Weights)) {
		w := c.Weights[name]
		share := new(big.Int).Mul(big.NewInt(capacity), big.NewInt(9*w))
		share.Quo(share, big.NewInt(10*total))
		part, ok := partOf(rate, w, total)
		if least := c.Cost.unnamed(); !ok {
			fault(c, c.floorParam("weights", name), w, fmt.Sprintf("a part of the refill of %s that is at least a permit in %s",
				rate, duration.Format(bounds.MaxPeriod)))
			return nil
		} else if share.Int64() < least && least > 1 {
			fault(c, c.floorParam("weights", name), w,
				fmt.Sprintf("a part of the capacity of at least %d, what a request costs; it is %d", least, share))
			return nil
		}
		floors[name] = Floor{max(1, share.Int64()), part}
	}
	return floors
}

// partOf is w/total of a rate. If no rate is that, it is the nearest slower one of as many permits
// as a rate may have, or of one permit; ok is false if there is none. The nearest slower one, since
// a sum of parts may not exceed the whole.
func partOf(rate stint.Rate, w, total int64) (part stint.Rate, ok bool) {
	exact := new(big.Rat).Mul(ratio(rate), big.NewRat(w, total)) // permits a microsecond
	permits, period := new(big.Int).Set(exact.Num()), new(big.Int).Set(exact.Denom())
	shortest, longest, most := big.NewInt(bounds.MinPeriod.Microseconds()), big.NewInt(bounds.MaxPeriod.Microseconds()),
		big.NewInt(bounds.MaxPermits)
	for period.Cmp(shortest) < 0 {
		permits.Mul(permits, big.NewInt(10))
		period.Mul(period, big.NewInt(10))
	}
	if period.Cmp(longest) > 0 || permits.Cmp(most) > 0 {
		times := func(n *big.Int) *big.Int { // n of the denominator in the numerator, rounded down
			return new(big.Int).Quo(new(big.Int).Mul(n, exact.Num()), exact.Denom())
		}
		one := new(big.Int).Quo(new(big.Int).Add(exact.Denom(), new(big.Int).Sub(exact.Num(), big.NewInt(1))), exact.Num())
		if permits = big.NewInt(1); one.Cmp(big.NewInt(time.Second.Microseconds())) >= 0 {
			period = one // at least a second, so a microsecond more is little
		} else {
			period = new(big.Int).Quo(new(big.Int).Mul(most, exact.Denom()), exact.Num())
			if period.Cmp(longest) > 0 {
				period = longest
			}
			permits = times(period)
		}
	}
	if period.Cmp(longest) > 0 || permits.Sign() <= 0 {
		return part, false
	}
	return stint.Per(permits.Int64(), time.Duration(period.Int64())*time.Microsecond), true
}

// scaleBits are those behind the point of a scaled rate. An exact sum of 10,000 fractions may need
// half a million.
const scaleBits = 128

// scaled is a rate in permits a microsecond with scaleBits behind the point, rounded down. So of a sum
// that is above another rate, the exact one is. One that is not may be above by less than a permit in
// the age of the universe.
func scaled(rate stint.Rate) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(rate.Permits), scaleBits)
	return n.Quo(n, big.NewInt(max(1, rate.Period.Microseconds())))
}

// perSecond is a scaled rate as people read it.
func perSecond(rate *big.Int) string {
	second := new(big.Int).Mul(rate, big.NewInt(time.Second.Microseconds()))
	n, _ := new(big.Rat).SetFrac(second, new(big.Int).Lsh(big.NewInt(1), scaleBits)).Float64()
	return strconv.FormatFloat(n, 'g', 6, 64) + "/s"
}

// ratio is a rate in permits a microsecond.
func ratio(rate stint.Rate) *big.Rat {
	return big.NewRat(rate.Permits, max(1, rate.Period.Microseconds()))
}

// slower compares two rates exactly.
func slower(a, b stint.Rate) bool { return ratio(a).Cmp(ratio(b)) < 0 }
