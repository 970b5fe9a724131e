package document

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"

	"github.com/stint-go/stint/internal/clip"
)

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
// reads, since it keeps them. With aliases it reads the first document alone, as [ParseYAML11] does.
func parseYAML(source string, data []byte, faults *Faults, shared *aliases) (v Value, more Position) {
	r := yamlReader{source: source, data: data, faults: faults, aliases: shared}
	empty := Value{At: r.position(1, 1)}
	if at, exceeded := boundYAML(data); exceeded != "" {
		faults.Add(position(source, data, at), "%s", exceeded)
		return empty, more
	}
	loader, err := yaml.NewLoader(&r, yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthFunc(r.deeper))))
	if err != nil {
		faults.Add(empty.At, "not YAML: %v", err)
		return empty, more
	}
	var body *yaml.Node
	for {
		var next yaml.Node
		err := loader.Load(&next)
		switch {
		case body != nil && shared != nil && err != nil && !errors.Is(err, io.EOF):
			return r.value(body, 0), r.after(err)
		case r.left < 0:
			faults.Add(position(source, data, r.next), "%s", tooLong)
			return empty, more
		case errors.Is(err, io.EOF):
			if body == nil {
				return empty, more
			}
			return r.value(body, 0), more
		case err != nil:
			r.syntax(err)
			return empty, more
		case len(next.Content) == 0 || isEmpty(next.Content[0]):
		case body == nil:
			body = next.Content[0]
		case shared != nil:
			return r.value(body, 0), r.start(next.Content[0])
		default:
			faults.Add(r.start(next.Content[0]), "a second document; allowed: one document in a file")
			return r.value(body, 0), more
		}
	}
}

// after is where a text that is no YAML stands behind the first document, for a message.
func (r *yamlReader) after(err error) Position {
	if invalid := (*yaml.LoadError)(nil); errors.As(err, &invalid) {
		return r.position(invalid.Mark.Line, invalid.Mark.Column)
	}
	return position(r.source, r.data, r.next)
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
	// aliases are those of the document; nil if it may have none.
	aliases *aliases

	next int  // the offset of what is handed over next
	flow bool // whether the parser may be in brackets or braces
	left int  // the signs that may follow in those; less than none: they were too long
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
	switch {
	case r.aliases == nil && (n.Kind == yaml.AliasNode || n.Anchor != "" || isTagged(n)):
		r.faults.Add(r.start(n), "anchors, aliases and tags are not allowed")
		return Value{At: r.start(n)}
	case isTagged(n):
		r.faults.Add(r.start(n), "tags are not allowed")
		r.aliases.define(n, Value{})
		return Value{At: r.start(n)}
	case n.Kind == yaml.AliasNode:
		return r.alias(n, depth)
	}
	v := Value{At: r.start(n)}
	switch {
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
		switch {
		case v.Kind == KindNull:
			v.Text = ""
		case r.aliases != nil && isBoolean11(n):
			v.Kind = KindBoolean
		}
	}
	if n.Anchor != "" {
		r.aliases.define(n, v)
	}
	return v
}

// isTagged reports whether a tag is written before a node.
func isTagged(n *yaml.Node) bool { return n.Style&yaml.TaggedStyle != 0 || n.Tag == "!" }

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
	var merges []merged
	for i := 0; i < len(nodes); i += 2 {
		name, value := nodes[i], nodes[i+1]
		at := r.start(name)
		nodes[i], nodes[i+1] = nil, nil
		if r.aliases != nil && name.Tag == "!!merge" && !isTagged(name) {
			merges = append(merges, merged{len(named.list), r.merge(value, depth)})
			continue
		}
		text, ok := r.name(name)
		if !ok {
			r.faults.Add(at, "a name must be a plain text")
			continue
		}
		v := r.value(value, depth)
		if v.Kind == KindNull {
			v.At = at // an empty value has no place of its own
		}
		named.add(Field{At: at, Name: text, Value: v}, r.faults)
	}
	return mergeAll(named.list, merges)
}

// name is the text of a name.
func (r *yamlReader) name(n *yaml.Node) (text string, ok bool) {
	if r.aliases != nil && (n.Kind == yaml.AliasNode || n.Anchor != "") {
		v := r.value(n, 0)
		return v.Text, v.Kind != KindList && v.Kind != KindMapping
	}
	return n.Value, n.Kind == yaml.ScalarNode && n.Anchor == "" && n.Tag != "!!merge" && !isTagged(n)
}
