package rules

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// Matches are the rules that hold for a request, by priority and ID. The zero value is ready to
// use; [Set.Match] fills it again and again without allocating, and the lists of what was matched
// before are then used again. It is not safe for concurrent use. All lists are kept from request to
// request, so that matching does not allocate once they are as long as they get.
type Matches struct {
	// Now tells the time, by which overrides end. It is asked only about clients of overrides that do. Default: nil, none
	// has ended.
	Now func() time.Time

	request *Request
	decoded decoded
	path    variant  // canonical
	other   variant  // one after another
	at      *variant // the one whose rules are looked for
	// host is the request's host in its canonical form.
	host  []byte
	named []byte // the host that a variant's authority names, canonical
	key   []byte
	// where the client's address is in key, if it is there
	address int
	network []byte      // key with a network in its place
	seen    []*compiled // the first ones of what header fields led to
	rules   []match
	// a bit for each rule that an earlier variant matched, by rank; of a path with others
	found []uint64

	keys   [4]string // the last ones that were made of key
	newest int       // of keys
	and    []stint.Claim
	vias   []string
	ways   []uint8
	levels []level
}

// lend gives a rule room for its lists behind those of others. The room is the end of a list that
// all rules share: appending to it needs no memory of its own until it is full.
func (m *Matches) lend(h *Matched) {
	h.And, h.Vias, h.Ways = m.and[len(m.and):], m.vias[len(m.vias):], m.ways[len(m.ways):]
}

// own ends the lists of a rule, which other rules' lists follow.
func (m *Matches) own(h *Matched) {
	m.and, h.And = ended(m.and, h.And)
	m.vias, h.Vias = ended(m.vias, h.Vias)
	m.ways, h.Ways = ended(m.ways, h.Ways)
}

// ended are a buffer with a part that was appended behind its end, and the part alone. A part that did
// not fit has a memory of its own, and the buffer is a larger one for what follows.
func ended[T any](buffer, part []T) (rest, own []T) {
	n := len(buffer) + len(part)
	switch {
	case len(part) == 0:
		return buffer, nil
	case n > cap(buffer):
		return make([]T, 0, 2*n), part
	default:
		return buffer[:n], part[:len(part):len(part)]
	}
}

// keyText is the key that was written, as a text: one that was made before if it is among the last.
// Several rules of a request often count the same client, and get one string then.
func (m *Matches) keyText() string {
	key := bounded(m.key)
	for i := range m.keys {
		if m.keys[i] == string(key) {
			return m.keys[i]
		}
	}
	m.newest = (m.newest + 1) % len(m.keys)
	m.keys[m.newest] = string(key)
	return m.keys[m.newest]
}

// A match is a rule and the first variant of the path that its pattern matched.
type match struct {
	*compiled
	as normalisation
}

// Match finds the rules that match the request, which must not change until the matches are used no
// more. The error wraps stint.ErrInvalid: the path has several variants, and more than
// 8 KiB or 512 separators; or a rule asks for a host, and Host has a byte that a program
// may take for another one, or for the end of the name: percent-encoded ones, those that are not
// ASCII, and signs that no name has, such as @. There are no matches then, though there are rules:
// whoever goes on lets the request pass them by.
func (s *Set) Match(r *Request, m *Matches) error { return s.match(r, m, false) }

// MatchUnambiguous is Match for programs without need of ambiguous paths: it refuses those,
// whatever the rules are, with an error that wraps stint.ErrInvalid. A path is ambiguous if it has
// more than one variant, that is, if there is any of these in it, before its query: an empty
// segment (//), a backslash, a %2F or %5C, a #, a ; or %3B, or a segment . or .. of dots that may
// be percent-encoded. Other bytes may be percent-encoded, and a slash may be at the end.
func (s *Set) MatchUnambiguous(r *Request, m *Matches) error { return s.match(r, m, true) }

