package rules

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// A bond is what a cluster can't do in several partitions of one request. Each share of a request is decided by itself
// there, and given back if another denies.
type bond uint8

const (
	// keeps is of limits that can't give back: leaky buckets and logs. One partition at most may have some.
	keeps bond = 1 << iota
	// countsDenied is of limits that record what any other limit denies, and of blocks.
	countsDenied
	// hasWays is of limits that are tried one after another.
	hasWays
	// holds is of rules for reserves, which hold in one step.
	holds
	// onlyHolds is of rules by which nothing else is decided.
	onlyHolds
)

// bonds are the rule's. One in shadow is decided by itself.
func (c *compiled) bonds() (b bond) {
	note := func(has bool, of bond) {
		if has {
			b |= of
		}
	}
	c.eachLimit(func(_ limitPlace, l *stint.Limit) {
		note(l.Algorithm == stint.AlgorithmLeakyBucket || l.Algorithm == stint.AlgorithmSlidingWindowLog, keeps)
		note(l.CountDenied, countsDenied)
	})
	note(c.Block != (Block{}), countsDenied)
	note(c.otherwise != nil || c.parent != nil && c.Borrow.allowed(), hasWays)
	note(c.Reserve != (Reserve{}), holds)
	note(c.NeedsReserve(), onlyHolds)
	return b
}

// maxPairs bounds the pairs of rules that are looked at, so that many rules are put in force in time. It takes some
// tenths of a second; pairs beyond it are not warned of.
const maxPairs = 1 << 20

// findApart finds, for each rule, the first of those before it that may hold for the same request, with a client in
// another partition of a cluster, and can't be decided with it there.
func (s *Set) findApart() map[string]Warning {
	found := map[string]Warning{}
	var all, keeping, bound []*compiled // before the rule: any, with keeps, and with other bonds
	pairs := 0
	for _, c := range s.rules {
		if c.maxLimits == 0 {
			continue // it is disabled or in shadow, or has no limits
		}
		b := c.bonds()
		candidates := [][]*compiled{bound}
		switch {
		case b&^keeps != 0:
			candidates = [][]*compiled{all}
			bound = append(bound, c)
		case b&keeps != 0:
			candidates = append(candidates, keeping)
		}
		for _, o := range slices.Concat(candidates...) {
			if pairs++; pairs > maxPairs {
				return found
			}
			if c.isApart(o) && c.meets(o) {
				found[c.ID] = apart(o.ID, b, o.bonds())
				break
			}
		}
		all = append(all, c)
		if b&keeps != 0 {
			keeping = append(keeping, c)
		}
	}
	return found
}

// apart is the warning of two rules with these bonds.
func apart(other string, a, b bond) Warning {
	const partitions = "set the same partition_by in both, and in all rules that match the same requests"
	requests, why, change := "requests", "", partitions
	switch either := a | b; {
	case either&onlyHolds == 0 && either&hasWays != 0:
		why = "limits within others, or with otherwise, are decided in one step with all others"
	case either&onlyHolds == 0 && either&countsDenied != 0:
		why = "count_denied and block are decided in one step with all others"
	case either&onlyHolds == 0 && a&b&keeps != 0:
		why = "leaky buckets and sliding window logs can't give back what was taken"
		change += ", or take another algorithm in one of them"
	default:
		requests, why = "reserves", "what a reserve holds is held in one step"
	}
	return Warning{
		Kind: kindApart,
		Detail: fmt.Sprintf("requests may meet it and rule %s, whose clients are in different partitions of a cluster; "+
			"%s, so %s are errors", other, why, requests),
		Change: change,
		Errors: true,
	}
}

// isApart reports whether a request that both rules hold for has clients of them in different partitions. Rules that
// share limits are warned of elsewhere.
func (c *compiled) isApart(o *compiled) bool {
	if c.outermost() == o.outermost() {
		return false
	}
	if c.PartitionBy != "" || o.PartitionBy != "" {
		return c.PartitionBy != o.PartitionBy
	}
	return !slices.Equal(c.Scope, o.Scope) || !slices.Equal(c.parameters, o.parameters)
}

// outermost stands for the rules that share limits.
func (c *compiled) outermost() *compiled {
	for {
		switch {
		case c.parent != nil:
			c = c.parent
		case c.usedBy != nil && c.usedBy.otherwise == c:
			c = c.usedBy
		default:
			return c
		}
	}
}

// meets reports whether one request may match both rules, as far as can be told without it. A path with several
// variants, which may match more, is left out.
func (c *compiled) meets(o *compiled) bool {
	methods := func(m *Match) []string {
		if len(m.Methods) == 0 {
			return []string{""}
		}
		return m.Methods
	}
	get := func(method string) string { // which holds for HEAD as well
		if method == http.MethodHead {
			return http.MethodGet
		}
		return method
	}
	if !anyPair(methods(&c.Match), methods(&o.Match),
		func(a, b string) bool { return a == "" || b == "" || get(a) == get(b) }) {
		return false
	}
	for name, values := range c.Match.Attributes {
		others, both := o.Match.Attributes[name]
		if both && !anyPair(values, others, func(a, b string) bool { return a == b || a == "*" || b == "*" }) {
			return false
		}
	}
	if anyPair(c.fields, o.fields,
		func(a, b field) bool { return a.name == b.name && !a.any && !b.any && a.value != b.value }) {
		return false
	}
	if len(c.Match.Hosts) > 0 && len(o.Match.Hosts) > 0 && !anyPair(c.Match.Hosts, o.Match.Hosts, hostsMeet) {
		return false
	}
	paths := func(c *compiled) []pattern {
		if len(c.paths) == 0 {
			return []pattern{{rest: true}}
		}
		return c.paths
	}
	return anyPair(paths(c), paths(o), func(a, b pattern) bool {
		excepts := func(except []pattern, p pattern) bool {
			return slices.ContainsFunc(except, func(e pattern) bool { return e.covers(&p) })
		}
		return a.meets(&b) && !excepts(c.except, b) && !excepts(o.except, a)
	})
}

// anyPair reports whether a pair of the lists has what is asked.
func anyPair[T any](list, others []T, has func(a, b T) bool) bool {
	return slices.ContainsFunc(list, func(a T) bool {
		return slices.ContainsFunc(others, func(b T) bool { return has(a, b) })
	})
}

// hostsMeet reports whether one host matches two patterns.
func hostsMeet(text, other string) bool {
	a, _ := parseHostPattern(text) // which are valid
	b, _ := parseHostPattern(other)
	within := func(name string, of hostPattern) bool { return of.below && strings.HasSuffix(name, "."+of.name) }
	return a == b || within(a.name, b) || within(b.name, a)
}

// meets reports whether one path matches both patterns.
func (p *pattern) meets(o *pattern) bool {
	n, m := len(p.segments), len(o.segments)
	if n > m && !o.rest || n < m && !p.rest {
		return false
	}
	for i := range min(n, m) {
		if a, b := p.segments[i], o.segments[i]; !a.any && !b.any && a.literal != b.literal {
			return false
		}
	}
	return true
}

// covers reports whether all paths of the other pattern match this one.
func (p *pattern) covers(o *pattern) bool {
	n, m := len(p.segments), len(o.segments)
	if n > m || n < m && !p.rest || o.rest && !p.rest {
		return false
	}
	for i, s := range p.segments {
		if t := o.segments[i]; !s.any && (t.any || t.literal != s.literal) {
			return false
		}
	}
	return true
}
