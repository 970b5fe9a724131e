package rules

import "slices"

// Matches are the rules that hold for a request, by priority and ID. The zero value is ready to
// use; [Set.Match] fills it again and again without allocating. It is not safe for
// concurrent use.
type Matches struct {
	request *Request
	path    []byte // canonical
	host    []byte // canonical
	key     []byte
	seen    []*compiled // the first ones of what header fields led to
	rules   []*compiled
}

// Match finds the rules that match the request. The request must not change until the
// matches are used no more.
func (s *Set) Match(r *Request, m *Matches) {
	m.request, m.rules = r, m.rules[:0]
	if isCanonical(r.Path) {
		m.path = append(m.path[:0], r.Path...)
	} else {
		m.path = AppendPath(m.path[:0], r.Path)
	}
	if last := len(m.path) - 1; !s.strict && last > 0 && m.path[last] == '/' {
		m.path = m.path[:last]
	}
	if s.always != nil {
		s.always.find(m.path, 1, r, m)
	}
	if s.hosts != nil || s.below != nil {
		m.host = AppendHost(m.host[:0], r.Host)
		s.findHost(m.host, r, m)
	}
	m.sort()
}

func (s *Set) findHost(host []byte, r *Request, m *Matches) {
	if root := s.hosts[string(host)]; root != nil {
		root.find(m.path, 1, r, m)
	}
	if s.below == nil {
		return
	}
	for i, c := range host {
		if c != '.' || i == 0 || len(host)-i > maxText {
			continue // no pattern is longer
		}
		if root := s.below[string(host[i+1:])]; root != nil {
			root.find(m.path, 1, r, m)
		}
	}
}

// consider adds a rule whose pattern matches, if the rest of it does.
func (m *Matches) consider(c *compiled, r *Request) {
	if len(c.Match.Methods) > 0 && !slices.Contains(c.Match.Methods, r.Method) {
		return
	}
	for i := range c.fields {
		if !c.fields[i].holds(r.Header) {
			return
		}
	}
	m.rules = append(m.rules, c)
}

// sort puts the rules in order: mostly they are few, and in order already.
func (m *Matches) sort() {
	const few = 16
	if len(m.rules) > few {
		slices.SortFunc(m.rules, func(a, b *compiled) int { return a.rank - b.rank })
		return
	}
	for i := 1; i < len(m.rules); i++ {
		for j := i; j > 0 && m.rules[j].rank < m.rules[j-1].rank; j-- {
			m.rules[j], m.rules[j-1] = m.rules[j-1], m.rules[j]
		}
	}
}

// Len is how many rules match.
func (m *Matches) Len() int { return len(m.rules) }

// Rule returns one of them. It must not be changed.
func (m *Matches) Rule(i int) *Rule { return &m.rules[i].Rule }

// Path is the request's path in the form in which it was matched.
func (m *Matches) Path() string { return string(m.path) }
