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
	// maxSigns bounds what separates the values of a YAML document: one of the signs comes before each.
	maxSigns = 1 << 19
	signs    = "[]{},:?&*!#'\"-"
	// maxFlow bounds the signs in one pair of brackets or braces, with those inside. The parser keeps all of
	// it at once, in 1 KB for each sign.
	maxFlow = 1 << 17
)

// parseYAML reads one YAML document.
func parseYAML(source string, data []byte, faults *Faults) Value {
	r := yamlReader{source: source, data: data, faults: faults}
	empty := Value{At: r.position(1, 1)}
	text := &boundedText{data: data}
	loader, err := yaml.NewLoader(text, yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthFunc(text.deeper))))
	if err != nil {
		faults.Add(empty.At, "not YAML: %v", err)
		return empty
	}
	var body *yaml.Node
	for {
		var next yaml.Node
		err := loader.Load(&next)
		switch {
		case text.exceeded != "":
			faults.Add(position(source, data, text.next), "%s", text.exceeded)
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
	return Position{Source: source, Line: 1 + strings.Count(before, "\n"), Column: 1 + utf8.RuneCountInString(before[1+strings.LastIndexByte(before, '\n'):])}
}

// boundedText hands a document to the parser, as long as it is within the bounds.
type boundedText struct {
	data     []byte
	next     int // the offset of what is handed over next
	signs    int
	flow     bool   // whether the parser may be in brackets or braces
	began    int    // the signs before those
	exceeded string // the bound that is exceeded
}

// Read implements [io.Reader].
func (t *boundedText) Read(p []byte) (n int, err error) {
	for ; n < len(p) && t.next < len(t.data); n++ {
		p[n] = t.data[t.next]
		if t.isSign(t.next) {
			t.signs++
		}
		switch {
		case p[n] == '%' && t.beginsLine(t.next): // of which the parser takes time by the square
			t.exceeded = "a directive; allowed: none"
		case t.signs > maxSigns:
			t.exceeded = fmt.Sprintf("too many names and values; allowed: %d, counted by the signs %s; JSON may have more", maxSigns, signs)
		case t.flow && t.signs-t.began > maxFlow:
			t.exceeded = fmt.Sprintf("too many names and values in brackets or braces; allowed: %d, "+
				"counted by the signs %s: write the items of a long list in lines of their own, each behind a -", maxFlow, signs)
		default:
			t.next++
			continue
		}
		return 0, errors.New(t.exceeded)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// isSign reports whether the byte at an offset separates values.
func (t *boundedText) isSign(at int) bool {
	switch t.data[at] {
	case '-':
		return at+1 == len(t.data) || t.data[at+1] <= ' ' || t.data[at+1] >= utf8.RuneSelf
	case '.':
		return t.beginsLine(at)
	default:
		return strings.IndexByte(signs, t.data[at]) >= 0
	}
}

// beginsLine reports whether the byte at an offset is the first of a line, also by what else YAML takes for
// a line's end.
func (t *boundedText) beginsLine(at int) bool {
	return at == 0 || strings.IndexByte("\n\r\x85\xa8\xa9\xbf", t.data[at-1]) >= 0
}

// deeper is told by the parser of each list and mapping that it begins, and of the depth.
func (t *boundedText) deeper(depth int, of *yaml.DepthContext) error {
	t.flow = of.Kind == yaml.DepthKindFlow
	if t.flow && depth == 1 {
		t.began = t.signs
	}
	if depth > maxDepth {
		return errors.New(tooDeep)
	}
	return nil
}

type yamlReader struct {
	source string
	data   []byte
	faults *Faults
}

// syntax records why a text is no YAML.
func (r yamlReader) syntax(err error) {
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

func (r yamlReader) position(line, column int) Position {
	return Position{Source: r.source, Line: max(1, line), Column: max(1, column)}
}

func (r yamlReader) start(n *yaml.Node) Position { return r.position(n.Line, n.Column) }

// value takes a node over, and forgets those in it.
func (r yamlReader) value(n *yaml.Node, depth int) Value {
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
func (r yamlReader) mapping(nodes []*yaml.Node, depth int) []Field {
	named := fields{list: make([]Field, 0, len(nodes)/2)}
	for i := 0; i < len(nodes); i += 2 {
		name, value := nodes[i], nodes[i+1]
		at := r.start(name)
		nodes[i], nodes[i+1] = nil, nil
		if name.Kind != yaml.ScalarNode || name.Anchor != "" || name.Tag == "!" || name.Tag == "!!merge" || name.Style&yaml.TaggedStyle != 0 {
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
