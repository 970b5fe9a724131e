// Package document reads what people write: YAML and JSON as one tree of values, each with its line and column, and
// everything that is wrong with it at once.
//
//	var faults document.Faults
//	v := document.Parse("stint.yaml", data, 1<<20, &faults)
//
// [Parse] makes a [Value] of a text, and records what is no YAML or JSON as [Faults]. [Kinds.Read] fills a struct from
// it by the struct's tags, and records what the value may not say in the same way. Reading is strict: there is one
// document, a name stands in a mapping once, and a document says everything where it stands, so anchors, aliases, tags
// and directives are faults. [ParseYAML11] is for documents that were written for another program.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint/internal/clip"
)

// maxDepth bounds how deep lists and mappings are in each other. Rules need 5. It also bounds the
// recursion of everything that walks over values.
const maxDepth = 64

// tooDeep is the fault of a text beyond maxDepth.
var tooDeep = fmt.Sprintf("nested too deep; allowed: %d lists and mappings in each other", maxDepth)

// byteOrderMark begins what some editors write.
var byteOrderMark = []byte("\ufeff")

// Parse reads one document of at most so many bytes. A source whose name ends in .json is JSON, read by
// [JSON]; every other one is YAML, of which JSON is a part. A text that is neither is one fault, without
// a value; so is YAML that has more than 4 MiB, is nested deeper than 64, has more than 500,000 names
// and values, or of these more than 131,072 in one pair of brackets.
func Parse(source string, data []byte, most int, faults *Faults) Value {
	v, _ := parse(source, data, most, faults, nil)
	return v
}

// ParseYAML11 reads as Parse does, and also what programs accept that read YAML 1.1 with gopkg.in/yaml.v2:
//
//   - y, yes and on are true, n, no and off are false, in the spellings of YAML 1.1. A value of [KindBoolean] has the
//     text that was written.
//   - Only the first document counts. more says where the next one begins; it is the zero Position if there is none.
//   - An alias is the value of its anchor. All aliases together stand for at most 400,000 values.
//   - A merge key (<<) is replaced by the fields that it merges. A name may then be in a mapping several times: the
//     last one counts, as that library decodes one after the other.
//
// Tags and directives are faults here, too.
func ParseYAML11(source string, data []byte, most int, faults *Faults) (v Value, more Position) {
	return parse(source, data, most, faults, &aliases{left: maxAliased})
}

