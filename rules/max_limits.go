package rules

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A limitCounter computes an upper bound of the limits that one request meets, over all rules together. For a node n of
// the tree of segments:
//
//	best(n) = below(n) + max(here(n), best(any of n) + max over literals l of best(n behind l))
//
// A rule counts once for each of its paths and hosts that lead to a node, with the override that
// has the most limits, as if no path were excepted and all header fields were there. Hosts are
// tried one by one, and so are methods unless there are many. It may be too high and is never too
// low but for a path of several variants, which may meet rules of several routes: a set that passes has no other
// request with more limits than a store takes, and a store refuses that one.
type limitCounter struct {
	method string // a rule's; "" is whatever method each rule asks for
	memo   map[*node]route
}

// A route is the first step of the path with the most limits from a node on.
type route struct {
	limits int    // on the whole path
	text   string // the next segment; * for one that no rule names
	next   *node  // the node behind it; nil: the path ends here
}

// triedMethods is how many methods are tried one by one at most.
const triedMethods = 32

// checkLimitCount returns the fault of rules of which one request may meet more limits than
// 1,000, or nil. index is a rule's index in the list, by ID. First all methods
// together, in one visit of each tree; only hosts that exceed the bound so are looked at by method.
func (s *Set) checkLimitCount(index map[string]int) error {
	const most = bounds.MaxOpLimits
	hosts := append(slices.Sorted(maps.Keys(s.hosts)), "")
	for _, name := range slices.Sorted(maps.Keys(s.below)) {
		hosts = append(hosts, "*."+name)
	}
	anyMethod := limitCounter{} // which visits each node of a tree once
	always := anyMethod.best(s.always).limits
	hosts = slices.DeleteFunc(hosts, func(host string) bool { return always+anyMethod.sum(s.roots(host)[1:]) <= most })
	if len(hosts) == 0 {
		return nil
	}
	for _, method := range s.methods() {
		lc := limitCounter{method: method, memo: map[*node]route{}}
		for _, host := range hosts {
			if limits := lc.sum(s.roots(host)); limits > most {
				return lc.fault(host, s.roots(host), limits, index)
			}
		}
	}
	return nil
}

// roots are the trees of a host, first that of any host, which may be nil. *.NAME is a host below a name that has no
// rule of its own.
func (s *Set) roots(host string) []*node {
	roots := []*node{s.always}
	if root := s.hosts[host]; root != nil {
		roots = append(roots, root)
	}
	for i := range len(host) {
		if host[i] == '.' {
			if root := s.below[host[i+1:]]; root != nil {
				roots = append(roots, root)
			}
		}
	}
	return roots
}

// methods are those that rules ask for; "" if there is none, or if they are many. HEAD is in place of GET, as it has
// all of its rules.
func (s *Set) methods() []string {
	seen := map[string]bool{}
	for _, c := range s.rules {
		for _, method := range c.Match.Methods {
			if method == http.MethodGet {
				method = http.MethodHead
			}
			seen[method] = true
		}
	}
	if len(seen) == 0 || len(seen) > triedMethods {
		return []string{""}
	}
	return slices.Sorted(maps.Keys(seen))
}

// eachRule calls a function with each rule of a leaf, which may be nil, that the method meets and
// that has limits.
func (lc *limitCounter) eachRule(l *leaf, do func(*compiled)) {
	if l == nil {
		return
	}
	visit := func(list []*compiled) {
		for _, c := range list {
			if c.maxLimits > 0 && (lc.method == "" || len(c.Match.Methods) == 0 || c.Match.allows(lc.method)) {
				do(c)
			}
		}
	}
	visit(l.free)
	visit(l.checked)
	for i := range l.fields {
		visit(l.fields[i].present)
		for _, list := range l.fields[i].values {
			visit(list)
		}
	}
}

// atLeaf is the limits of a leaf's rules together.
func (lc *limitCounter) atLeaf(l *leaf) (limits int) {
	lc.eachRule(l, func(c *compiled) { limits += c.maxLimits })
	return limits
}

// sum is the limits of the best routes from several nodes.
func (lc *limitCounter) sum(nodes []*node) (limits int) {
	for _, n := range nodes {
		limits += lc.best(n).limits
	}
	return limits
}

// best is the route with the most limits from a node, which may be nil. Of equal ones it is that of
// the first text.
func (lc *limitCounter) best(n *node) (best route) {
	if n == nil {
		return best
	}
	if known, ok := lc.memo[n]; ok {
		return known
	}
	best = route{lc.best(n.only).limits, n.literal, n.only}
	for text, child := range n.literals {
		if limits := lc.best(child).limits; best.next == nil || limits > best.limits ||
			limits == best.limits && text < best.text {
			best = route{limits, text, child}
		}
	}
	if best.limits == 0 {
		best.text = "*"
	}
	wild := lc.best(n.any).limits
	if wild > best.limits {
		best.next = n.any
	}
	best.limits += wild
	if here := lc.atLeaf(n.here); here >= best.limits {
		best = route{limits: here}
	}
	best.limits += lc.atLeaf(n.below)
	if lc.memo != nil {
		lc.memo[n] = best
	}
	return best
}

// follow is the path of the best routes from a node, which may be nil, and the rules on it.
func (lc *limitCounter) follow(n *node) (path string, list []*compiled) {
	add := func(c *compiled) { list = append(list, c) }
	for n != nil {
		lc.eachRule(n.below, add)
		best := lc.best(n)
		if best.next == nil {
			lc.eachRule(n.here, add)
		} else {
			path += "/" + best.text
		}
		n = best.next
	}
	return path, list
}

// fault tells of rules that a request meets, at the one that is last in the list.
func (lc *limitCounter) fault(host string, roots []*node, limits int, index map[string]int) error {
	const named = 10
	path, found := "", []*compiled(nil)
	for _, root := range roots {
		if longer, list := lc.follow(root); len(list) > len(found) {
			path, found = longer, list
		}
	}
	last := slices.MaxFunc(found, func(a, b *compiled) int { return index[a.ID] - index[b.ID] })
	var ids []string
	for _, c := range found[:min(len(found), named)] {
		ids = append(ids, c.ID)
	}
	request := strings.TrimSpace(fmt.Sprintf("%s %s%s", lc.method, host, cmp.Or(path, "/")))
	return &Fault{Index: index[last.ID], ID: last.ID, Param: "limits", Err: stint.Invalid("limits",
		plain(fmt.Sprintf("up to %d together, for a request such as %s: of %s and others", limits, request,
			strings.Join(ids, ", "))),
		fmt.Sprintf("at most %d limits that hold for one request", bounds.MaxOpLimits))}
}
