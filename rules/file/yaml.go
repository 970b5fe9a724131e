package file

import (
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"

	"github.com/stint-go/stint/rules/notation"
)

// YAML reads one YAML document, of which JSON is a part. Anchors, aliases, tags and merge
// keys are faults: a document says everything where it stands. What is no YAML is one
// fault, and nothing; so is a document that is nested deeper than 64, has a mapping of more than
// 1,000 names, 1,000 names without a value, an item without one, or more than a million
// names, values and signs.
func YAML(source string, data []byte, faults *notation.Faults) notation.Value {
	reader := yamlReader{source: source, faults: faults}
	empty := notation.Value{At: reader.position(nil)}
	if !utf8.Valid(data) {
		faults.Add(empty.At, "not YAML: the text is not UTF-8")
		return empty
	}
	if !reader.readable(data) {
		return empty
	}
	tokens, err := scan(string(data))
	if err != nil {
		reader.syntax(err)
		return empty
	}
	if !reader.bounded(tokens) {
		return empty
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		reader.syntax(err)
		return empty
	}
	var body ast.Node
	for _, document := range file.Docs {
		if _, directive := document.Body.(*ast.DirectiveNode); directive || document.Body == nil {
			continue
		}
		if body != nil {
			faults.Add(reader.start(document.Body), "a second document; allowed: one document in a file")
			break
		}
		body = document.Body
	}
	if body == nil {
		return empty
	}
	return reader.value(body)
}

// scan takes a text apart, up to what is no YAML.
func scan(text string) (token.Tokens, error) {
	var s scanner.Scanner
	s.Init(text)
	var tokens token.Tokens
	for {
		more, err := s.Scan()
		if errors.Is(err, io.EOF) {
			return tokens, nil
		}
		if err != nil {
			return nil, err
		}
		tokens.Add(more...)
	}
}

type yamlReader struct {
	source string
	faults *notation.Faults
}

// syntax records why a text is no YAML. The parser's errors are not asked for their text if they have a
// place, since they print what surrounds it, in time and memory by the square of its length.
func (r yamlReader) syntax(err error) {
	var invalid *scanner.InvalidTokenError
	var placed yaml.Error
	switch {
	case errors.As(err, &invalid):
		r.notYAML(invalid.Token, invalid.Token.Error)
	case errors.As(err, &placed):
		r.notYAML(placed.GetToken(), placed.GetMessage())
	default:
		r.notYAML(nil, err.Error())
	}
}

func (r yamlReader) notYAML(at *token.Token, says string) {
	const most = 200 // bytes, since it may repeat what is written
	if len(says) > most {
		says = strings.ToValidUTF8(says[:most], "") + "…"
	}
	r.faults.Add(r.position(at), "not YAML: %s", says)
}

func (r yamlReader) position(t *token.Token) notation.Position {
	if t == nil || t.Position == nil {
		return notation.Position{Source: r.source, Line: 1, Column: 1}
	}
	return notation.Position{Source: r.source, Line: max(1, t.Position.Line), Column: max(1, t.Position.Column)}
}

// start is where a node begins. The parser takes a block mapping to be at its
// first colon; people look for its first name.
func (r yamlReader) start(node ast.Node) notation.Position {
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

func (r yamlReader) value(node ast.Node) notation.Value {
	v := notation.Value{At: r.start(node)}
	switch n := node.(type) {
	case *ast.NullNode:
	case *ast.StringNode:
		v.Kind, v.Text = notation.KindText, n.Value
	case *ast.LiteralNode:
		v.Kind, v.Text = notation.KindText, n.Value.Value
	case *ast.IntegerNode:
		v.Kind, v.Text = notation.KindInteger, n.Token.Value
	case *ast.FloatNode:
		v.Kind, v.Text = notation.KindFloat, n.Token.Value
	case *ast.InfinityNode:
		v.Kind, v.Text = notation.KindFloat, n.Token.Value
	case *ast.NanNode:
		v.Kind, v.Text = notation.KindFloat, n.Token.Value
	case *ast.BoolNode:
		v.Kind, v.Text = notation.KindBoolean, n.Token.Value
	case *ast.SequenceNode:
		v.Kind = notation.KindList
		for _, item := range n.Values {
			v.Items = append(v.Items, r.value(item))
		}
	case *ast.MappingNode:
		v.Kind = notation.KindMapping
		v.Fields = r.fields(n.Values)
	case *ast.MappingValueNode:
		v.Kind = notation.KindMapping
		v.Fields = r.fields([]*ast.MappingValueNode{n})
	default:
		r.faults.Add(v.At, "anchors, aliases and tags are not allowed")
	}
	return v
}

func (r yamlReader) fields(entries []*ast.MappingValueNode) []notation.Field {
	fields := make([]notation.Field, 0, len(entries))
	lines := make(map[string]int, len(entries))
	for _, entry := range entries {
		at := r.start(entry)
		key, scalar := entry.Key.(ast.ScalarNode)
		if _, merge := entry.Key.(*ast.MergeKeyNode); merge || !scalar {
			r.faults.Add(at, "a name must be a plain text")
			continue
		}
		name := key.GetToken().Value
		if line, twice := lines[name]; twice {
			r.faults.Add(at, "%q is given twice, first in line %d", name, line)
			continue
		}
		lines[name] = at.Line
		v := r.value(entry.Value)
		if v.Kind == notation.KindNull {
			v.At = at // an empty value has no place of its own
		}
		fields = append(fields, notation.Field{At: at, Name: name, Value: v})
	}
	return fields
}