// A path of one variant, as nearly all are, is looked up once. One that programs may take in
// several ways is looked up in each of them, and a rule that holds for any of them holds: whichever
// server stands behind, no rule is led around.
func (s *Set) match(r *Request, m *Matches, unambiguous bool) error {
	m.request, m.rules, m.and, m.vias, m.ways = r, m.rules[:0], m.and[:0], m.vias[:0], m.ways[:0]
	if s.hosts != nil || s.below != nil {
		if !isHost(r.Host) {
			return stint.Invalid("host", r.Host[:min(len(r.Host), maxText)], plainHosts)
		}
		m.host = appendHost(m.host[:0], r.Host)
	}
	if !m.decoded.plain(r.Path, &m.path) {
		err := m.decoded.decode(r.Path, unambiguous || len(s.rules) > 0)
		if unambiguous && m.decoded.features != canonical {
			return stint.Invalid("path", r.Path[:min(len(r.Path), maxText)], unambiguousPaths)
		}
		if err != nil {
			return err
		}
		m.path.read(&m.decoded, canonical)
	}
	if len(s.rules) == 0 {
		return nil
	}
	s.find(&m.path, m)
	if features := m.decoded.features; features != canonical {
		words := len(s.rules)/64 + 1
		m.found = slices.Grow(m.found[:0], words)[:words]
		clear(m.found)
		m.mark(0)
		for as := canonical.after(features); as != canonical; as = as.after(features) {
			known := len(m.rules)
			m.other.read(&m.decoded, as)
			s.find(&m.other, m)
			m.mark(known)
			if s.nameHost(m) {
				known = len(m.rules)
				s.findBelow(&m.other, m.named, m)
				m.mark(known)
			}
		}
	}
	m.sort()
	return nil
}

// unambiguousPaths are those of one variant.
const unambiguousPaths = `a path that all programs take for the same, ` +
	`without //, \, #, ;, %2F, %3B, %5C, and segments . and ..`

// find adds the rules whose pattern matches a variant of the path.
func (s *Set) find(path *variant, m *Matches) {
	m.at = path
	if !s.strict {
		path.trim()
	}
	if s.always != nil {
		s.always.find(path, 0, m)
	}
	s.findBelow(path, m.host, m)
}

// findBelow adds those of a host. For a.b.c it looks at the patterns of b.c and of c: one lookup
// for each dot.
func (s *Set) findBelow(path *variant, host []byte, m *Matches) {
	if root := s.hosts[string(host)]; root != nil {
		root.find(path, 0, m)
	}
	if s.below == nil {
		return
	}
	for i, c := range host {
		if c != '.' || i == 0 || len(host)-i > maxText {
			continue // no pattern is longer
		}
		if root := s.below[string(host[i+1:])]; root != nil {
			root.find(path, 0, m)
		}
	}
}

// nameHost finds the host that is named by the authority of the variant, which a program may go by
// in place of the request's. It reports whether rules may know it. A path such as
// //other.example/x, or http://other.example/x, names a host that a program may go by.
func (s *Set) nameHost(m *Matches) bool {
	authority := m.other.text[m.other.authority.start:m.other.authority.end]
	if len(authority) == 0 || s.hosts == nil && s.below == nil {
		return false
	}
	host := authority[bytes.LastIndexByte(authority, '@')+1:]
	m.named = appendHost(m.named[:0], string(host))
	return !bytes.Equal(m.named, m.host)
}

// addIfMatches adds a rule whose pattern matches, if the rest of it does. Methods come first as
// they are cheapest, exceptions last as they take a look at the path.
func (m *Matches) addIfMatches(c *compiled) {
	if m.isFound(c) || !m.inSet(c) || len(c.Match.Methods) > 0 && !c.Match.allows(m.request.Method) {
		return
	}
	for i := range c.fields {
		if !c.fields[i].holds(m.request.Header) {
			return
		}
	}
	for name, values := range c.Match.Attributes {
		value, there := m.request.Attributes[name]
		if !there || !slices.Contains(values, value) && !slices.Contains(values, "*") {
			return
		}
	}
	if c.except == nil || !m.excepts(c) {
		m.rules = append(m.rules, match{c, m.at.as})
	}
}

// add adds a rule that holds for every request of its paths, unless an earlier variant of the path
// has added it.
func (m *Matches) add(c *compiled) {
	if !m.isFound(c) && m.inSet(c) {
		m.rules = append(m.rules, match{c, m.at.as})
	}
}

// inSet reports whether the rule is of the set that the request names, if it names one.
func (m *Matches) inSet(c *compiled) bool { return m.request.Set == "" || m.request.Set == c.Set }

