package notation

import (
	"strconv"
	"strings"
)

// Place is where the part of a value is that a path such as match.path or overrides[2].key names; where
// there is no such part it is that of the nearest part around it.
func (v Value) Place(path string) Position {
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		name, index, listed := strings.Cut(name, "[")
		part, found := v.field(name)
		if found && listed {
			part, found = part.item(strings.TrimSuffix(index, "]"))
		}
		if !found {
			break
		}
		v = part
	}
	return v.At
}

// field is a mapping's value of a name.
func (v Value) field(name string) (Value, bool) {
	for _, f := range v.Fields {
		if f.Name == name {
			return f.Value, true
		}
	}
	return v, false
}

// item is a list's item of an index.
func (v Value) item(index string) (Value, bool) {
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= len(v.Items) {
		return v, false
	}
	return v.Items[i], true
}
