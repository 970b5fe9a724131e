package rules

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

// A Floor is what a client is sure of within the limit of another rule: a token bucket.
//
// Its client may use it whatever others use; what it does not use others may borrow, as the rule's
// Borrow says.
type Floor struct {
	// Capacity is the burst, 1 to 1,000,000,000.
	Capacity int64 `doc:"capacity" is:"integer 1 1000000000"`
	// Refill is the rate. It has no default.
	Refill stint.Rate `doc:"refill" is:"rate"`
}

// floorNames is the rule as the names of its floors know it. They name clients as overrides do, or leave
// out the first parts of the scope, those of the rule that it is within: then each client of that rule
// has these floors. Of names that differ, most say how it is meant.
func (r *Rule) floorNames() *Rule {
	most, count := len(r.Scope), make([]int, len(r.Scope)+1)
	for _, names := range []iter.Seq[string]{maps.Keys(r.Guaranteed), maps.Keys(r.Weights)} {
		for name := range names {
			if parts, err := splitKey("", name, ""); err == nil && len(parts) <= len(r.Scope) {
				count[len(parts)]++
			}
		}
	}
	for n, of := range count {
		if of > count[most] {
			most = n
		}
	}
	if most == len(r.Scope) {
		return r
	}
	return &Rule{Scope: r.Scope[len(r.Scope)-most:]}
}

// floorOf is the floor of a client, by its key as long as it may be and without its partition; nil
// if it has none.
func (c *compiled) floorOf(key []byte) *stint.Policy {
	if len(c.floors) == 0 {
		return nil
	}
	for range c.outer {
		key = behindPart(key)
	}
	return c.floors[string(bounded(key))]
}

// behindPart is what is behind the first part of a key; nothing if it has no other part.
func behindPart(key []byte) []byte {
	for i := 0; i < len(key); i++ {
		switch key[i] {
		case '\\':
			i++
		case '|':
			return key[i+1:]
		}
	}
	return nil
}

// validateFloors reports what is wrong with each client that has a floor or a weight.
func (r *Rule) validateFloors(f *faults) {
	names, seen := r.floorNames(), make(map[string]bool, len(r.Guaranteed))
	for _, key := range slices.Sorted(maps.Keys(r.Guaranteed)) {
		param, floor := r.floorParam("guaranteed", key), r.Guaranteed[key]
		r.validateFloorKey(f, names, param, key, seen)
		if err := floor.limit().Validate(); err != nil {
			f.add(param, prefix.Errorf("%s: %w", param, err))
		} else if cost := r.Cost.unnamed(); floor.Capacity < cost {
			f.invalid(param+".capacity", floor.Capacity, fmt.Sprintf("%d or more, what a request costs: less admits none", cost))
		}
	}
	clear(seen)
	for _, key := range slices.Sorted(maps.Keys(r.Weights)) {
		param, w := r.floorParam("weights", key), r.Weights[key]
		r.validateFloorKey(f, names, param, key, seen)
		f.permits(param, w, 1)
	}
}

// validateFloorKey reports a client that the rule can't have, or that is there already under
// another spelling.
func (r *Rule) validateFloorKey(f *faults, names *Rule, param, key string, seen map[string]bool) {
	if len(r.Scope) == 0 || len(r.Scope) > maxScope {
		return // a fault of its own
	}
	shown := r.shownKey(key)
	parts, err := names.partsOf(param, key, shown, f.bits, false)
	if n := len(r.Scope); n > 1 && err != nil {
		if parts, fault := splitKey(param, key, shown); fault == nil && len(parts) != len(names.Scope) {
			f.invalid(param, shown, fmt.Sprintf("%d parts joined by |, as the scope has, "+
				"or in all clients here those behind the scope of rule %s", n, r.Within))
			return
		}
	}
	if err != nil {
		f.add(param, err)
		return
	}
	text, _ := names.keyOf(parts)
	client := string(bounded(text))
	if seen[client] {
		f.invalid(param, shown, "each client once")
	}
	seen[client] = true
}

// floorParam is the part of a rule in which a client's floor is. More people read it than an API
// key.
func (r *Rule) floorParam(param, key string) string {
	if r.counts(PerAPIKey) {
		return param
	}
	return param + "." + key
}

// floorsParam is the part of a rule that has its floors.
func (r *Rule) floorsParam() string {
	if len(r.Weights) > 0 {
		return "weights"
	}
	return "guaranteed"
}

// limit is the floor as a bucket of its own, with a state for each client.
func (f *Floor) limit() stint.Limit { return stint.TokenBucket(f.Capacity, f.Refill).Named(floorName) }
