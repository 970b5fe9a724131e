package document

import (
	"strconv"
	"strings"
)

// A Kind is what a value is by how it is written.
type Kind uint8

// The kinds of values.
const (
	// KindNull is nothing: a name without a value.
	KindNull Kind = iota
	// KindUntyped is a scalar of the environment or of a flag, which have no types.
	KindUntyped
	// KindText is a text, in quotes or without.
	KindText
	// KindInteger is a number without a fraction.
	KindInteger
	// KindFloat is any other number.
	KindFloat
	// KindBoolean is true or false.
	KindBoolean
	// KindList is a list of values.
	KindList
	// KindMapping is values by name.
	KindMapping
)

// A Value is a piece of what was written, wherever it came from. The zero value is
// nothing, from nowhere.
type Value struct {
	At   Position
	Kind Kind
	// KindText is a scalar as it was written, without quotes.
	Text string
	// Items are those of a list.
	Items []Value
	// Fields are those of a mapping in the order of the file, each name once.
	Fields []Field
}

// A Field is one entry of a mapping.
type Field struct {
	// At is where the name is.
	At    Position
	Name  string
	Value Value
}

// String shows the value in a message.
func (v Value) String() string {
	const most = 80
	text := v.Text
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "..."
	}
	switch v.Kind {
	case KindNull:
		return "empty"
	case KindList:
		if len(v.Items) == 0 {
			return "an empty list"
		}
		return "a list"
	case KindMapping:
		return "a mapping"
	case KindInteger, KindFloat, KindBoolean:
		return text
	case KindText, KindUntyped:
	}
	return strconv.Quote(text)
}

// Split makes the list of a flag or an environment variable, whose items are
// separated by commas. An empty text is the empty list.
func (v Value) Split() Value {
	list := Value{At: v.At, Kind: KindList}
	if strings.TrimSpace(v.Text) == "" {
		return list
	}
	for item := range strings.SplitSeq(v.Text, ",") {
		list.Items = append(list.Items, Value{At: v.At, Kind: KindUntyped, Text: strings.TrimSpace(item)})
	}
	return list
}

// Find is the part of a value that a path such as match.path or overrides[2].key names, or the nearest part around it
// where there is no such part.
func (v Value) Find(path string) (part Value, found bool) {
	for path != "" {
		var name string
		name, path, _ = strings.Cut(path, ".")
		name, index, listed := strings.Cut(name, "[")
		part, found := v.field(name)
		if found && listed {
			part, found = part.item(strings.TrimSuffix(index, "]"))
		}
		if !found {
			return v, false
		}
		v = part
	}
	return v, true
}

// Place is where the part is that [Value.Find] finds.
func (v Value) Place(path string) Position {
	part, _ := v.Find(path)
	return part.At
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
