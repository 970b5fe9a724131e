package file

import (
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint/rules/notation"
)

// What bounds a text before it is taken apart. Taking it apart takes time by the square of
// the first three, and some hundred bytes of memory for each part.
const (
	maxBlanks = 20      // lines in a row that are empty
	maxTabs   = 64      // in a line
	maxLess   = 64      // signs < in a row
	maxParts  = 1 << 20 // names, values, brackets, commas and the like; a rule has about 50
)

// text follows a document by its characters, as far as the bounds need it.
type text struct {
	line, start int // the line, and where it starts
	blanks      int // lines before this one
	tabs, less  int
	blank       bool // the line, so far
	parts       int  // about; quotes count half each
	begins      bool // a value, with the next character that is no space
	words       bool // each word is a part, as after a %
}

// readable reports whether a text is within the bounds, with a fault if not.
func (r yamlReader) readable(data []byte) bool {
	t := text{line: 1, blank: true, begins: true}
	for i := range data {
		t.next(data, i)
		says, most := "", 0
		switch {
		case t.blanks > maxBlanks:
			says, most = "too many empty lines in a row", maxBlanks
		case t.tabs > maxTabs:
			says, most = "too many tabs in a line", maxTabs
		case t.less > maxLess:
			says, most = "too many signs < in a row", maxLess
		case t.parts > 2*maxParts:
			says, most = tooManyParts, maxParts
		default:
			continue
		}
		at := notation.Position{Source: r.source, Line: t.line, Column: max(1, utf8.RuneCount(data[min(t.start, i):i+1]))}
		r.faults.Add(at, "%s; allowed: %d", says, most)
		return false
	}
	return true
}

const tooManyParts = "too many names, values and signs"

// next takes the character at i.
func (t *text) next(data []byte, i int) {
	c, following := data[i], byte('\n')
	if i+1 < len(data) {
		following = data[i+1]
	}
	switch {
	case c == '\r' && following == '\n':
		return
	case c == '\n' || c == '\r':
		t.newLine(i + 1)
		return
	case c == '\t':
		t.tabs++
	}
	if c == '<' {
		t.less++
	} else {
		t.less = 0
	}
	if c == ' ' || c == '\t' {
		t.begins = t.begins || t.words
		return
	}
	t.blank, t.blanks = false, 0
	t.count(c, following)
}

func (t *text) newLine(start int) {
	if t.blank {
		t.blanks++
	}
	t.line, t.start = t.line+1, start
	t.blank, t.tabs, t.less, t.begins, t.words = true, 0, 0, true, false
}

// count counts what is a part, and what may begin one, twice each.
func (t *text) count(c, following byte) {
	spaced := strings.IndexByte(" \t\r\n", following) >= 0
	switch {
	case strings.IndexByte("[]{},", c) >= 0,
		c == ':' && (spaced || strings.IndexByte("[]{},\"'", following) >= 0),
		strings.IndexByte("-?", c) >= 0 && t.begins && spaced:
		t.parts += 2
		t.begins = true
	case c == '"' || c == '\'':
		t.parts++
		t.begins = false
	case strings.IndexByte("&*!%", c) >= 0 && t.begins:
		t.parts += 4
		t.words = true
	case t.begins:
		t.parts += 2
		t.begins = false
	}
}
