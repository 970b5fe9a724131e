package document

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

// A Path is what a part of a document is called in messages.
type Path struct {
	name   string // of the part itself
	prefix string // of the names in it
}

// Root is the path of a whole, and what comes before the names in it: with "" they stand alone.
func Root(name, prefix string) Path { return Path{name, prefix} }

// String is the part's name, such as match.headers.
func (p Path) String() string { return p.name }

// Field is the path of what a mapping has under a name.
func (p Path) Field(name string) Path { return Path{p.prefix + name, p.prefix + name + "."} }

// Item is the path of a list's item.
func (p Path) Item(i int) Path {
	name := fmt.Sprintf("%s[%d]", p.name, i)
	return Path{name, name + "."}
}

// A Reader takes a value over by itself, where no tag can say how.
type Reader interface {
	ReadDocument(path Path, v Value, faults *Faults)
}

// Kinds are kinds of scalars and lists by the name that the tag "is" has for them, besides those of [Kinds.Read]. field points
// to the field, args are the words behind the name.
type Kinds map[string]func(field any, args []string) Setter

// Read fills what into points to, and records everything that is wrong with the value. What a mapping does not name stays
// as it is. into is one of:
//   - a [Reader];
//   - a struct, read from a mapping. Each field with the tag doc is read under that name; the fields of one with doc:",inline" are
//     read as if they stood in the struct itself. An unknown name is a fault;
//   - a slice of structs or Readers, read from a list;
//   - what has a kind: a string of any text, a bool, int, int64 or duration, an [encoding.TextUnmarshaler], whose
//     error says what is allowed, or what the tag is says.
//
// The tag is:"KIND ARGUMENTS" says more about a field:
//   - integer LEAST MOST; duration LEAST MOST; size LEAST [MOST], of bytes, with or without KiB, MiB, GiB or TiB;
//   - one-of NAMES: a string, or a number or bool that stands for the name's place, counted from 0;
//   - a kind of k.
//
// zero:"WORD" is a word for the field's zero value; if it is off, nothing at all says the same. secret:"all" keeps
// the value out of messages, secret:"url" what may be secret in a URL.
func (k Kinds) Read(path Path, v Value, into any, faults *Faults) {
	k.read(path, v, reflect.ValueOf(into).Elem(), "", faults)
}

func (k Kinds) read(path Path, v Value, into reflect.Value, tag reflect.StructTag, faults *Faults) {
	if reader, own := into.Addr().Interface().(Reader); own {
		reader.ReadDocument(path, v, faults)
		return
	}
	if set := k.setter(into, tag); set != nil {
		set.record(path.name, v, tag, faults)
		return
	}
	if into.Kind() == reflect.Slice {
		k.list(path, v, into, faults)
		return
	}
	fields := tagged(into)
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	faults.Mapping(path.name, v, func(given Field) bool {
		for _, f := range fields {
			if f.name == given.Name {
				k.read(path.Field(f.name), given.Value, f.value, f.tag, faults)
				return true
			}
		}
		return false
	}, names)
}

// list reads each item into one of its own.
func (k Kinds) list(path Path, v Value, into reflect.Value, faults *Faults) {
	if v.Kind != KindList && v.Kind != KindNull {
		faults.Invalid(path.name, v, "a list")
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(v.Items), len(v.Items)))
	for i, item := range v.Items {
		k.read(path.Item(i), item, into.Index(i), "", faults)
	}
}

// A taggedField is a field of a struct that documents name.
type taggedField struct {
	name  string
	tag   reflect.StructTag
	value reflect.Value
}

// tagged lists a struct's fields that have a name.
func tagged(of reflect.Value) (fields []taggedField) {
	for i := range of.NumField() {
		tag := of.Type().Field(i).Tag
		switch name := tag.Get("doc"); name {
		case "":
		case ",inline":
			fields = append(fields, tagged(of.Field(i))...)
		default:
			fields = append(fields, taggedField{name, tag, of.Field(i)})
		}
	}
	return fields
}

// record takes a value over, or records what is wrong with it.
func (set Setter) record(name string, v Value, tag reflect.StructTag, faults *Faults) {
	set(v, func(v Value, allowed string) {
		switch tag.Get("secret") {
		case "url":
			v.Text = RedactURL(v.Text)
		case "all":
			v.Text = "redacted"
		}
		faults.Invalid(name, v, allowed)
	})
}

// A Setting is a field that has a kind and the tag help: what a flag and an environment variable can give too.
type Setting struct {
	// Name is its place in the document, such as store.timeout.
	Name string
	// Tag has the field's tags.
	Tag reflect.StructTag

	set Setter
}

// Set gives the setting a value, or records what is wrong with it.
func (s Setting) Set(v Value, faults *Faults) { s.set.record(s.Name, v, s.Tag, faults) }

// Settings lists the settings of the struct that of points to, and of those in it, in their order.
func (k Kinds) Settings(of any) []Setting { return k.settings(reflect.ValueOf(of).Elem(), "") }

func (k Kinds) settings(of reflect.Value, prefix string) (all []Setting) {
	for _, f := range tagged(of) {
		if set := k.setter(f.value, f.tag); set != nil {
			if f.tag.Get("help") != "" {
				all = append(all, Setting{prefix + f.name, f.tag, set})
			}
		} else if f.value.Kind() == reflect.Struct {
			all = append(all, k.settings(f.value, prefix+f.name+".")...)
		}
	}
	return all
}

// setter is what reads a scalar or a list of scalars, or nil for what is read by its parts.
func (k Kinds) setter(field reflect.Value, tag reflect.StructTag) Setter {
	words := strings.Fields(tag.Get("is"))
	zero := tag.Get("zero")
	also := ", or " + zero
	var set Setter
	switch {
	case len(words) == 0:
		set = plain(field)
	case words[0] == "one-of":
		set, also = oneOf(field, words[1:], zero), ""
	case k[words[0]] != nil:
		set = k[words[0]](field.Addr().Interface(), words[1:])
	default:
		set = ranged(field.Addr().Interface(), words)
	}
	if zero == "" || set == nil {
		return set
	}
	return func(v Value, fault func(Value, string)) {
		text := v.Kind == KindText || v.Kind == KindUntyped
		if text && v.Text == zero || zero == "off" && v.Text == "" && (text || v.Kind == KindNull) {
			field.SetZero()
			return
		}
		set(v, func(v Value, allowed string) { fault(v, allowed+also) })
	}
}

// plain reads what its Go type says all about.
func plain(field reflect.Value) Setter {
	switch field := field.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return func(v Value, fault func(Value, string)) {
			err := field.UnmarshalText([]byte(v.Text))
			if err == nil && v.Kind != KindText && v.Kind != KindUntyped {
				err = errors.New("a text")
			}
			if err != nil {
				fault(v, allowed(err))
			}
		}
	case *string:
		return Text(field)
	case *bool:
		return Boolean(field)
	case *int:
		return Integer(field, math.MinInt, math.MaxInt)
	case *int64:
		return Integer(field, math.MinInt64, math.MaxInt64)
	case *time.Duration:
		return duration(field)
	default:
		return nil
	}
}

// allowed is what an invalid value's error says is allowed.
func allowed(err error) string {
	if invalid, ok := errors.AsType[*stint.InvalidError](err); ok {
		return invalid.Allowed
	}
	return fmt.Sprint(err)
}
