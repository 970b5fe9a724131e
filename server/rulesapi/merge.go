package rulesapi

import (
	"slices"

	"github.com/stint-go/stint/rules/notation"
)

// merge applies a JSON merge patch (RFC 7396, section 2): what the patch has takes the place of
// what the target has, null removes it, and objects are merged by name.
func merge(target, patch notation.Value) notation.Value {
	if patch.Kind != notation.KindMapping {
		return patch
	}
	merged := notation.Value{At: patch.At, Kind: notation.KindMapping}
	if target.Kind == notation.KindMapping {
		merged.Fields = slices.Clone(target.Fields)
	}
	for _, field := range patch.Fields {
		at := slices.IndexFunc(merged.Fields, func(f notation.Field) bool { return f.Name == field.Name })
		switch {
		case field.Value.Kind == notation.KindNull:
			if at >= 0 {
				merged.Fields = slices.Delete(merged.Fields, at, at+1)
			}
		case at >= 0:
			was := merged.Fields[at].Value
			merged.Fields[at] = notation.Field{At: field.At, Name: field.Name, Value: merge(was, field.Value)}
		default:
			merged.Fields = append(merged.Fields, notation.Field{At: field.At, Name: field.Name, Value: merge(notation.Value{}, field.Value)})
		}
	}
	return merged
}
