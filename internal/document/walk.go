package document

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
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
//
// It is implemented by what has several forms, such as a limit, or forms that depend on other
// fields.
type Reader interface {
	ReadDocument(path Path, v Value, faults *Faults)
}

// A ReaderFunc is a function as a [Reader].
type ReaderFunc func(path Path, v Value, faults *Faults)

// ReadDocument calls the function.
func (read ReaderFunc) ReadDocument(path Path, v Value, faults *Faults) { read(path, v, faults) }

// ReadDocument has a setter take a value over, and records what is wrong with it.
func (set Setter) ReadDocument(path Path, v Value, faults *Faults) {
	set(v, func(v Value, allowed string) { faults.Invalid(path.name, v, allowed) })
}

// Kinds are kinds of fields by the name that the tag "is" has for them, besides those of
// [Kinds.Read]: a [Setter] for scalars and lists of them, or another Reader. field points to the
// field, args are the words behind the name.
type Kinds map[string]func(field any, args []string) Reader

// Of is a kind of fields of one type, which has no arguments.
func Of[T any, R Reader](read func(field *T) R) func(field any, args []string) Reader {
	return func(field any, _ []string) Reader { return read(field.(*T)) }
}

// Read fills what into points to, and records everything that is wrong with the value. What a mapping does not name
// stays as it is. into is one of:
//   - a [Reader];
//   - a struct, read from a mapping. Each field with the tag doc is read under that name; the fields of
//     one with doc:",inline" are read as if they stood in the struct itself. An unknown name is a fault;
//   - a slice, read from a list, or a map, read from a mapping with any names, of which an empty one stays nil. The tag
//     of:"NAME" says what they are, and each:"KIND ARGUMENTS" is of their items what is is of a field;
//   - what has a kind: a string of any text, a bool, int, int64 or duration, an [encoding.TextUnmarshaler], whose
//     error says what is allowed, or what the tag is says.
//
// The tag is:"KIND ARGUMENTS" says more about a field:
//   - integer LEAST MOST; duration LEAST MOST; size LEAST [MOST], of bytes, with or without KiB, MiB, GiB or TiB;
//   - one-of NAMES: a string, or a number or bool that stands for the name's place, counted from 0;
//   - a kind of k.
//
// zero:"WORD" is a word for the field's zero value; if it is off, nothing at all says the same.
// secret:"all" keeps the value out of messages, secret:"url" what may be secret in a URL.
// one:"NAME" is another name of a list, for one with a single item; if it is the list's own, such
// an item may stand there by itself.
func (k Kinds) Read(path Path, v Value, into any, faults *Faults) {
	k.ReadField(path, v, into, "", faults)
}

// ReadField is Read for a field that has a tag.
func (k Kinds) ReadField(path Path, v Value, field any, tag reflect.StructTag, faults *Faults) {
	k.read(path, v, reflect.ValueOf(field).Elem(), tag, faults)
}

// read chooses by what the field is: its own Reader, a kind, or its parts.
func (k Kinds) read(path Path, v Value, into reflect.Value, tag reflect.StructTag, faults *Faults) {
	if reader, own := into.Addr().Interface().(Reader); own {
		reader.ReadDocument(path, v, faults)
		return
	}
	if reader := k.reader(into, tag); reader != nil {
		record(reader, path, v, tag, faults)
		return
	}
	switch into.Kind() {
	case reflect.Slice:
		k.list(path, v, into, tag, faults)
	case reflect.Map:
		k.byName(path, v, into, tag, faults)
	default:
		k.fields(path, v, into, faults)
	}
}

// fields reads a mapping into a struct.
func (k Kinds) fields(path Path, v Value, into reflect.Value, faults *Faults) {
	var few [32]taggedField // that no memory is taken for each of many mappings
	fields := tagged(few[:0], into)
	names := func() (names []string) {
		for _, f := range fields {
			if f.one != "" && f.one != f.name {
				names = append(names, f.one)
			}
			names = append(names, f.name)
		}
		return names
	}
	faults.Mapping(path.name, v, func(given Field) bool {
		at := slices.IndexFunc(fields, func(f taggedField) bool {
			return given.Name != "" && (f.name == given.Name || f.one == given.Name)
		})
		if at < 0 {
			return false
		}
		f, value := fields[at], given.Value
		if f.one == given.Name && f.one != f.name {
			value = Value{At: value.At, Kind: KindList, Items: []Value{value}}
		} else if _, both := v.field(f.one); both && f.one != f.name {
			faults.Add(given.At, "%s is given as well as %s; allowed: one of them", path.Field(f.name), f.one)
			return true
		}
		k.read(path.Field(given.Name), value, f.value, f.tag, faults)
		return true
	}, names)
}

