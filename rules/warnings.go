package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/internal/prefix"
)

// A Warning is something in a rule that is allowed, and may be other than was meant. Warnings are
// told by the log, by `stint rules validate` and by the admin API; none keeps a rule from being in
// force.
type Warning struct {
	// Kind says it in a few words that are the same for all rules, behind "a rule", such as "leaves
	// little to borrow".
	Kind string
	// Detail says what is the matter, and names no client, which may be an API key.
	Detail string
	// Change says what to do. Default: "", nothing need be done.
	Change string
	// Errors says that requests for which the rule holds are errors.
	Errors bool
	// Mistake says that the rule can't be meant so: with Options.Review it is a fault.
	Mistake bool
	// Evident says that the rule's own text says so: that is news only where the rule was another
	// before.
	Evident bool
}

// String is the detail, and what to do.
func (w Warning) String() string {
	if w.Change == "" {
		return w.Detail
	}
	return w.Detail + "; " + w.Change
}

// Warnings are those about a rule of the set, if any: clustered says that states are on a cluster.
func (s *Set) Warnings(id string, clustered bool) (list []Warning) {
	c := s.byID[id]
	if c == nil {
		return nil
	}
	list = c.warnOfMistakes(list)
	list = c.warnOfReserve(list)
	list = c.warnOfHolds(list)
	list = c.warnOfFloors(list)
	if clustered && !c.Disabled {
		list = c.warnOfPartitions(list)
		s.apartOnce.Do(func() { s.apart = s.findApart() })
		if w, known := s.apart[id]; known {
			list = append(list, w)
		}
	}
	return list
}

// warnOfReserve warns of what is decided for reserves alone, by the rule or by overrides of it.
func (c *compiled) warnOfReserve(list []Warning) []Warning {
	w := Warning{Kind: "is left out but for reserves"}
	if c.NeedsReserve() {
		has := "a concurrency limit"
		if c.countsAnswers() {
			has = "count"
		}
		w.Detail, w.Evident = "it has "+has+": only reserves are decided by it, "+
			"evaluate and forward-auth leave it out", true
		return append(list, w)
	}
	first, n := 0, 0
	for i := range slices.Backward(c.Overrides) {
		if hasPlaces(c.Overrides[i].Limits) {
			first, n = i, n+1
		}
	}
	const consequence = "only reserves are decided by %s, evaluate and forward-auth admit %s without this rule"
	switch n {
	case 0:
		return list
	case 1:
		w.Detail = fmt.Sprintf("it has a concurrency limit in overrides[%d]: "+consequence, first, "it", "its client")
	default:
		w.Detail = fmt.Sprintf("it has a concurrency limit in %d overrides, overrides[%d] the first: "+consequence, n, first,
			"them", "their clients")
	}
	return append(list, w)
}

// warnOfHolds warns of buckets that are too small for what is held: estimates a second are at most
// the capacity divided by how long they are held. In formulas, a bucket of capacity C refilled at
// R/P holds n requests of one permit for a time T each only if n <= C, and n = R/P x T at the rate
// of the refill: C x P < R x T is warned of.
func (c *compiled) warnOfHolds(list []Warning) []Warning {
	if !c.NeedsReserve() && c.Reserve == (Reserve{}) {
		return list
	}
	ttl := cmp.Or(c.Reserve.TTL, bounds.DefaultHoldTTL)
	for i, l := range c.Limits {
		if l.Algorithm == stint.AlgorithmTokenBucket &&
			float64(l.Capacity)*float64(l.Rate.Period) < float64(l.Rate.Permits)*float64(ttl) {
			list = append(list, Warning{Kind: "holds more than its bucket has", Detail: fmt.Sprintf(
				"limits[%d], a bucket of %d, is less than what %s refills in reserve.ttl, %s, "+
					"so holds of that length slow its clients down",
				i, l.Capacity, l.Rate, duration.Format(ttl))})
		}
	}
	return list
}

// warnOfFloors warns of a limit of which little is left for borrowing, less than a tenth, and of floors
// that several clients of the outermost rule have in common, so that one of them can use up what another
// is sure of.
func (c *compiled) warnOfFloors(list []Warning) []Warning {
	if c.parent == nil {
		return list
	}
	root := c.parent
	for root.parent != nil {
		root = root.parent
	}
	capacity := root.Limits[0].Capacity
	if left := capacity - root.kept; root == c.parent && c.Borrow.allowed() && left*10 < capacity {
		list = append(list, Warning{Kind: "leaves little to borrow", Detail: fmt.Sprintf(
			"%d of %d permits are in no floor, less than a tenth: those who borrow have small bursts", left, capacity)})
	}
	separates := func(scope string) bool {
		return scope == Global || scope == Custom(c.PartitionBy) || slices.Contains(c.Scope, scope) && !c.hasParameter(scope)
	}
	if len(c.floors) > 0 && slices.ContainsFunc(root.Scope, func(scope string) bool { return !separates(scope) }) {
		list = append(list, Warning{
			Kind:   "has floors that several clients share",
			Detail: fmt.Sprintf("all clients of rule %s have its floors in common, so one can use up those of another", root.ID),
			Change: fmt.Sprintf("tell them apart by the same partition_by in all of these rules, or begin its scope with %s",
				strings.Join(c.parent.Scope, ", ")),
		})
	}
	return list
}

