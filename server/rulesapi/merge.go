package rulesapi

import (
	"slices"

	"github.com/stint-go/stint/document"
)

// merge applies a JSON merge patch (RFC 7396, section 2): what the patch has takes the place of
// what the target has, null removes it, and objects are merged by name. It takes as long as both are large: the registry's
// turn is held meanwhile.
func merge(target, patch document.Value) document.Value {
	if patch.Kind != document.KindMapping {
		return patch
	}
	merged := document.Value{At: patch.At, Kind: document.KindMapping}
	if target.Kind == document.KindMapping {
		merged.Fields = slices.Clone(target.Fields)
	}
	places := make(map[string]int, len(merged.Fields))
	for i, field := range merged.Fields {
		places[field.Name] = i
	}
	removed := map[string]bool{}
	for _, field := range patch.Fields {
		at, there := places[field.Name]
		switch {
		case field.Value.Kind == document.KindNull:
			removed[field.Name] = there
		case there:
			was := merged.Fields[at].Value
			merged.Fields[at] = document.Field{At: field.At, Name: field.Name, Value: merge(was, field.Value)}
		default:
			merged.Fields = append(merged.Fields, document.Field{At: field.At, Name: field.Name, Value: merge(document.Value{}, field.Value)})
		}
	}
	merged.Fields = slices.DeleteFunc(merged.Fields, func(f document.Field) bool { return removed[f.Name] })
	return merged
}