// byName reads what has any names into a map.
func (k Kinds) byName(path Path, v Value, into reflect.Value, tag reflect.StructTag, faults *Faults) {
	if v.Kind != KindMapping && v.Kind != KindNull {
		faults.Invalid(path.name, v, "a mapping of "+cmp.Or(tag.Get("of"), "texts"))
		return
	}
	if len(v.Fields) > 0 {
		into.Set(reflect.MakeMapWithSize(into.Type(), len(v.Fields)))
	}
	for _, f := range v.Fields {
		value := reflect.New(into.Type().Elem()).Elem()
		k.read(path.Field(f.Name), f.Value, value, ofItems(tag), faults)
		into.SetMapIndex(reflect.ValueOf(f.Name), value)
	}
}

// ofItems is the tag of what is in a list or a mapping with a tag.
func ofItems(tag reflect.StructTag) reflect.StructTag {
	return `is:"` + reflect.StructTag(tag.Get("each")) + `"`
}

// list reads each item into one of its own.
func (k Kinds) list(path Path, v Value, into reflect.Value, tag reflect.StructTag, faults *Faults) {
	if v.Kind != KindList && v.Kind != KindNull {
		faults.Invalid(path.name, v, strings.TrimSuffix("a list of "+tag.Get("of"), " of "))
		return
	}
	if len(v.Items) > 0 {
		into.Set(reflect.MakeSlice(into.Type(), len(v.Items), len(v.Items)))
	}
	for i, item := range v.Items {
		k.read(path.Item(i), item, into.Index(i), ofItems(tag), faults)
	}
}

// A taggedField is a field of a struct that documents name.
type taggedField struct {
	name, one string
	tag       reflect.StructTag
	value     reflect.Value
}

// tagged appends a struct's fields that have a name. Embedding is not looked at: ,inline says it.
func tagged(fields []taggedField, of reflect.Value) []taggedField {
	for i := range of.NumField() {
		tag := of.Type().Field(i).Tag
		switch name := tag.Get("doc"); name {
		case "":
		case ",inline":
			fields = tagged(fields, of.Field(i))
		default:
			fields = append(fields, taggedField{name, tag.Get("one"), tag, of.Field(i)})
		}
	}
	return fields
}

// record takes a value over, or records what is wrong with it. A secret is hidden here and nowhere
// else, so that no reader can forget it.
func record(reader Reader, path Path, v Value, tag reflect.StructTag, faults *Faults) {
	set, is := reader.(Setter)
	if !is || tag.Get("secret") == "" {
		reader.ReadDocument(path, v, faults)
		return
	}
	set(v, func(v Value, allowed string) {
		switch tag.Get("secret") {
		case "url":
			v.Text = RedactURL(v.Text)
		case "all":
			v.Text = "redacted"
		}
		faults.Invalid(path.name, v, allowed)
	})
}

// A Setting is a field that has a kind and one of the tags default and value: what a flag and an
// environment variable can give too. It is bound to the struct that it was listed of.
type Setting struct {
	// Name is its place in the document, such as store.timeout.
	Name string
	// Tag has the field's tags.
	Tag reflect.StructTag

	reader Reader
	value  reflect.Value
}

// Same reports whether two settings, of one name but of different structs, have the same value.
func (s Setting) Same(as Setting) bool {
	return reflect.DeepEqual(s.value.Interface(), as.value.Interface())
}

// Set gives the setting a value, or records what is wrong with it.
func (s Setting) Set(v Value, faults *Faults) { record(s.reader, Root(s.Name, ""), v, s.Tag, faults) }

// Settings lists the settings of the struct that of points to, and of those in it, in their order.
func (k Kinds) Settings(of any) []Setting { return k.settings(reflect.ValueOf(of).Elem(), "") }

