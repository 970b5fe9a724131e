package config

import (
	"errors"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// A kind is what a value is by its notation.
type kind uint8

const (
	kindNull    kind = iota
	kindUntyped      // a scalar of the environment or of a flag, which have no types
	kindText
	kindInteger
	kindFloat
	kindBoolean
	kindList
	kindMapping
)

// A value is a piece of configuration, wherever it came from.
type value struct {
	at     Position
	kind   kind
	text   string  // a scalar as it was written, without quotes
	items  []value // of a list
	fields []field // of a mapping, in the order of the file
}

// A field is one entry of a mapping.
type field struct {
	at    Position // of the name
	name  string
	value value
}

// String shows the value in a message.
func (v value) String() string {
	const most = 80
	text := v.text
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "..."
	}
	switch v.kind {
	case kindNull:
		return "empty"
	case kindList:
		if len(v.items) == 0 {
			return "an empty list"
		}
		return "a list"
	case kindMapping:
		return "a mapping"
	case kindInteger, kindFloat, kindBoolean:
		return text
	case kindText, kindUntyped:
	}
	return strconv.Quote(text)
}

// scalars makes the list of a flag or an environment variable, whose items are
// separated by commas. An empty text is the empty list.
func (v value) scalars() value {
	list := value{at: v.at, kind: kindList}
	if strings.TrimSpace(v.text) == "" {
		return list
	}
	for item := range strings.SplitSeq(v.text, ",") {
		list.items = append(list.items, value{at: v.at, kind: kindUntyped, text: strings.TrimSpace(item)})
	}
	return list
}

// parseYAML reads one YAML document. Anchors, aliases, tags and merge keys are
// faults: a configuration says everything where it stands.
func parseYAML(source string, data []byte, faults *Faults) value {
	reader := yamlReader{source: source, faults: faults}
	empty := value{at: Position{Source: source, Line: 1, Column: 1}}
	if len(data) > maxFileBytes {
		faults.add(empty.at, "the file has %d bytes; allowed: at most %d", len(data), maxFileBytes)
		return empty
	}
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, message := empty.at, err.Error()
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) {
			at, message = reader.position(syntax.Token), syntax.Message
		}
		faults.add(at, "not YAML: %s", message)
		return empty
	}
	var body ast.Node
	for _, document := range file.Docs {
		if _, directive := document.Body.(*ast.DirectiveNode); directive || document.Body == nil {
			continue
		}
		if body != nil {
			faults.add(reader.start(document.Body), "a second document; allowed: one document in a file")
			break
		}
		body = document.Body
	}
	if body == nil {
		return empty
	}
	return reader.value(body)
}

// maxFileBytes bounds the files that are read.
const maxFileBytes = 1 << 20

type yamlReader struct {
	source string
	faults *Faults
}

func (r yamlReader) position(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{Source: r.source, Line: 1, Column: 1}
	}
	return Position{Source: r.source, Line: max(1, t.Position.Line), Column: max(1, t.Position.Column)}
}

// start is where a node begins. The parser takes a block mapping to be at its
// first colon; people look for its first name.
func (r yamlReader) start(node ast.Node) Position {
	switch n := node.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return r.start(n.Values[0])
		}
	case *ast.MappingValueNode:
		return r.position(n.Key.GetToken())
	}
	return r.position(node.GetToken())
}

func (r yamlReader) value(node ast.Node) value {
	v := value{at: r.start(node)}
	switch n := node.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		v.kind, v.text = kindText, n.Value
	case *ast.LiteralNode:
		v.kind, v.text = kindText, n.Value.Value
	case *ast.IntegerNode:
		v.kind, v.text = kindInteger, n.Token.Value
	case *ast.FloatNode:
		v.kind, v.text = kindFloat, n.Token.Value
	case *ast.InfinityNode:
		v.kind, v.text = kindFloat, n.Token.Value
	case *ast.NanNode:
		v.kind, v.text = kindFloat, n.Token.Value
	case *ast.BoolNode:
		v.kind, v.text = kindBoolean, n.Token.Value
	case *ast.SequenceNode:
		v.kind = kindList
		for _, item := range n.Values {
			v.items = append(v.items, r.value(item))
		}
	case *ast.MappingNode:
		v.kind = kindMapping
		v.fields = r.fields(n.Values)
	case *ast.MappingValueNode:
		v.kind = kindMapping
		v.fields = r.fields([]*ast.MappingValueNode{n})
	default:
		r.faults.add(v.at, "anchors, aliases and tags are not allowed")
	}
	return v
}

func (r yamlReader) fields(entries []*ast.MappingValueNode) []field {
	fields := make([]field, 0, len(entries))
	lines := make(map[string]int, len(entries))
	for _, entry := range entries {
		at := r.start(entry)
		key, scalar := entry.Key.(ast.ScalarNode)
		if _, merge := entry.Key.(*ast.MergeKeyNode); merge || !scalar {
			r.faults.add(at, "a name must be a plain text")
			continue
		}
		name := key.GetToken().Value
		if line, twice := lines[name]; twice {
			r.faults.add(at, "%q is given twice, first in line %d", name, line)
			continue
		}
		lines[name] = at.Line
		v := r.value(entry.Value)
		if v.kind == kindNull {
			v.at = at // an empty value has no place of its own
		}
		fields = append(fields, field{at: at, name: name, value: v})
	}
	return fields
}
