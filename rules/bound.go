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

// weighSteps bounds the search for a request that meets too many limits: less than a second. It begins only where the limits of
// rules on all ways through the trees, each way taken at its best, are too many.
const weighSteps = 1 << 22

// A weigher looks for a request whose path has one variant and whose rules have more limits together than one operation of
// a store may have.
//
// A rule with several paths or hosts that one request meets counts for each of them in an upper bound, and once in what is
// found. Paths that a rule excepts are known to what is found only.
//
// Hosts and methods are tried one by one. Header fields are all taken to be there, as a field may have any number of
// lines. Of paths, a branch of the search is left once its upper bound is small enough: for a set of nodes N that a path
// leads to, the sum of best(n) over N, where best is the weight of the best way from one node:
//
//	best(n) = below(n) + max(here(n), best(any of n) + max over literals l of best(n behind l))
type weigher struct {
	set    *Set
	method string // a rule's; "" is whatever method each rule asks for
	most   int
	steps  int
	known  map[*node]int // best, of this method

	host   string
	leaves []*leaf // on the way
	text   []string
	except bool // whether some rule excepts paths
}

// exceeds returns the fault of rules of which one request may meet more limits than stint.MaxOpLimits, or nil. index
// tells a rule's place in the list.
func (s *Set) exceeds(index map[string]int) error {
	w := &weigher{set: s, most: stint.MaxOpLimits, steps: weighSteps}
	all := 0
	for _, c := range s.rules {
		c.weight = c.mostLimits()
		all += c.weight
		w.except = w.except || len(c.except) > 0
	}
	if all <= w.most {
		return nil
	}
	always := w.best(s.always)
	hosts := slices.Sorted(maps.Keys(s.hosts))
	for _, name := range slices.Sorted(maps.Keys(s.below)) {
		hosts = append(hosts, "*."+name)
	}
	hosts = slices.DeleteFunc(append(hosts, ""), func(host string) bool {
		sum := always
		for _, root := range s.roots(host)[1:] {
			sum += w.best(root)
		}
		return sum <= w.most
	})
	if len(hosts) == 0 {
		return nil
	}
	for _, w.method = range s.methods() {
		w.known = map[*node]int{}
		for _, w.host = range hosts {
			if found := w.search(s.roots(w.host), 0); found != nil {
				return w.fault(found, index)
			}
			if w.steps < 0 {
				return stint.Invalid("rules", plain(fmt.Sprintf("%d with %d limits, too entangled to tell how many of them may hold for one request", len(s.rules), all)),
					fmt.Sprintf("at most %d limits that hold for one request", w.most))
			}
		}
	}
	return nil
}

// mostLimits is how many limits the rule adds at most to the operation of a request.
func (c *compiled) mostLimits() (limits int) {
	if c.Disabled || c.OnExceed == Shadow {
		return 0 // which are decided by themselves
	}
	limits = countOf(c.groups)
	for _, o := range c.overrides {
		limits = max(limits, countOf(o.groups))
	}
	return limits
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

// methods are those that rules ask for; "" if none does. HEAD is in place of GET, as it has all of its rules.
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
	if len(seen) == 0 {
		return []string{""}
	}
	return slices.Sorted(maps.Keys(seen))
}