// settings walks over the struct; prefix is the name of what it is in, and a dot.
func (k Kinds) settings(of reflect.Value, prefix string) (all []Setting) {
	for _, f := range tagged(nil, of) {
		if reader := k.reader(f.value, f.tag); reader != nil {
			if f.tag.Get("default")+f.tag.Get("value") != "" {
				all = append(all, Setting{prefix + f.name, f.tag, reader, f.value})
			}
		} else if f.value.Kind() == reflect.Struct {
			all = append(all, k.settings(f.value, prefix+f.name+".")...)
		}
	}
	return all
}

// reader is what reads a field of a kind, or nil for what is read by its parts.
func (k Kinds) reader(field reflect.Value, tag reflect.StructTag) Reader {
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
		reader := k[words[0]](field.Addr().Interface(), words[1:])
		is := false
		if set, is = reader.(Setter); !is {
			return reader
		}
	default:
		set = ranged(field.Addr().Interface(), words)
	}
	switch {
	case set == nil:
		return nil
	case zero == "":
		return set
	}
	return Setter(func(v Value, fault func(Value, string)) {
		text := v.Kind == KindText || v.Kind == KindUntyped
		if text && v.Text == zero || zero == "off" && v.Text == "" && (text || v.Kind == KindNull) {
			field.SetZero()
			return
		}
		set(v, func(v Value, allowed string) { fault(v, allowed+also) })
	})
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
				fault(v, Allowed(err))
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
		return Parsed(field, notation.ParseDuration, KindText, KindInteger)
	default:
		return nil
	}
}

// A Setter takes a value over into a field. It calls fault for each value (the one given, or an
// item of it) that is not allowed. An untyped value (KindUntyped) is a text of a flag or of the
// environment, which every setter takes.
type Setter func(v Value, fault func(v Value, allowed string))

// Scalar makes a setter of a function that takes the text of a value over, or
// says that it is not allowed. The value must be untyped or of one of the kinds.
func Scalar(allowed string, set func(text string) bool, kinds ...Kind) Setter {
	return func(v Value, fault func(Value, string)) {
		if v.Kind != KindUntyped && !slices.Contains(kinds, v.Kind) || !set(v.Text) {
			fault(v, allowed)
		}
	}
}

// List makes a setter of a list, of a function that reads the text of one item. Each
// item that is not allowed is a fault of its own.
func List[T any](field *[]T, allowed string, parse func(text string) (T, bool)) Setter {
	return func(v Value, fault func(Value, string)) {
		if v.Kind == KindUntyped {
			v = v.Split()
		}
		if v.Kind != KindList && v.Kind != KindNull {
			fault(v, "a list of "+allowed)
			return
		}
		*field = make([]T, 0, len(v.Items))
		for _, item := range v.Items {
			parsed, ok := parse(item.Text)
			if ok = ok && (item.Kind == KindText || item.Kind == KindUntyped); !ok {
				fault(item, allowed)
				continue
			}
			*field = append(*field, parsed)
		}
	}
}

// Text reads any text of UTF-8.
func Text(field *string) Setter {
	return Scalar("a text", func(text string) bool {
		*field = text
		return utf8.ValidString(text)
	}, KindText)
}

// Boolean reads true or false.
func Boolean(field *bool) Setter {
	return Scalar("true or false", func(text string) bool {
		*field = strings.EqualFold(text, "true")
		return *field || strings.EqualFold(text, "false")
	}, KindBoolean)
}

