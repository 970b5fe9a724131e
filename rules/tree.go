package rules

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
)

// A tree finds the rules of a host's paths. It is immutable once it is built.
type tree struct {
	root node
}

// A node stands for the segments that lead to it.
type node struct {
	literals map[string]*node
	any      *node // behind whatever segment, unless it is empty
	here     leaf  // the rules of paths that end here
	below    leaf  // the rules of paths that end here or anywhere below
}

func (t *tree) add(p pattern, r *compiled) {
	at := &t.root
	for _, s := range p.segments {
		at = at.child(s)
	}
	if p.rest {
		at.below.add(r)
	} else {
		at.here.add(r)
	}
}

func (n *node) child(s segment) *node {
	if s.any {
		if n.any == nil {
			n.any = new(node)
		}
		return n.any
	}
	child := n.literals[s.literal]
	if child == nil {
		child = new(node)
		if n.literals == nil {
			n.literals = map[string]*node{}
		}
		n.literals[s.literal] = child
	}
	return child
}

// find gathers the rules that match the path from its byte at on, which follows a slash. Both
// a literal and any segment may lead on, so it may go several ways, as many as patterns do.
func (n *node) find(path []byte, at int, r *Request, m *Matches) {
	n.below.find(r, m)
	if at >= len(path) {
		n.here.find(r, m)
		return
	}
	end := bytes.IndexByte(path[at:], '/')
	next := at + end + 1
	if end < 0 {
		end, next = len(path)-at, len(path)
	} else if next == len(path) {
		n.findSlash(path[at:at+end], r, m)
		return
	}
	s := path[at : at+end]
	if n.any != nil {
		n.any.find(path, next, r, m)
	}
	if child := n.literals[string(s)]; child != nil {
		child.find(path, next, r, m)
	}
}

// findSlash goes on over the last segment of a path that ends in a slash, behind which is an
// empty one.
func (n *node) findSlash(s []byte, r *Request, m *Matches) {
	for _, child := range [...]*node{n.any, n.literals[string(s)]} {
		if child == nil {
			continue
		}
		child.below.find(r, m)
		if last := child.literals[""]; last != nil {
			last.below.find(r, m)
			last.here.find(r, m)
		}
	}
}

// A leaf holds rules of one pattern. Those that ask for a header field are found by the
// field's value.
type leaf struct {
	plain  []*compiled
	fields []fieldIndex
}

// A fieldIndex holds the rules that ask for one header field.
type fieldIndex struct {
	name    string
	values  map[string][]*compiled
	present []*compiled // with any value
}

func (l *leaf) add(r *compiled) {
	if len(r.fields) == 0 {
		l.plain = append(l.plain, r)
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

func (l *leaf) find(r *Request, m *Matches) {
	for _, rule := range l.plain {
		m.consider(rule, r)
	}
	for i := range l.fields {
		f := &l.fields[i]
		lines := r.Header[f.name]
		if len(lines) == 0 {
			continue
		}
		for _, rule := range f.present {
			m.consider(rule, r)
		}
		for j, line := range lines {
			if slices.Contains(lines[:j], line) {
				continue
			}
			for _, rule := range f.values[line] {
				m.consider(rule, r)
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
