package file

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// What bounds a document before it is parsed: the parser takes time or memory by the square of
// each of these, but of the parts (maxParts), for each of which it takes some hundred bytes. Items without
// a value, items with - in brackets, and a second colon of an entry in them are of that kind
// too; of these there may be none.
const (
	maxDepth     = 64 // of lists and mappings in each other, as in JSON; rules need 5
	maxEntries   = 1000
	maxLeftOut   = 1000          // names without a value, of all mappings together
	maxPaths     = 64 * MaxBytes // of all parts together, the bytes of the names that lead to each
	maxOdd       = 16            // anchors, aliases, tags and names after a ?, each of which is a fault
	maxDocuments = 64            // of which all but one are empty, or there is a fault
)

// A collection is a list or mapping that has not ended yet.
type collection struct {
	flow    bool // in brackets or braces
	list    bool
	column  int // of its indicators or names, if it is not in brackets or braces
	entries int // of a mapping
	name    int // the bytes of its last name, or of the number of its last item
	colons  int // of an entry in brackets or braces
}

// bounds follow a document by its tokens, as far as the bounds need it.
type bounds struct {
	open      []collection
	documents int
	leftOut   int
	odd       int
	paths     int
	wrong     string       // what no document may have
	last      *token.Token // that was passed
	first     *token.Token // of what may be a name, in its line
}

// bounded reports whether tokens are within the bounds, with a fault if not.
func (r yamlReader) bounded(tokens token.Tokens) bool {
	if len(tokens) > maxParts {
		r.faults.Add(r.position(tokens[maxParts]), "%s; allowed: %d", tooManyParts, maxParts)
		return false
	}
	var b bounds
	for i, t := range tokens {
		if t.Type == token.CommentType {
			continue
		}
		b.next(t, following(tokens[i+1:]))
		if says := b.exceeded(); says != "" {
			r.faults.Add(r.position(t), "%s", says)
			return false
		}
	}
	return true
}

// following is the next token that is no comment, or nil.
func following(tokens token.Tokens) *token.Token {
	for _, t := range tokens {
		if t.Type != token.CommentType {
			return t
		}
	}
	return nil
}

// exceeded says which bound is exceeded, if any, and what is allowed.
func (b *bounds) exceeded() string {
	top := b.top()
	switch {
	case b.wrong != "":
		return b.wrong
	case len(b.open) > maxDepth:
		return fmt.Sprintf("nested too deep; allowed: %d lists and mappings in each other", maxDepth)
	case top != nil && top.entries > maxEntries:
		return fmt.Sprintf("too many names in a mapping; allowed: %d", maxEntries)
	case top != nil && top.flow && top.colons > 1:
		return "a second : before a comma; allowed: one name with one value, a text with a : in quotes"
	case b.leftOut > maxLeftOut:
		return fmt.Sprintf("too many names without a value; allowed: %d", maxLeftOut)
	case b.paths > maxPaths:
		return fmt.Sprintf("too much in mappings of long names; allowed: %d bytes of names that lead to a value, for all values together", maxPaths)
	case b.odd > maxOdd:
		return "too many anchors, aliases, tags and names after a ?; allowed: none"
	case b.documents > maxDocuments:
		return "too many documents; allowed: one in a file"
	default:
		return ""
	}
}

func (b *bounds) top() *collection {
	if len(b.open) == 0 {
		return nil
	}
	return &b.open[len(b.open)-1]
}

func (b *bounds) inFlow() bool { return b.top() != nil && b.top().flow }

// next takes a token, which is no comment, and the one after it, or nil.
func (b *bounds) next(t, following *token.Token) {
	switch t.Type {
	case token.DocumentHeaderType, token.DocumentEndType:
		b.open = b.open[:0]
		b.documents++
	case token.SequenceStartType, token.MappingStartType:
		b.open = append(b.open, collection{flow: true, list: t.Type == token.SequenceStartType})
	case token.SequenceEndType, token.MappingEndType:
		if b.inFlow() {
			b.ended()
			b.open = b.open[:len(b.open)-1]
		}
	case token.CollectEntryType:
		if b.inFlow() {
			b.ended()
			top := b.top()
			top.colons, top.name = 0, 0
			if !top.list {
				top.entries++
			}
		}
	case token.SequenceEntryType:
		b.dash(t, following)
	case token.MappingKeyType:
		b.odd++
		b.item(t.Position.Column, false)
	case token.MappingValueType:
		b.colon(t, following)
	case token.AnchorType, token.AliasType, token.TagType:
		b.odd++
		b.begin(t)
		return
	default:
		b.begin(t)
		return
	}
	b.first = nil
	b.passed(t)
}

// begin takes what may begin a name.
func (b *bounds) begin(t *token.Token) {
	if b.first == nil || b.first.Position.Line != t.Position.Line {
		b.first = t
	}
	b.passed(t)
}

// passed counts what a token costs by where it is.
func (b *bounds) passed(t *token.Token) {
	b.last = t
	const index = 8 // bytes, of an item
	for i := range b.open {
		b.paths += index + b.open[i].name
	}
}

// ended is an entry in brackets or braces, which may be without a value.
func (b *bounds) ended() {
	top := b.top()
	switch b.last.Type {
	case token.MappingValueType:
		b.leftOut++
	case token.CollectEntryType, token.SequenceStartType, token.MappingStartType:
	default:
		if !top.list && top.colons == 0 {
			b.leftOut++
		}
	}
}

// dash begins an item. The parser takes what is not further indented for its value, and lists
// for being in each other that are not.
func (b *bounds) dash(t, following *token.Token) {
	switch {
	case b.inFlow():
		b.wrong = "an item with - in brackets or braces; allowed: items between commas"
	case following == nil || following.Position.Column <= t.Position.Column:
		b.wrong = "an item without a value; allowed: a value that is further indented than its -"
	}
	b.item(t.Position.Column, true)
}

// colon ends a name.
func (b *bounds) colon(t, following *token.Token) {
	name, column := t, t.Position.Column
	if b.first != nil {
		if b.first.Position.Line == t.Position.Line {
			name, column = b.first, b.first.Position.Column
		}
		column = max(column, b.first.Position.Column)
	}
	b.item(name.Position.Column, false)
	if b.last != nil {
		b.top().name = len(b.last.Value)
	}
	if b.inFlow() {
		b.top().colons++
	}
	switch {
	case following == nil, following.Type == token.CollectEntryType, following.Type == token.SequenceEndType, following.Type == token.MappingEndType:
	case following.Position.Column < column, following.Position.Column == column && following.Type != token.SequenceEntryType:
		b.leftOut++
	}
}

// item is one of a list, or of a mapping, in the lists and mappings that are told apart by how far they are
// indented. A list may be as far indented as the mapping that it is in.
func (b *bounds) item(column int, list bool) {
	if b.inFlow() {
		return
	}
	for b.top() != nil && !b.top().flow && (b.top().column > column || b.top().column == column && b.top().list && !list) {
		b.open = b.open[:len(b.open)-1]
	}
	if top := b.top(); top == nil || top.flow || top.column != column || top.list != list {
		b.open = append(b.open, collection{list: list, column: column})
	}
	if !list {
		b.top().entries++
	}
}