// each calls a function with each rule of a leaf that the method meets.
func (w *weigher) each(l *leaf, do func(*compiled)) {
	if l == nil {
		return
	}
	visit := func(list []*compiled) {
		for _, c := range list {
			w.steps--
			if w.method == "" || len(c.Match.Methods) == 0 || c.Match.allows(w.method) {
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
	w.each(l, func(c *compiled) { limits += c.weight })
	return limits
}

// best is the weight of the best way from a node, which may be nil.
func (w *weigher) best(n *node) int {
	if n == nil {
		return 0
	}
	if known, ok := w.known[n]; ok {
		return known
	}
	w.steps--
	longest := w.best(n.only)
	for _, child := range n.literals {
		longest = max(longest, w.best(child))
	}
	most := w.of(n.below) + max(w.of(n.here), w.best(n.any)+longest)
	if w.known != nil {
		w.known[n] = most
	}
	return most
}

// A step leads to nodes by a segment.
type step struct {
	text  string
	nodes []*node
	most  int
}

// search looks for a path that leads on from nodes, and returns the rules of its request; nil if there is none.
func (w *weigher) search(nodes []*node, weight int) []*compiled {
	known := len(w.leaves)
	defer func() { w.leaves = w.leaves[:known] }()
	for _, n := range nodes {
		if n != nil && n.below != nil {
			weight += w.of(n.below)
			w.leaves = append(w.leaves, n.below)
		}
	}
	below, end := len(w.leaves), weight
	for _, n := range nodes {
		if n != nil && n.here != nil {
			end += w.of(n.here)
			w.leaves = append(w.leaves, n.here)
		}
	}
	if end > w.most {
		if found := w.met(false); found != nil {
			return found
		}
	}
	w.leaves = w.leaves[:below]
	if w.except && weight > w.most {
		if found := w.met(true); found != nil { // some exceptions are of this path only
			w.text = append(w.text, "*")
			return found
		}
	}
	if len(w.text) > 0 && w.text[len(w.text)-1] == "" {
		return nil // nothing follows on a slash at the end
	}
	for _, s := range w.next(nodes, weight) {
		w.text = append(w.text, s.text)
		if found := w.search(s.nodes, weight); found != nil || w.steps < 0 {
			return found
		}
		w.text = w.text[:len(w.text)-1]
	}
	return nil
}

// next are the segments that may lead from nodes to enough weight, the most promising ones first.
func (w *weigher) next(nodes []*node, weight int) (steps []step) {
	var wild []*node
	literals := map[string][]*node{}
	for _, n := range nodes {
		if n == nil {
			continue
		}
		if n.any != nil {
			wild = append(wild, n.any)
		}
		if n.only != nil {
			literals[n.literal] = append(literals[n.literal], n.only)
		}
		for text, child := range n.literals {
			literals[text] = append(literals[text], child)
		}
	}
	consider := func(text string, nodes []*node) {
		most := weight
		for _, n := range nodes {
			w.steps--
			most += w.best(n)
		}
		if most > w.most {
			steps = append(steps, step{text, nodes, most})
		}
	}
	for text, behind := range literals {
		if text != "" { // a slash at the end is no segment
			behind = append(behind, wild...)
		}
		consider(text, behind)
	}
	if len(wild) > 0 {
		consider("*", wild)
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(b.most-a.most, strings.Compare(a.text, b.text)) })
	return steps
}

// excepts reports whether the rule excepts the path, or if longer is set, all paths below it.
func (w *weigher) excepts(c *compiled, longer bool) bool {
	if len(c.except) == 0 {
		return false
	}
	var path reading
	for _, text := range w.text {
		w.steps--
		start := len(path.text)
		path.text = append(path.text, text...)
		path.segments = append(path.segments, span{start, len(path.text)})
		path.slash = text == ""
	}
	return slices.ContainsFunc(c.except, func(p pattern) bool { return (p.rest || !longer) && p.matches(&path) })
}

// met are the rules of the leaves, in order, if some client meets too many limits by them; of a longer path if so. A client is one for all rules
// that count alike, with one override of each; those that count different things are taken to be at their worst all at once.
func (w *weigher) met(longer bool) []*compiled {
	var found []*compiled
	for _, l := range w.leaves {
		w.each(l, func(c *compiled) {
			if c.weight > 0 && !w.excepts(c, longer) {
				found = append(found, c)
			}
		})
	}
	slices.SortFunc(found, func(a, b *compiled) int { return a.rank - b.rank })
	found = slices.Compact(found)
	limits := 0
	extra := map[string]map[string]int{} // by what is counted and the client, besides the rules' own limits
	for _, c := range found {
		own := countOf(c.groups)
		if len(c.networks[0])+len(c.networks[1]) > 0 {
			own = c.weight // whichever network the client is in
		}
		limits += own
		counted := fmt.Sprint(c.scope)
		for client, o := range c.overrides {
			w.steps--
			if extra[counted] == nil {
				extra[counted] = map[string]int{}
			}
			extra[counted][c.hashedClient(client)] += countOf(o.groups) - own
		}
	}
	for _, clients := range extra {
		most := 0
		for _, more := range clients {
			most = max(most, more)
		}
		limits += most
	}
	if limits <= w.most {
		return nil
	}
	return found
}

// fault tells of rules that a request meets, at the one that is last in the list.
func (w *weigher) fault(found []*compiled, index map[string]int) error {
	const named = 10
	limits, last := 0, found[0]
	var ids []string
	for _, c := range found {
		limits += c.weight
		if index[c.ID] > index[last.ID] {
			last = c
		}
		if len(ids) < named {
			ids = append(ids, c.ID)
		}
	}
	names := strings.Join(ids, ", ")
	if more := len(found) - len(ids); more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	request := strings.TrimSpace(fmt.Sprintf("%s %s/%s", w.method, w.host, strings.Join(w.text, "/")))
	return &Fault{Index: index[last.ID], ID: last.ID, Param: "limits", Err: stint.Invalid("limits",
		plain(fmt.Sprintf("up to %d together, of %d rules that hold for a request such as %s: %s", limits, len(found), request, names)),
		fmt.Sprintf("at most %d limits that hold for one request", w.most))}
}
