package rules

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// kindNever is the kind of limits that have less than a request costs.
const kindNever = "never admits some requests"

// neverAdmits adds the limits of the rule, of its overrides and of its loans that have less than a request costs.
func (r *Rule) neverAdmits(list []mistake) []mistake {
	list = r.neverAdmit(list, -1, r.Limits, r.Costs)
	for i := range r.Overrides {
		o := &r.Overrides[i]
		list = r.neverAdmit(list, i, o.Limits, o.Costs)
	}
	if most, cost := r.Borrow.Rate.Permits, r.Cost.Permits; r.Within != "" && most > 0 && most < cost {
		list = append(list, mistake{
			kind: kindNever, param: "borrow", value: plain(r.Borrow.Rate.String()),
			allowed:  fmt.Sprintf("at least %d permits a period, the cost: nothing is ever borrowed", cost),
			harmless: len(r.Guaranteed)+len(r.Weights) > 0 || r.Cost.Header != "" || r.Cost.Attribute != "",
		})
	}
	return list
}

// neverAdmit adds limits, the rule's or with an index an override's, that have less than a request costs. Some requests
// are admitted, so that it is harmless, if they may name a smaller cost, are charged to the rule that Otherwise names,
// or are of another class.
func (r *Rule) neverAdmit(list []mistake, override int, limits []stint.Limit, costs []Cost) []mistake {
	limits = r.asReserved(limits, costs)
	for i := range limits {
		cost, own := r.Cost, false
		if i < len(costs) && costs[i] != (Cost{}) {
			cost, own = costs[i], true
		}
		permits, capacity := max(cost.Permits, 1), limits[i].Capacity
		if permits <= capacity && !r.Classes.Has() || permits > bounds.MaxPermits || limits[i].Validate() != nil {
			continue // as it should be, or a fault of its own
		}
		at, param := fmt.Sprintf("limits[%d]", i), "cost"
		if override >= 0 {
			at = fmt.Sprintf("overrides[%d].%s", override, at)
		}
		if own {
			param = at + ".cost"
		}
		m := mistake{kind: kindNever, harmless: r.Otherwise != ""}
		requests := "requests"
		if cost.Header != "" || cost.Attribute != "" {
			m.harmless, requests, param = true, "requests that name no cost", param+".default"
		}
		switch {
		case permits > capacity && override >= 0 && !own:
			m.param, m.value = at, plain(fmt.Sprintf("a limit of %d", capacity))
			m.allowed = fmt.Sprintf("at least %d, the cost, or banned: %s of its client are never admitted", permits, requests)
			list = append(list, m)
		case permits > capacity:
			m.param, m.value = param, plain(strconv.FormatInt(permits, 10))
			m.allowed = fmt.Sprintf("at most %d, all that %s has: %s are never admitted", capacity, at, requests)
			list = append(list, m)
		default:
			list = r.neverAdmitClasses(list, m, at, capacity, permits, requests)
		}
	}
	return list
}

// neverAdmitClasses adds the classes that leave more of a limit than a request could do without. like is what else
// is known of them.
func (r *Rule) neverAdmitClasses(
	list []mistake, like mistake, at string, capacity, permits int64, requests string,
) []mistake {
	var never []string
	for _, class := range slices.Sorted(maps.Keys(r.Classes.Keep)) {
		if keep := r.Classes.Keep[class]; keep > 0 && keep < 100 && permits > capacity-keep.of(capacity) {
			never = append(never, class)
		}
	}
	like.harmless = like.harmless || len(never) < len(r.Classes.Keep)
	for _, class := range never {
		like.param, like.value = "classes.keep."+class, plain(fmt.Sprintf("%d%%", r.Classes.Keep[class]))
		like.allowed = fmt.Sprintf("a part of the %d of %s that leaves %d, the cost: %s of the class are never admitted",
			capacity, at, permits, requests)
		list = append(list, like)
	}
	return list
}
