package document

import (
	"strings"

	"github.com/stint-go/stint/internal/clip"
)

// Mapping hands each field of a mapping to take, and records those that take does not
// know, with the names that it does. An empty value is like an empty mapping.
func (f *Faults) Mapping(path string, v Value, take func(Field) bool, names []string) {
	switch v.Kind {
	case KindNull:
		return
	case KindMapping:
	default:
		f.Invalid(path, v, "a mapping with "+strings.Join(names, ", "))
		return
	}
	for _, field := range v.Fields {
		if !take(field) {
			f.Unknown(path, field, names)
		}
	}
}

// Unknown records a field that the mapping at path can't have.
func (f *Faults) Unknown(path string, field Field, names []string) {
	f.Add(field.At, "%q is not a name in %s; allowed: %s", clip.To(maxName, field.Name), path, strings.Join(names, ", "))
}