// kindApart is the kind of rules that a request may meet in several partitions.
const kindApart = "can't be decided on a cluster"

// warnOfPartitions warns of a rule where a request may be charged to it and to another one whose clients are in other
// partitions.
func (c *compiled) warnOfPartitions(list []Warning) []Warning {
	for _, other := range []*compiled{c.parent, c.otherwise} {
		if other != nil && !c.sharesPartition(other) {
			return append(list, Warning{
				Kind: kindApart,
				Detail: fmt.Sprintf("its clients and those of rule %s are in different partitions of a cluster, "+
					"so requests are errors", other.ID),
				Change: "set the same partition_by in both, and in all rules that match the same requests",
				Errors: true,
			})
		}
	}
	return list
}

// A mistake is a part of a rule that is valid, and can hardly be meant. [Options] say whether it is a fault;
// else it is a [Warning].
type mistake struct {
	kind string // as a Warning's
	// param, value and allowed are as of a fault.
	param   string
	value   any // a string or plain
	allowed string
	// harmless says that some requests get what is meant, so that it is always a warning.
	harmless bool
}

// The kinds of mistakes.
const (
	kindDialect = "has a path that is written as for another router"
	kindMethod  = "has a method that no request has"
)

// warning is the mistake as a warning.
func (m *mistake) warning() Warning {
	text := stint.Invalid(m.param, m.value, m.allowed).Error()
	return Warning{Kind: m.kind, Detail: prefix.Trim(text), Mistake: !m.harmless}
}

// maxMistakes bounds the warnings of one rule's mistakes.
const maxMistakes = 16

// warnOfMistakes warns of mistakes, the first ones if they are many.
func (c *compiled) warnOfMistakes(list []Warning) []Warning {
	mistakes := c.mistakes()
	for i := range mistakes[:min(len(mistakes), maxMistakes)] {
		list = append(list, mistakes[i].warning())
	}
	return list
}

// refuse notes the mistakes of a rule that the rule was without before; was may be nil.
func (f *faults) refuse(rule, was *Rule) {
	var known []mistake
	if was != nil {
		known = was.mistakes()
	}
	for _, m := range rule.mistakes() {
		if !m.harmless && !slices.Contains(known, m) {
			f.invalid(m.param, m.value, m.allowed)
		}
	}
}

// mistakes are the rule's, which may have faults.
func (r *Rule) mistakes() (list []mistake) {
	for _, method := range r.Match.Methods {
		if strings.ContainsAny(method, "*|") && isToken(method) {
			list = append(list, mistake{
				kind: kindMethod, param: "match.methods", value: method,
				allowed: "each method by itself, such as GET, or no methods, which is any",
			})
		}
	}
	for _, paths := range []struct {
		param string
		texts []string
	}{{"match.paths", r.Match.Paths}, {"match.except", r.Match.Except}} {
		for i, text := range paths.texts {
			if _, valid := parsePattern(text); !valid {
				continue
			}
			if allowed, likely := inDialect(text); allowed != "" {
				list = append(list, mistake{
					kind: kindDialect, param: placeOf(paths.param, i, len(paths.texts)), value: text,
					allowed: allowed, harmless: likely,
				})
			}
		}
	}
	return r.neverAdmits(list)
}

// kindNever is the kind of limits that have less than a request costs.
const kindNever = "never admits some requests"

// neverAdmits adds the limits of the rule, of its overrides and of its loans that have less than a request costs.
func (r *Rule) neverAdmits(list []mistake) []mistake {
	list = r.neverAdmit(list, -1, r.Limits, r.Costs)
	for i := range r.Overrides {
		o := &r.Overrides[i]
		list = r.neverAdmit(list, i, o.Limits, o.Costs)
	}
	if most, cost := r.Borrow.Rate.Permits, r.Cost.unnamed(); r.Within != "" && most > 0 && most < cost {
		list = append(list, mistake{
			kind: kindNever, param: "borrow", value: plain(r.Borrow.Rate.String()),
			allowed:  fmt.Sprintf("at least %d permits a period, the cost: nothing is ever borrowed", cost),
			harmless: len(r.Guaranteed)+len(r.Weights) > 0 || r.Cost.named(),
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
		if i < len(costs) && !costs[i].isZero() {
			cost, own = costs[i], true
		}
		permits, capacity := cost.unnamed(), limits[i].Capacity
		if permits <= capacity && !r.Classes.Has() || permits > bounds.MaxPermits || limits[i].Validate() != nil {
			continue // as it should be, or a fault of its own
		}
		at, param := limitPlace{override, i}.String(), "cost"
		if own {
			param = at + ".cost"
		}
		m := mistake{kind: kindNever, harmless: r.Otherwise != ""}
		requests := "requests"
		if cost.named() {
			m.harmless, requests = true, "requests that name no cost"
			if len(cost.Sum) > 0 {
				param += ".sum"
			} else {
				param += ".default"
			}
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
