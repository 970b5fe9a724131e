// Package document reads what people write: YAML and JSON as one tree of values, each with its line
// and column, and everything that is wrong with it at once.
//
//	var faults document.Faults
//	v := document.Parse("stint.yaml", data, 1<<20, &faults)
//
// [Parse] makes a [Value] of a text, and records what is no YAML or JSON as [Faults]. [Kinds.Read] fills a struct
// from it by the struct's tags, and records what the value may not say in the same way. Reading is strict: there is one document, a
// name stands in a mapping once, and a document says everything where it stands, so anchors, aliases,
// tags and directives are faults.
package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint/internal/clip"
)

// maxDepth bounds how deep lists and mappings are in each other. Rules need 5.
const maxDepth = 64

var tooDeep = fmt.Sprintf("nested too deep; allowed: %d lists and mappings in each other", maxDepth)

// byteOrderMark begins what some editors write.
var byteOrderMark = []byte("\ufeff")

// Parse reads one document of at most so many bytes. A source whose name ends in .json is JSON, read by
// [JSON]; every other one is YAML, of which JSON is a part. A text that is neither is one fault, without a value; so is
// YAML that is nested deeper than 64, has more than 524,288 names and values, or of these more than 131,072
// in one pair of brackets.
func Parse(source string, data []byte, most int, faults *Faults) Value {
	if len(data) > most {
		faults.Add(Position{Source: source}, "the document has %d bytes; allowed: at most %d", len(data), most)
		return Value{At: Position{Source: source, Line: 1, Column: 1}}
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	switch {
	case IsJSON(source), looksLikeJSON(data) && json.Valid(data):
		return JSON(source, data, faults)
	case !utf8.Valid(data):
		at := Position{Source: source, Line: 1, Column: 1}
		faults.Add(at, "not YAML: the text is not UTF-8")
		return Value{At: at}
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