// ParseInteger reads a decimal integer as JSON writes it: no sign but a minus, no
// leading zeros, no separators. So nothing reads as one number and means another.
func ParseInteger(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

// Integer reads an integer within bounds.
func Integer[T int | int64](field *T, least, most T) Setter {
	return Scalar(fmt.Sprintf("%d to %d", least, most), func(text string) bool {
		n, ok := ParseInteger(text)
		*field = T(n)
		return ok && int64(*field) == n && *field >= least && *field <= most
	}, KindInteger)
}

// Between reads a duration within bounds. Of a number without a unit it says which may be meant.
func Between(field *time.Duration, least, most time.Duration) Setter {
	within := func(text string) (time.Duration, bool) {
		d, err := notation.ParseDuration(text)
		return d, err == nil && d >= least && d <= most
	}
	return measured(field, fmt.Sprintf("%s to %s", brief(least), brief(most)), within, "ms", "s", "m", "h", "d")
}

// measured reads what has a unit, by a function that says whether it is within bounds. Of a number without one it asks
// whether the first unit by which that is within bounds was meant.
func measured[T any](field *T, allowed string, within func(text string) (T, bool), units ...string) Setter {
	read := Scalar(allowed, func(text string) (ok bool) {
		*field, ok = within(text)
		return ok
	}, KindText, KindInteger)
	meant := func(text string) string {
		if _, number := ParseInteger(text); number {
			for _, unit := range units {
				if _, ok := within(text + unit); ok {
					return fmt.Sprintf(" (%s has no unit; did you mean %s%s?)", text, text, unit)
				}
			}
		}
		return ""
	}
	return func(v Value, fault func(Value, string)) {
		read(v, func(v Value, allowed string) { fault(v, allowed+meant(v.Text)) })
	}
}

// Parsed reads what a function parses, whose error says what is allowed.
func Parsed[T any](field *T, parse func(text string) (T, error), kinds ...Kind) Setter {
	return func(v Value, fault func(Value, string)) {
		var err error
		if *field, err = parse(v.Text); err == nil && v.Kind != KindUntyped && !slices.Contains(kinds, v.Kind) {
			_, err = parse("")
		}
		if err != nil {
			fault(v, Allowed(err))
		}
	}
}

// Allowed is what an invalid value's error says is allowed.
func Allowed(err error) string {
	if invalid, ok := errors.AsType[*stint.InvalidError](err); ok {
		return invalid.Allowed
	}
	return fmt.Sprint(err)
}

// brief writes a duration without the units of which it has none: 10m, not 10m0s.
func brief(d time.Duration) string {
	text := d.String()
	for _, none := range []string{"m0s", "h0m"} {
		if before, found := strings.CutSuffix(text, none); found {
			text = before + none[:1]
		}
	}
	return text
}

// choices is how a message lists names: open, closed or local.
func choices(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// oneOf reads one of several names: into a string as it is, else as its place. zero, if it is not
// "", is allowed too.
func oneOf(field reflect.Value, names []string, zero string) Setter {
	all := slices.DeleteFunc(append(slices.Clone(names), zero), func(name string) bool { return name == "" })
	kind := KindText
	if names[0] == "true" {
		kind = KindBoolean
	}
	return Scalar(choices(all), func(text string) bool {
		field.SetZero()
		at := slices.IndexFunc(names, func(name string) bool {
			return name == text || kind == KindBoolean && strings.EqualFold(name, text)
		})
		switch {
		case field.Kind() == reflect.String:
			field.SetString(text)
		case field.Kind() == reflect.Bool:
			field.SetBool(at == 1)
		case field.CanUint():
			field.SetUint(uint64(max(0, at)))
		default:
			field.SetInt(int64(at))
		}
		return at >= 0
	}, kind)
}

// ranged reads a number, a duration or a size within bounds, as the tag says by its words.
func ranged(field any, words []string) Setter {
	least, most := words[len(words)-min(2, len(words)-1)], words[len(words)-1]
	low, _ := ParseInteger(least)
	high, _ := ParseInteger(most)
	switch field := field.(type) {
	case *time.Duration:
		shortest, _ := notation.ParseDuration(least)
		longest, _ := notation.ParseDuration(most)
		return Between(field, shortest, longest)
	case *int:
		return Integer(field, int(low), int(high))
	case *int64:
		if words[0] == "size" {
			return size(field, words[1:])
		}
		return Integer(field, low, high)
	default:
		return nil
	}
}

// size reads a number of bytes within bounds, of which the upper one may be missing.
func size(field *int64, bounds []string) Setter {
	least, _ := parseSize(bounds[0])
	most, allowed := int64(math.MaxInt64), "at least "+bounds[0]
	if len(bounds) > 1 {
		most, _ = parseSize(bounds[1])
		allowed = bounds[0] + " to " + bounds[1]
	}
	within := func(text string) (int64, bool) {
		n, ok := parseSize(text)
		return n, ok && n >= least && n <= most
	}
	return measured(field, "a number of bytes such as 64KiB or 1GiB, "+allowed, within, "KiB", "MiB", "GiB")
}

// parseSize reads a number of bytes with one of the units KiB, MiB, GiB and TiB, or with none.
func parseSize(text string) (int64, bool) {
	digits, shift := text, 0
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if before, found := strings.CutSuffix(text, unit); found {
			digits, shift = before, 10*(i+1)
		}
	}
	n, ok := ParseInteger(digits)
	return n << shift, ok && n >= 0 && n<<shift>>shift == n
}
