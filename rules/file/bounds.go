package file

import (
	"github.com/goccy/go-yaml/token"
)

// What bounds a document before it is parsed: the parser takes time and memory by the square
// of each, but not of how many items a list has.
const (
	maxDepth     = 64 // of lists and mappings in each other, as in JSON; rules need 5
	maxEntries   = 1000
	maxDocuments = 64 // of which all but one are empty, or there is a fault
)

// A collection is a list or mapping that has not ended yet.
type collection struct {
	flow    bool // in brackets or braces
	list    bool
	column  int // of its indicators or names, if it is not in brackets or braces
	entries int // of a mapping
}

// bounds follow a document by its tokens, as far as the bounds need it.
type bounds struct {
	open      []collection
	documents int
	first     *token.Token // of what may be a name, in its line
}

// bounded reports whether tokens are within the bounds, with a fault if not.
func (r yamlReader) bounded(tokens token.Tokens) bool {
	var b bounds
	for _, t := range tokens {
		b.next(t)
		switch {
		case len(b.open) > maxDepth:
			r.faults.Add(r.position(t), "nested too deep; allowed: %d lists and mappings in each other", maxDepth)
		case b.top() != nil && b.top().entries > maxEntries:
			r.faults.Add(r.position(t), "too many names in a mapping; allowed: %d", maxEntries)
		case b.documents > maxDocuments:
			r.faults.Add(r.position(t), "too many documents; allowed: one in a file")
		default:
			continue
		}
		return false
	}
	return true
}

func (b *bounds) top() *collection {
	if len(b.open) == 0 {
		return nil
	}
	return &b.open[len(b.open)-1]
}

func (b *bounds) inFlow() bool { return b.top() != nil && b.top().flow }

// next takes the next token.
func (b *bounds) next(t *token.Token) {
	switch t.Type {
	case token.DocumentHeaderType, token.DocumentEndType:
		b.open = b.open[:0]
		b.documents++
	case token.SequenceStartType, token.MappingStartType:
		b.open = append(b.open, collection{flow: true, list: t.Type == token.SequenceStartType})
	case token.SequenceEndType, token.MappingEndType:
		if b.inFlow() {
			b.open = b.open[:len(b.open)-1]
		}
	case token.CollectEntryType:
		if b.inFlow() && !b.top().list {
			b.top().entries++
		}
	case token.SequenceEntryType:
		b.item(t.Position.Column, true)
	case token.MappingKeyType:
		b.item(t.Position.Column, false)
	case token.MappingValueType:
		name := t
		if b.first != nil && b.first.Position.Line == t.Position.Line {
			name = b.first
		}
		b.item(name.Position.Column, false)
	case token.CommentType:
		return
	default:
		if b.first == nil || b.first.Position.Line != t.Position.Line {
			b.first = t
		}
		return
	}
	b.first = nil
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
