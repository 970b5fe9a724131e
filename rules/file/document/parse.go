// Package document reads what people write: YAML and JSON as one tree of values, each with its line and column, and
// everything that is wrong with it at once.
//
//	var faults document.Faults
//	v := document.Parse("stint.yaml", data, 1<<20, &faults)
//
// [Parse] makes a [Value] of a text, and records what is no YAML or JSON as [Faults]. [Kinds.Read] fills a struct from
// it by the struct's tags, and records what the value may not say in the same way. Reading is strict: there is one
// document, a name stands in a mapping once, and a document says everything where it stands, so anchors, aliases, tags
// and directives are faults.
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

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

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
	if len(data) > most {
		faults.Add(Position{Source: source}, "the document has %d bytes; allowed: at most %d", len(data), most)
		return Value{At: Position{Source: source, Line: 1, Column: 1}}
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	switch {
	case IsJSON(source), looksLikeJSON(data) && json.Valid(data):
		return JSON(source, data, faults)
	case len(data) > maxYAML:
		faults.Add(Position{Source: source}, "the document has %d bytes; allowed: at most %d as YAML, %d as JSON",
			len(data), maxYAML, most)
		return Value{At: Position{Source: source, Line: 1, Column: 1}}
	default:
		return parseYAML(source, data, faults)
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

const (
	// maxYAML bounds the bytes of a YAML document: a name of any length is cheap, but time is spent on
	// each byte.
	maxYAML = 4 << 20
	// maxSigns bounds what separates the names and values: one of the signs comes before each, a colon
	// between two. The parser and the values take some 700 bytes for a colon.
	maxSigns = 500_000
	signs    = "[]{},:?&*!#'\"-"
	// maxFlow bounds the signs in one pair of brackets or braces, with those inside. They may be a
	// name, so the parser keeps all of them until the end, in 1.4 KB for each sign; only it knows
	// where they end.
	maxFlow = 1 << 17
)

// parseYAML counts the names and values of a YAML document, and reads it. The parser is bounded
// from outside: by the signs of the whole text before it begins, and by those in brackets while it
// reads, since it keeps them.
func parseYAML(source string, data []byte, faults *Faults) Value {
	r := yamlReader{source: source, data: data, faults: faults}
	empty := Value{At: r.position(1, 1)}
	if at, exceeded := boundYAML(data); exceeded != "" {
		faults.Add(position(source, data, at), "%s", exceeded)
		return empty
	}
	loader, err := yaml.NewLoader(&r, yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthFunc(r.deeper))))
	if err != nil {
		faults.Add(empty.At, "not YAML: %v", err)
		return empty
	}
	var body *yaml.Node
	for {
		var next yaml.Node
		err := loader.Load(&next)
		switch {
		case r.left < 0:
			faults.Add(position(source, data, r.next), "%s", tooLong)
			return empty
		case errors.Is(err, io.EOF):
			if body == nil {
				return empty
			}
			return r.value(body, 0)
		case err != nil:
			r.syntax(err)
			return empty
		case len(next.Content) == 0 || isEmpty(next.Content[0]):
		case body != nil:
			faults.Add(r.start(next.Content[0]), "a second document; allowed: one document in a file")
			return r.value(body, 0)
		default:
			body = next.Content[0]
		}
	}
}

// isEmpty reports whether nothing is written in a document.
func isEmpty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null" && n.Value == ""
}

// position is where a document's byte is.
func position(source string, data []byte, at int) Position {
	before := string(data[:max(0, at)])
	return Position{
		Source: source,
		Line:   1 + strings.Count(before, "\n"),
		Column: 1 + utf8.RuneCountInString(before[1+strings.LastIndexByte(before, '\n'):]),
	}
}

// boundYAML returns the bound that a text exceeds, and the offset where it does, before anything is parsed. A directive
// is refused too, as the parser takes time by the square of them.
func boundYAML(data []byte) (at int, exceeded string) {
	if !utf8.Valid(data) {
		return 0, "not YAML: the text is not UTF-8"
	}
	left := maxSigns
	for i, c := range data {
		if isSign(data, i) {
			left--
		}
		switch {
		case c == '%' && beginsLine(data, i):
			return i, "a directive; allowed: none"
		case left < 0:
			return i, fmt.Sprintf(
				"too many names and values; allowed: %d, counted by the signs %s; JSON may have more", maxSigns, signs,
			)
		}
	}
	return 0, ""
}

// isSign reports whether the byte at an offset separates values.
func isSign(data []byte, at int) bool {
	switch data[at] {
	case '-':
		return at+1 == len(data) || data[at+1] <= ' ' || data[at+1] >= utf8.RuneSelf
	case '.':
		return beginsLine(data, at)
	default:
		return strings.IndexByte(signs, data[at]) >= 0
	}
}

// beginsLine reports whether the byte at an offset is the first of a line, also by what else YAML takes for
// a line's end.
func beginsLine(data []byte, at int) bool {
	return at == 0 || strings.IndexByte("\n\r\x85\xa8\xa9\xbf", data[at-1]) >= 0
}