// isFound reports whether an earlier variant matched.
func (m *Matches) isFound(c *compiled) bool {
	return m.at.as != canonical && m.found[c.rank/64]&(1<<(c.rank%64)) != 0
}

// excepts reports whether the rule excepts the variant of the path. The rule holds if it does not except another one
// that it matches: whichever way a program takes the path, an exception leads around no rule of the route that it
// finds.
func (m *Matches) excepts(c *compiled) bool {
	return slices.ContainsFunc(c.except, func(p pattern) bool { return p.matches(m.at) }) &&
		bytes.IndexByte(m.at.text, ';') < 0 && bytes.IndexByte(m.at.text, '%') < 0
}

// mark notes the rules from one on as found, so that variants that follow add no rule again.
func (m *Matches) mark(from int) {
	for _, r := range m.rules[from:] {
		m.found[r.rank/64] |= 1 << (r.rank % 64)
	}
}

// sort puts the rules in order, each once, as several patterns of a rule may match. Mostly they are
// few, and in order already. Insertion is as good as anything for few, and best for what is in
// order.
func (m *Matches) sort() {
	const few = 16
	if len(m.rules) > few {
		slices.SortFunc(m.rules, func(a, b match) int { return a.rank - b.rank })
	}
	for i := 1; i < len(m.rules); i++ {
		for j := i; j > 0 && m.rules[j].rank < m.rules[j-1].rank; j-- {
			m.rules[j], m.rules[j-1] = m.rules[j-1], m.rules[j]
		}
	}
	if len(m.rules) > 1 {
		m.rules = slices.CompactFunc(m.rules, func(a, b match) bool { return a.compiled == b.compiled })
	}
}

// Len is how many rules match.
func (m *Matches) Len() int { return len(m.rules) }

// Rule returns one of them. It must not be changed.
func (m *Matches) Rule(i int) *Rule { return &m.rules[i].Rule }

// Path is the canonical form of the request's path.
func (m *Matches) Path() string { return string(m.path.appendTo(nil)) }

// parameter is what stands for a parameter in the variant of the path that the rule matched, by the first of its
// patterns that matches. That variant is made again unless it is the one before.
func (m *Matches) parameter(c *match, name string) string {
	path := &m.path
	if c.as != canonical {
		path = &m.other
		if path.as != c.as {
			path.read(&m.decoded, c.as)
			if !c.strict {
				path.trim()
			}
		}
	}
	for i := range c.paths {
		if p := &c.paths[i]; p.matches(path) {
			if at, ok := p.parameter(name); ok {
				return string(path.segment(at))
			}
		}
	}
	return ""
}

// A node stands for the segments that lead to it. The one that none lead to is the root of a tree, which finds the
// rules of a host's paths and is immutable once it is built. A node fits a line of the processor's cache: among many
// rules matching costs what is fetched from memory on the way. So a node with one literal segment behind it, as most
// have, needs no map.
type node struct {
	literal string
	// behind literal; nil: there is none, or there are more
	only     *node
	literals map[string]*node // if there are more
	// behind whatever segment but the empty one behind a slash at the end
	any  *node
	here *leaf // the rules of paths that end here; nil: none
	// the rules of paths that end here or anywhere below; nil: none
	below *leaf
}

// add puts a rule into the tree of which the node is the root.
func (n *node) add(p pattern, r *compiled) {
	at := n
	for _, s := range p.segments {
		at = at.child(s)
	}
	end := &at.here
	if p.rest {
		end = &at.below
	}
	if *end == nil {
		*end = new(leaf)
	}
	(*end).add(r)
}

// child is the node behind a segment, made if there is none. A second literal turns the single
// child into a map.
func (n *node) child(s segment) *node {
	if s.any {
		if n.any == nil {
			n.any = new(node)
		}
		return n.any
	}
	if n.only != nil && n.literal == s.literal {
		return n.only
	}
	child := n.literals[s.literal]
	if child != nil {
		return child
	}
	child = new(node)
	switch {
	case n.only == nil && n.literals == nil:
		n.literal, n.only = s.literal, child
	case n.only != nil:
		n.literals = map[string]*node{n.literal: n.only, s.literal: child}
		n.literal, n.only = "", nil
	default:
		n.literals[s.literal] = child
	}
	return child
}

