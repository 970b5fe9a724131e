package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// Write is the counterpart of [Kinds.Read] for a struct or a part of one that of points to: a value without places that is read as
// the same. Equal ones give equal values: names are in the order of the fields, and there is none for what is zero. own is asked for
// what the tags don't say, by a pointer to it, and reports whether it wrote it.
func Write(of any, own func(of any) (Value, bool)) Value {
	return write(reflect.ValueOf(of).Elem(), "", own)
}

func write(of reflect.Value, tag reflect.StructTag, own func(any) (Value, bool)) (v Value) {
	if of.IsZero() {
		return v
	}
	at := of.Addr().Interface()
	if v, is := own(at); is {
		return v
	}
	switch field := at.(type) {
	case *string:
		return Value{Kind: KindText, Text: *field}
	case *time.Duration:
		return Value{Kind: KindText, Text: stint.FormatDuration(*field)}
	case *map[string]string:
		for _, name := range slices.Sorted(maps.Keys(*field)) {
			v.Kind, v.Fields = KindMapping, append(v.Fields, Field{Name: name, Value: Value{Kind: KindText, Text: (*field)[name]}})
		}
		return v
	}
	if names, is := strings.CutPrefix(tag.Get("is"), "one-of "); is && of.Kind() != reflect.String {
		return choice(of, strings.Fields(names))
	}
	if named, is := at.(fmt.Stringer); is {
		return Value{Kind: KindText, Text: named.String()}
	}
	switch of.Kind() {
	case reflect.Struct:
		return writeFields(of, own)
	case reflect.Slice:
		for i := range of.Len() {
			item := write(of.Index(i), "", own)
			if item.Kind == KindNull && of.Type().Elem().Kind() == reflect.String {
				item.Kind = KindText
			} else if item.Kind == KindNull {
				item.Kind = KindMapping
			}
			v.Kind, v.Items = KindList, append(v.Items, item)
		}
		return v
	case reflect.String:
		return Value{Kind: KindText, Text: of.String()}
	case reflect.Bool:
		return Value{Kind: KindBoolean, Text: "true"}
	default:
		return Value{Kind: KindInteger, Text: strconv.FormatInt(of.Int(), 10)}
	}
}

// writeFields writes a struct; nothing if all that has a name is zero.
func writeFields(of reflect.Value, own func(any) (Value, bool)) (v Value) {
	for i := range of.NumField() {
		if of.Field(i).IsZero() {
			continue
		}
		tag := of.Type().Field(i).Tag
		field := Field{Name: tag.Get("doc")}
		if field.Name == "" {
			continue
		}
		if field.Value = write(of.Field(i), tag, own); field.Value.Kind == KindNull {
			continue
		}
		if one := tag.Get("one"); one != "" && len(field.Value.Items) == 1 {
			field.Name, field.Value = one, field.Value.Items[0]
		}
		if v.Fields == nil {
			const few = 6
			v.Kind, v.Fields = KindMapping, make([]Field, 0, few)
		}
		v.Fields = append(v.Fields, field)
	}
	return v
}

// choice writes what stands for the place of a name.
func choice(of reflect.Value, names []string) Value {
	at := 1
	if of.CanUint() {
		at = int(of.Uint())
	} else if of.CanInt() {
		at = int(of.Int())
	}
	kind := KindText
	if names[0] == "true" {
		kind = KindBoolean
	}
	return Value{Kind: kind, Text: names[at]}
}

// JSON is the value as one line of JSON, which [JSON] reads as the same.
func (v Value) JSON() []byte { return v.appendJSON(nil) }

func (v Value) appendJSON(to []byte) []byte {
	switch v.Kind {
	case KindNull:
		return append(to, "null"...)
	case KindInteger, KindFloat, KindBoolean:
		return append(to, v.Text...)
	case KindList:
		to = append(to, '[')
		for i, item := range v.Items {
			if i > 0 {
				to = append(to, ',')
			}
			to = item.appendJSON(to)
		}
		return append(to, ']')
	case KindMapping:
		to = append(to, '{')
		for i, f := range v.Fields {
			if i > 0 {
				to = append(to, ',')
			}
			to = f.Value.appendJSON(append(appendText(to, f.Name), ':'))
		}
		return append(to, '}')
	default:
		return appendText(to, v.Text)
	}
}

// appendText appends a text in quotes, in which HTML is not escaped.
func appendText(to []byte, text string) []byte {
	if !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		return append(append(append(to, '"'), text...), '"')
	}
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // which any text can be
	return append(to, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}
