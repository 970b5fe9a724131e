package rules

import (
	"net/http"
	"slices"
	"strings"
)

// A node stands for the segments that lead to it. The one that none lead to is the root of a
// tree, which finds the rules of a host's paths and is immutable once it is built. A node fits a line of the processor's cache: among many rules
// matching costs what is fetched from memory on the way. So a node with one literal segment
// behind it, as most have, needs no map.
type node struct {
	literal  string
	only     *node            // behind literal; nil: there is none, or there are more
	literals map[string]*node // if there are more
	any      *node            // behind whatever segment but the empty one behind a slash at the end
	here     *leaf            // the rules of paths that end here; nil: none
	below    *leaf            // the rules of paths that end here or anywhere below; nil: none
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
// segment may lead on, so it may go several ways, as many as patterns do.
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

// A leaf holds rules of one pattern. Those that ask for a header field are found by the
// field's value.
type leaf struct {
	free    []*compiled // of whatever request
	checked []*compiled // of some methods, or except some paths
	fields  []fieldIndex
}

// A fieldIndex holds the rules that ask for one header field.
type fieldIndex struct {
	name    string
	values  map[string][]*compiled
	present []*compiled // with any value
}

func (l *leaf) add(r *compiled) {
	switch {
	case len(r.fields) > 0:
	case len(r.Match.Methods)+len(r.except) > 0:
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

func (l *leaf) find(m *Matches) {
	for _, rule := range l.free {
		m.add(rule)
	}
	for _, rule := range l.checked {
		m.consider(rule)
	}
	for i := range l.fields {
		f := &l.fields[i]
		lines := m.request.Header[f.name]
		if len(lines) == 0 {
			continue
		}
		for _, rule := range f.present {
			m.consider(rule)
		}
		m.seen = m.seen[:0]
		for _, line := range lines {
			rules := f.values[line]
			if len(rules) == 0 || slices.Contains(m.seen, rules[0]) {
				continue // the same line again: it may be there any number of times
			}
			m.seen = append(m.seen, rules[0])
			for _, rule := range rules {
				m.consider(rule)
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
	slices.SortFunc(fields, func(a, b field) int {
		if a.any != b.any {
			if a.any {
				return 1
			}
			return -1
		}
		return strings.Compare(a.name, b.name)
	})
	return fields
}
