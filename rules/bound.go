package rules

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint"
)

// A weigher bounds from above how many limits the rules have together that one request meets:
//
//	best(n) = below(n) + max(here(n), best(any of n) + max over literals l of best(n behind l))
//
// A rule counts once for each of its paths and hosts that lead to a node, with the override that has the most limits, as if no path
// were excepted and all header fields were there. Hosts are tried one by one, and so are methods unless there are many.
type weigher struct {
	method string // a rule's; "" is whatever method each rule asks for
	known  map[*node]way
}

// A way is the best one from a node: how many limits are on it, and the segment and the node that it goes on by; nil where it ends.
type way struct {
	limits int
	text   string // * for a segment that no rule names
	next   *node
}

// triedMethods is how many methods are tried one by one at most.
const triedMethods = 32

// exceeds returns the fault of rules of which one request may meet more limits than stint.MaxOpLimits, or nil. index
// tells a rule's place in the list.
func (s *Set) exceeds(index map[string]int) error {
	const most = stint.MaxOpLimits
	hosts := append(slices.Sorted(maps.Keys(s.hosts)), "")
	for _, name := range slices.Sorted(maps.Keys(s.below)) {
		hosts = append(hosts, "*."+name)
	}
	anyMethod := weigher{} // which visits each node of a tree once
	always := anyMethod.best(s.always).limits
	hosts = slices.DeleteFunc(hosts, func(host string) bool { return always+anyMethod.sum(s.roots(host)[1:]) <= most })
	if len(hosts) == 0 {
		return nil
	}
	for _, method := range s.methods() {
		w := weigher{method: method, known: map[*node]way{}}
		for _, host := range hosts {
			if limits := w.sum(s.roots(host)); limits > most {
				return w.fault(host, s.roots(host), limits, index)
			}
		}
	}
	return nil
}

// roots are the trees of a host, first that of any host, which may be nil. *.NAME is a host below a name that has no rule of its own.
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

// methods are those that rules ask for; "" if there is none, or if they are many. HEAD is in place of GET, as it has all of its rules.
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

// each calls a function with each rule of a leaf, which may be nil, that the method meets and that has limits.
func (w *weigher) each(l *leaf, do func(*compiled)) {
	if l == nil {
		return
	}
	visit := func(list []*compiled) {
		for _, c := range list {
			if c.maxLimits > 0 && (w.method == "" || len(c.Match.Methods) == 0 || c.Match.allows(w.method)) {
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

func (w *weigher) of(l *leaf) (limits int) {
	w.each(l, func(c *compiled) { limits += c.maxLimits })
	return limits
}

// sum is the weight of the best ways from several nodes.
func (w *weigher) sum(nodes []*node) (limits int) {
	for _, n := range nodes {
		limits += w.best(n).limits
	}
	return limits
}

// best is the best way from a node, which may be nil. Of equal ones it is that of the first text.
func (w *weigher) best(n *node) (best way) {
	if n == nil {
		return best
	}
	if known, ok := w.known[n]; ok {
		return known
	}
	best = way{w.best(n.only).limits, n.literal, n.only}
	for text, child := range n.literals {
		if limits := w.best(child).limits; best.next == nil || limits > best.limits || limits == best.limits && text < best.text {
			best = way{limits, text, child}
		}
	}
	if best.limits == 0 {
		best.text = "*"
	}
	wild := w.best(n.any).limits
	if wild > best.limits {
		best.next = n.any
	}
	best.limits += wild
	if here := w.of(n.here); here >= best.limits {
		best = way{limits: here}
	}
	best.limits += w.of(n.below)
	if w.known != nil {
		w.known[n] = best
	}
	return best
}

// follow is the path of the best way from a node, which may be nil, and the rules on it.
func (w *weigher) follow(n *node) (path string, list []*compiled) {
	add := func(c *compiled) { list = append(list, c) }
	for n != nil {
		w.each(n.below, add)
		best := w.best(n)
		if best.next == nil {
			w.each(n.here, add)
		} else {
			path += "/" + best.text
		}
		n = best.next
	}
	return path, list
}

// fault tells of rules that a request meets, at the one that is last in the list.
func (w *weigher) fault(host string, roots []*node, limits int, index map[string]int) error {
	const named = 10
	path, found := "", []*compiled(nil)
	for _, root := range roots {
		if way, list := w.follow(root); len(list) > len(found) {
			path, found = way, list
		}
	}
	last := slices.MaxFunc(found, func(a, b *compiled) int { return index[a.ID] - index[b.ID] })
	var ids []string
	for _, c := range found[:min(len(found), named)] {
		ids = append(ids, c.ID)
	}
	request := strings.TrimSpace(fmt.Sprintf("%s %s%s", w.method, host, cmp.Or(path, "/")))
	return &Fault{Index: index[last.ID], ID: last.ID, Param: "limits", Err: stint.Invalid("limits",
		plain(fmt.Sprintf("up to %d together, for a request such as %s: of %s and others", limits, request, strings.Join(ids, ", "))),
		fmt.Sprintf("at most %d limits that hold for one request", stint.MaxOpLimits))}
}
