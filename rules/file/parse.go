package file

import (
	"path/filepath"
	"strings"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// MaxBytes bounds a file of rules.
const MaxBytes = 4 << 20

// Parse reads the rules of one document, and where each of them begins. A source whose name
// ends in .json is JSON, every other one is YAML. The document is a list of rules or a mapping
// with one under the name rules; an empty document is not taken for an empty list,
// since it may be half of a file. The error is [notation.Faults].
//
// What is returned is well written. Whether it makes sense [rules.Compile] says.
func Parse(source string, data []byte) ([]rules.Rule, []notation.Position, error) {
	var faults notation.Faults
	list, positions := parse(source, data, &faults)
	if err := faults.Err(); err != nil {
		return nil, nil, err
	}
	return list, positions, nil
}

func parse(source string, data []byte, faults *notation.Faults) ([]rules.Rule, []notation.Position) {
	if len(data) > MaxBytes {
		faults.Add(notation.Position{Source: source}, "the document has %d bytes; allowed: at most %d", len(data), MaxBytes)
		return nil, nil
	}
	front, sound := YAML, len(*faults)
	if isJSON(source) {
		front = notation.ParseJSON
	}
	document := front(source, data, faults)
	if len(*faults) > sound && document.Kind == notation.KindNull {
		return nil, nil // nothing could be read
	}
	written := document
	if document.Kind == notation.KindMapping {
		written = notation.Value{At: document.At}
		faults.Mapping("the document", document, func(f notation.Field) bool {
			if f.Name != "rules" {
				return false
			}
			written = f.Value
			return true
		}, []string{"rules"})
	}
	if written.Kind == notation.KindNull {
		faults.Add(written.At, "there are no rules; allowed: a list of rules, [] for none")
		return nil, nil
	}
	positions := make([]notation.Position, 0, len(written.Items))
	for _, item := range written.Items {
		positions = append(positions, item.At)
	}
	return notation.Rules(written, "rules", faults), positions
}

func isJSON(name string) bool { return strings.EqualFold(filepath.Ext(name), ".json") }