// behind is the node behind a literal segment, or nil.
func (n *node) behind(segment []byte) *node {
	if n.only != nil {
		if n.literal == string(segment) {
			return n.only
		}
		return nil
	}
	return n.literals[string(segment)]
}

// find gathers the rules that match the path from one of its segments on. Both a literal and any
// segment may lead on, so it may go several ways, as many as patterns do. Patterns branch only
// where one has a literal and another {any} at the same place, so that the ways are few, whatever
// the path.
func (n *node) find(path *variant, at int, m *Matches) {
	if n.below != nil {
		n.below.find(m)
	}
	if at == len(path.segments) {
		if n.here != nil {
			n.here.find(m)
		}
		return
	}
	s := path.segment(at)
	if n.any != nil && (len(s) > 0 || !path.slash || at+1 < len(path.segments)) {
		n.any.find(path, at+1, m)
	}
	if child := n.behind(s); child != nil {
		child.find(path, at+1, m)
	}
}

// A leaf holds rules of one pattern. Those that ask for a header field are found by the field's
// value. Rules that ask for fields or methods are looked at one by one, those that ask for the
// value of a field only if the request has that value.
type leaf struct {
	free    []*compiled // of whatever request
	checked []*compiled // of some methods, or except some paths
	fields  []fieldIndex
}

// A fieldIndex holds the rules that ask for one header field. A thousand rules for a thousand API
// versions in one field cost one lookup.
type fieldIndex struct {
	name    string
	values  map[string][]*compiled
	present []*compiled // with any value
}

// add puts a rule where it is found soonest: by the value of its first field, among those that have
// to be checked, or among those that hold for every request.
func (l *leaf) add(r *compiled) {
	switch {
	case len(r.fields) > 0:
	case len(r.Match.Methods)+len(r.except)+len(r.Match.Attributes) > 0:
		l.checked = append(l.checked, r)
		return
	default:
		l.free = append(l.free, r)
		return
	}
	f := r.fields[0]
	i := slices.IndexFunc(l.fields, func(known fieldIndex) bool { return known.name == f.name })
	if i < 0 {
		i = len(l.fields)
		l.fields = append(l.fields, fieldIndex{name: f.name, values: map[string][]*compiled{}})
	}
	if f.any {
		l.fields[i].present = append(l.fields[i].present, r)
	} else {
		l.fields[i].values[f.value] = append(l.fields[i].values[f.value], r)
	}
}

// find adds the rules that hold. Of a field with several lines each value counts once.
func (l *leaf) find(m *Matches) {
	for _, rule := range l.free {
		m.add(rule)
	}
	for _, rule := range l.checked {
		m.addIfMatches(rule)
	}
	for i := range l.fields {
		f := &l.fields[i]
		lines := m.request.Header[f.name]
		if len(lines) == 0 {
			continue
		}
		for _, rule := range f.present {
			m.addIfMatches(rule)
		}
		m.seen = m.seen[:0]
		for _, line := range lines {
			rules := f.values[line]
			if len(rules) == 0 || slices.Contains(m.seen, rules[0]) {
				continue // the same line again: it may be there any number of times
			}
			m.seen = append(m.seen, rules[0])
			for _, rule := range rules {
				m.addIfMatches(rule)
			}
		}
	}
}

// A field is what a rule asks of a header field.
type field struct {
	name  string // canonical
	value string
	any   bool
}

// holds reports whether a header has the field: with any value, or with this one in one of its
// lines.
func (f *field) holds(header http.Header) bool {
	lines := header[f.name]
	return f.any && len(lines) > 0 || !f.any && slices.Contains(lines, f.value)
}

// fieldsOf lists what a rule asks of header fields, by name, those with a value first since
// they tell more.
func fieldsOf(headers map[string]string) []field {
	fields := make([]field, 0, len(headers))
	for name, value := range headers {
		fields = append(fields, field{name: http.CanonicalHeaderKey(name), value: value, any: value == "*"})
	}
	slices.SortStableFunc(fields, func(a, b field) int {
		if a.any == b.any {
			return strings.Compare(a.name, b.name)
		} else if a.any {
			return 1
		}
		return -1
	})
	return fields
}
