package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
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
// [JSON]; every other one is YAML, of which JSON is a part. What is neither is one fault, and nothing; so is
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

// once notes the line of a mapping's name, or records that the name was there before.
func once(lines map[string]int, name string, at Position, faults *Faults) bool {
	line, twice := lines[name]
	if twice {
		faults.Add(at, "%q is given twice, first in line %d", clip.To(maxName, name), line)
		return false
	}
	lines[name] = at.Line
	return true
}
