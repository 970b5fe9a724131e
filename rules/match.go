package rules

import (
	"cmp"
	"slices"
)

// Matches are the rules that hold for a request, by priority and ID. The zero value is ready to
// use; [Set.Match] fills it again and again without allocating. It is not safe for
// concurrent use.
type Matches struct {
	request *Request
	path    reading // canonical
	other   reading // one after another
	as      manner  // of the one whose rules are looked for
	host    []byte  // canonical
	key     []byte
	seen    []*compiled // the first ones of what header fields led to
	rules   []match
}

// A match is a rule and the first reading of the path that its pattern matched.
type match struct {
	*compiled
	as manner
}

// Match finds the rules that match the request, which must not change until the matches are
// used no more. The error wraps stint.ErrInvalid: the path has more than MaxOddPathBytes and
// several readings. There are no matches then, though there are rules: whoever goes on lets the request
// pass them by.
func (s *Set) Match(r *Request, m *Matches) error {
	m.request, m.rules = r, m.rules[:0]
	if s.hosts != nil || s.below != nil {
		m.host = AppendHost(m.host[:0], r.Host)
	}
	if !m.path.readPlain(r.Path) {
		m.path.read(r.Path, canonical)
	}
	if len(s.rules) == 0 {
		return nil
	}
	if err := m.path.bounded(r.Path); err != nil {
		return err
	}
	s.find(&m.path, canonical, m)
	for as := canonical + 1; as < manners && m.path.features != 0; as++ {
		if !as.among(m.path.features) {
			continue
		}
		m.other.read(r.Path, as)
		if as&^m.other.features == 0 || as&keepRuns != 0 { // else it is an earlier one again
			s.find(&m.other, as, m)
		}
	}
	m.sort()
	return nil
}

// find adds the rules whose pattern matches a reading of the path.
func (s *Set) find(path *reading, as manner, m *Matches) {
	m.as = as
	if !s.strict {
		path.trim()
	}
	if s.always != nil {
		s.always.find(path, 0, m)
	}
	if root := s.hosts[string(m.host)]; root != nil {
		root.find(path, 0, m)
	}
	if s.below == nil {
		return
	}
	for i, c := range m.host {
		if c != '.' || i == 0 || len(m.host)-i > maxText {
			continue // no pattern is longer
		}
		if root := s.below[string(m.host[i+1:])]; root != nil {
			root.find(path, 0, m)
		}
	}
}

// consider adds a rule whose pattern matches, if the rest of it does.
func (m *Matches) consider(c *compiled) {
	if len(c.Match.Methods) > 0 && !c.Match.allows(m.request.Method) {
		return
	}
	for i := range c.fields {
		if !c.fields[i].holds(m.request.Header) {
			return
		}
	}
	m.add(c)
}

func (m *Matches) add(c *compiled) { m.rules = append(m.rules, match{c, m.as}) }

// sort puts the rules in order, each once, with the first reading that it matched. Mostly they are
// few, and in order already.
func (m *Matches) sort() {
	const few = 16
	if len(m.rules) > few {
		slices.SortFunc(m.rules, func(a, b match) int { return cmp.Or(a.rank-b.rank, int(a.as)-int(b.as)) })
	} else {
		for i := 1; i < len(m.rules); i++ {
			for j := i; j > 0 && m.rules[j].rank < m.rules[j-1].rank; j-- {
				m.rules[j], m.rules[j-1] = m.rules[j-1], m.rules[j]
			}
		}
	}
	if m.as != canonical {
		m.rules = slices.CompactFunc(m.rules, func(a, b match) bool { return a.compiled == b.compiled })
	}
}

// Len is how many rules match.
func (m *Matches) Len() int { return len(m.rules) }

// Rule returns one of them. It must not be changed.
func (m *Matches) Rule(i int) *Rule { return &m.rules[i].Rule }

// Path is the canonical form of the request's path.
func (m *Matches) Path() string { return string(m.path.text) }

// segment is a segment, from 0, of the reading of the path that the rule matched.
func (m *Matches) segment(c *match, i int) string {
	p := &m.path
	if c.as != canonical {
		p = &m.other
		p.read(m.request.Path, c.as)
	}
	return string(p.segment(i))
}