// A yamlReader hands a document to the parser, as long as no brackets in it are too long, and takes over
// what that makes of it.
type yamlReader struct {
	source string
	data   []byte
	faults *Faults
	next   int  // the offset of what is handed over next
	flow   bool // whether the parser may be in brackets or braces
	left   int  // the signs that may follow in those; less than none: they were too long
}

// tooLong is the fault of too much in one pair of brackets.
var tooLong = fmt.Sprintf("too many names and values in brackets or braces; allowed: %d, "+
	"counted by the signs %s: write the items of a long list in lines of their own, each behind a -", maxFlow, signs)

// Read implements [io.Reader].
func (r *yamlReader) Read(p []byte) (n int, err error) {
	for ; n < len(p) && r.next < len(r.data); n++ {
		if r.flow && isSign(r.data, r.next) {
			r.left--
		}
		if r.left < 0 {
			return 0, errors.New(tooLong)
		}
		p[n] = r.data[r.next]
		r.next++
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// deeper is told by the parser of each list and mapping that it begins, and of the depth.
func (r *yamlReader) deeper(depth int, of *yaml.DepthContext) error {
	r.flow = of.Kind == yaml.DepthKindFlow
	if depth == 1 {
		r.left = maxFlow
	}
	if depth > maxDepth {
		return errors.New(tooDeep)
	}
	return nil
}

// syntax records why a text is no YAML.
func (r *yamlReader) syntax(err error) {
	var invalid *yaml.LoadError
	if !errors.As(err, &invalid) {
		r.faults.Add(r.position(1, 1), "not YAML: %v", err)
		return
	}
	says, mark := invalid.Message, invalid.Mark
	if mark.Line == 0 && invalid.ContextMark.Line > 0 {
		mark = invalid.ContextMark
	}
	at := r.position(mark.Line, mark.Column)
	if mark.Line == 0 { // what no document may have, and no line is known of
		at = position(r.source, r.data, min(mark.Index, len(r.data)))
	}
	if says == tooDeep {
		r.faults.Add(at, "%s", tooDeep)
		return
	}
	if invalid.ContextMsg != "" {
		says += " " + invalid.ContextMsg
		if begins := invalid.ContextMark; begins.Line > 0 && begins != mark {
			says += fmt.Sprintf(" that begins at %d:%d", begins.Line, begins.Column)
		}
	}
	const most = 200 // bytes, since it may repeat what is written
	r.faults.Add(at, "not YAML: %s", clip.To(most, says))
}

// position is a place in the source; a place that the parser does not know is the beginning.
func (r *yamlReader) position(line, column int) Position {
	return Position{Source: r.source, Line: max(1, line), Column: max(1, column)}
}

// start is where a node begins.
func (r *yamlReader) start(n *yaml.Node) Position { return r.position(n.Line, n.Column) }

// value takes a node over, and forgets those in it.
func (r *yamlReader) value(n *yaml.Node, depth int) Value {
	v := Value{At: r.start(n)}
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 || n.Tag == "!":
		r.faults.Add(v.At, "anchors, aliases and tags are not allowed")
	case n.Kind != yaml.ScalarNode && depth == maxDepth:
		r.faults.Add(v.At, "%s", tooDeep)
	case n.Kind == yaml.SequenceNode:
		v.Kind, v.Items = KindList, make([]Value, len(n.Content))
		for i, item := range n.Content {
			v.Items[i], n.Content[i] = r.value(item, depth+1), nil
		}
	case n.Kind == yaml.MappingNode:
		v.Kind, v.Fields = KindMapping, r.mapping(n.Content, depth+1)
	default:
		v.Kind, v.Text = scalarKind(n.Tag), n.Value
		if v.Kind == KindNull {
			v.Text = ""
		}
	}
	return v
}

// scalarKind is the kind of what has a tag. Dates and the like are texts.
func scalarKind(tag string) Kind {
	switch tag {
	case "!!null":
		return KindNull
	case "!!bool":
		return KindBoolean
	case "!!int":
		return KindInteger
	case "!!float":
		return KindFloat
	default:
		return KindText
	}
}

// mapping takes a mapping's names and values over.
func (r *yamlReader) mapping(nodes []*yaml.Node, depth int) []Field {
	named := fields{list: make([]Field, 0, len(nodes)/2)}
	for i := 0; i < len(nodes); i += 2 {
		name, value := nodes[i], nodes[i+1]
		at := r.start(name)
		nodes[i], nodes[i+1] = nil, nil
		if name.Kind != yaml.ScalarNode || name.Anchor != "" || name.Tag == "!" || name.Tag == "!!merge" ||
			name.Style&yaml.TaggedStyle != 0 {
			r.faults.Add(at, "a name must be a plain text")
			continue
		}
		v := r.value(value, depth)
		if v.Kind == KindNull {
			v.At = at // an empty value has no place of its own
		}
		named.add(Field{At: at, Name: name.Value, Value: v}, r.faults)
	}
	return named.list
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