// parse is Parse, or ParseYAML11 if there are aliases.
func parse(source string, data []byte, most int, faults *Faults, shared *aliases) (v Value, more Position) {
	empty := Value{At: Position{Source: source, Line: 1, Column: 1}}
	if len(data) > most {
		faults.Add(Position{Source: source}, "the document has %d bytes; allowed: at most %d", len(data), most)
		return empty, more
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	switch {
	case IsJSON(source), looksLikeJSON(data) && json.Valid(data):
		return JSON(source, data, faults), more
	case len(data) > maxYAML:
		faults.Add(Position{Source: source}, "the document has %d bytes; allowed: at most %d as YAML, %d as JSON",
			len(data), maxYAML, most)
		return empty, more
	default:
		return parseYAML(source, data, faults, shared)
	}
}

// IsJSON reports whether a document of this name is JSON.
func IsJSON(name string) bool { return strings.EqualFold(filepath.Ext(name), ".json") }

// looksLikeJSON reports whether a text begins as lists and objects of JSON do.
func looksLikeJSON(data []byte) bool {
	data = bytes.TrimLeft(data, " \t\r\n")
	return len(data) > 0 && (data[0] == '[' || data[0] == '{')
}

// fields gathers those of a mapping.
type fields struct {
	list  []Field
	lines map[string]int // of the names, once they are many
}

// add appends a field, or records that its name was there before.
func (f *fields) add(field Field, faults *Faults) {
	const few = 8
	line, twice := f.lines[field.Name]
	if len(f.list) < few {
		at := slices.IndexFunc(f.list, func(known Field) bool { return known.Name == field.Name })
		if twice = at >= 0; twice {
			line = f.list[at].At.Line
		}
	}
	if twice {
		faults.Add(field.At, "%q is given twice, first in line %d", clip.To(maxName, field.Name), line)
		return
	}
	f.list = append(f.list, field)
	if f.lines != nil {
		f.lines[field.Name] = field.At.Line
	} else if len(f.list) == few {
		f.lines = make(map[string]int, 2*few)
		for _, known := range f.list {
			f.lines[known.Name] = known.At.Line
		}
	}
}

// maxValues bounds the values of a JSON text, of so many bytes: each takes 104 bytes, and 152 with
// a name. Rules have one in 9 bytes. So a text of 32 MiB has 4 million values at most, in 600 MB:
// the bound of bytes alone would allow 16 million.
func maxValues(bytes int) int { return 1<<17 + bytes/8 }

// JSON reads one JSON text (RFC 8259) with the places of its values. A name that is given twice in
// an object is a fault. A text that is not JSON is one fault, without a value; so is a text that is
// nested deeper than 64, or has more than 131,072 values and one for each 8 bytes. Three passes:
// values are counted, so that each list gets its memory at once; encoding/json says whether the
// text is JSON; the reader then needs no checks.
func JSON(source string, data []byte, faults *Faults) Value {
	r := jsonReader{
		data:   data,
		faults: faults,
		at:     Position{Source: source, Line: 1, Column: 1},
		names:  map[string]string{},
	}
	empty := Value{At: r.at}
	var err error
	var at int
	if r.counts, at, err = countJSON(data); err == nil {
		at, err = checkJSON(data)
	}
	if err != nil {
		faults.Add(position(source, data, at), "not JSON: %v", err)
		return empty
	}
	return r.value()
}

// countJSON counts the values of each list and object of a text, in the order in which they begin, or returns the bound
// that the text exceeds, and the offset where it does. A list or object that is empty counts one. The counts of a text
// that is not JSON mean nothing.
func countJSON(data []byte) (counts []int32, at int, err error) {
	if !utf8.Valid(data) {
		return nil, 0, errors.New("the text is not UTF-8")
	}
	var open []int // the places in counts of those that are open
	left, quoted := maxValues(len(data)), false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted:
			if c == '\\' {
				i++
			}
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '[', c == '{':
			if len(open) == maxDepth {
				return nil, i, errors.New(tooDeep)
			}
			open, counts = append(open, len(counts)), append(counts, 1)
			left--
		case (c == ']' || c == '}') && len(open) > 0:
			open = open[:len(open)-1]
		case c == ',' && len(open) > 0:
			counts[open[len(open)-1]]++
			left--
		}
		if left < 0 {
			return nil, i, fmt.Errorf("too many values; allowed: %d in a text of %d bytes", maxValues(len(data)), len(data))
		}
	}
	return counts, 0, nil
}

// checkJSON returns what is wrong with a text, and the offset of it.
func checkJSON(data []byte) (at int, err error) {
	var whole json.RawMessage
	err = json.Unmarshal(data, &whole)
	var syntax *json.SyntaxError
	switch {
	case !errors.As(err, &syntax):
		return 0, err
	case syntax.Error() == "unexpected end of JSON input":
		return len(data), errors.New("the text ends too soon")
	default:
		return int(syntax.Offset) - 1, syntax
	}
}

// A jsonReader makes values of a text that is JSON.
type jsonReader struct {
	data   []byte
	faults *Faults
	next   int               // the offset of what is read next
	at     Position          // of that
	counts []int32           // of the lists and objects that follow
	names  map[string]string // of which equal ones are one string
}

// advance moves on by n bytes.
func (r *jsonReader) advance(n int) {
	for _, c := range r.data[r.next : r.next+n] {
		switch {
		case c == '\n':
			r.at.Line, r.at.Column = r.at.Line+1, 1
		case utf8.RuneStart(c):
			r.at.Column++
		}
	}
	r.next += n
}

// skip moves past what stands between values, and returns the first byte after it.
func (r *jsonReader) skip() byte {
	n := 0
	for strings.IndexByte(" \t\r\n,:", r.data[r.next+n]) >= 0 {
		n++
	}
	r.advance(n)
	return r.data[r.next]
}

// begin moves past the bracket of a list or object, and returns how many values it has.
func (r *jsonReader) begin() (n int32) {
	n, r.counts = r.counts[0], r.counts[1:]
	r.advance(1)
	return n
}

// value reads the value that comes next. The text is known to be JSON.
func (r *jsonReader) value() Value {
	first := r.skip()
	v := Value{At: r.at}
	switch first {
	case '[':
		v.Kind = KindList
		n := r.begin()
		if r.skip() != ']' {
			v.Items = make([]Value, 0, n)
		}
		for r.skip() != ']' {
			v.Items = append(v.Items, r.value())
		}
		r.advance(1)
	case '{':
		v.Kind = KindMapping
		n, named := r.begin(), fields{}
		if r.skip() != '}' {
			named.list = make([]Field, 0, n)
		}
		for r.skip() != '}' {
			at := r.at
			named.add(Field{At: at, Name: r.name(), Value: r.value()}, r.faults)
		}
		v.Fields = named.list
		r.advance(1)
	case '"':
		v.Kind, v.Text = KindText, r.text()
	default:
		word := r.data[r.next:]
		if n := bytes.IndexAny(word, " \t\r\n,]}"); n >= 0 {
			word = word[:n]
		}
		v.Kind, v.Text = scalar(string(word))
		r.advance(len(word))
	}
	return v
}

// scalar is what a word of JSON is.
func scalar(word string) (Kind, string) {
	switch {
	case word == "null":
		return KindNull, ""
	case word == "true", word == "false":
		return KindBoolean, word
	case strings.ContainsAny(word, ".eE"):
		return KindFloat, word
	default:
		return KindInteger, word
	}
}

// quoted moves past a text, and returns it in its quotes.
func (r *jsonReader) quoted() []byte {
	n := 1
	for text := r.data[r.next:]; text[n] != '"'; n++ {
		if text[n] == '\\' {
			n++
		}
	}
	begin := r.next
	r.advance(n + 1)
	return r.data[begin:r.next]
}

// text reads a text.
func (r *jsonReader) text() string { return unquote(r.quoted()) }

// unquote is the text of a string in its quotes.
func unquote(quoted []byte) (text string) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	_ = json.Unmarshal(quoted, &text) // which is JSON
	return text
}

// name reads the name of a field. Equal ones share their memory, as rules have few different ones.
func (r *jsonReader) name() string {
	const few = 256
	quoted := r.quoted()
	name, known := r.names[string(quoted)]
	if !known {
		if name = unquote(quoted); len(r.names) < few {
			r.names[string(quoted)] = name
		}
	}
	return name
}

// JSONFault says in words what an error of encoding/json says by the names of Go: which member is wrong, what came, and
// what is allowed.
func JSONFault(err error) string {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case ok && wrong.Field == "":
		wrong.Field = "the whole"
	case ok:
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the text ends too soon"
	default:
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	var allowed string
	switch wrong.Type.Kind() {
	case reflect.String:
		allowed = "a string"
	case reflect.Bool:
		allowed = "true or false"
	case reflect.Slice, reflect.Array:
		allowed = "a list"
	case reflect.Struct, reflect.Map:
		allowed = "an object"
	default:
		allowed = "a number"
	}
	came := strings.NewReplacer("array", "a list", "object", "an object", "string", "a string", "bool", "true or false",
		"number", "a number").Replace(wrong.Value)
	return fmt.Sprintf("%s is %s; allowed: %s", wrong.Field, came, allowed)
}
