package document

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/spell"
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
	// Fields are those of a mapping in the order of the file, each name once; of [ParseYAML11] also several times, see
	// there.
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

// A Position says where a value was given: a file with line and column, or an
// environment variable or a flag.
type Position struct {
	// Source is the file's name, or such as STINT_LISTEN or --listen.
	Source string
	// Line and Column count from 1, the column in characters. Both are 0 where the
	// source has no lines.
	Line, Column int
}

// String reads stint.yaml:3:5, or just the source where there are no lines.
func (p Position) String() string {
	if p.Line == 0 {
		return p.Source
	}
	return fmt.Sprintf("%s:%d:%d", p.Source, p.Line, p.Column)
}

// A Fault is one thing that is wrong with what was written.
type Fault struct {
	Position Position
	// Message names the parameter, what came and what is allowed.
	Message string
	// Rule is the ID of the rule of a list that it is in; "" is none, or one without an ID.
	Rule string
}

// Error reads stint: stint.yaml:3:5: ipv6_prefix is 300; allowed: 1 to 128.
func (f Fault) Error() string { return "stint: " + f.Position.String() + ": " + f.Message }

// Faults is everything that is wrong with what was written, in the order of the
// positions, but no more than [MaxFaults]. errors.Is(err, [stint.ErrInvalid]) holds.
type Faults []Fault

// MaxFaults is how many faults are kept. One more says that there are more, at the first of these.
const MaxFaults = 1000

// Error holds one fault on each line, behind stint: at the beginning.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Position.String() + ": " + fault.Message
	}
	return "stint: " + strings.Join(lines, "\n")
}

// Is reports whether target is [stint.ErrInvalid].
func (f Faults) Is(target error) bool { return target == stint.ErrInvalid }

const (
	// maxMessage and maxName bound, in bytes, a fault's message, and each name in it.
	maxMessage = 1024
	maxName    = 128
)

// Add records a fault in free words, of which it keeps the first 1,024 bytes. It hides the user and
// password of a URL.
func (f *Faults) Add(at Position, format string, args ...any) { f.AddOf("", at, format, args...) }

// AddOf is Add for a fault of the rule with an ID.
func (f *Faults) AddOf(rule string, at Position, format string, args ...any) {
	if !f.full(at) {
		message := clip.To(maxMessage, Redact(prefix.Trim(fmt.Sprintf(format, args...))))
		*f = append(*f, Fault{Position: at, Message: message, Rule: clip.To(maxName, rule)})
	}
}

// Blame says of the faults behind the first so many that they are of the rule with an ID.
func (f Faults) Blame(rule string, first int) {
	for i := first; i < min(len(f), MaxFaults); i++ {
		f[i].Rule = clip.To(maxName, rule)
	}
}

// Join records the faults of something else.
func (f *Faults) Join(others Faults) {
	for _, fault := range others {
		if f.full(fault.Position) {
			return
		}
		*f = append(*f, fault)
	}
}

// full reports whether no fault is recorded any more, and records that there is one at a place.
func (f *Faults) full(at Position) bool {
	if len(*f) == MaxFaults {
		*f = append(*f, Fault{Position: at, Message: "and more"})
	}
	return len(*f) > MaxFaults
}

// Invalid records that the parameter at path can't be v.
func (f *Faults) Invalid(path string, v Value, allowed string) {
	if f.full(v.At) {
		return // before anything is written
	}
	f.Add(v.At, "%s", stint.Invalid(path, Verbatim(v.String()), allowed))
}

// Err returns the faults by position, or nil when there are none. Sources keep the
// order in which they first appear.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	first := make(map[string]int)
	for i, fault := range f {
		if _, seen := first[fault.Position.Source]; !seen {
			first[fault.Position.Source] = i
		}
	}
	slices.SortStableFunc(f[:min(len(f), MaxFaults)], func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(first[a.Position.Source], first[b.Position.Source]),
			cmp.Compare(a.Position.Line, b.Position.Line),
			cmp.Compare(a.Position.Column, b.Position.Column),
		)
	})
	return f
}

// Verbatim is a text that [stint.Invalid] shows as it is, without quotes.
type Verbatim string

// credentials is all between a scheme and the last @ of the line.
var credentials = regexp.MustCompile(`://.*@`)

// Redact hides what may be secret in a text with URLs: all between a scheme and
// the last @ of the line.
func Redact(text string) string {
	return credentials.ReplaceAllString(text, "://redacted@")
}

// RedactURL hides the user and the password of one URL, also when it is malformed.
func RedactURL(url string) string {
	at := strings.LastIndexByte(url, '@')
	if at < 0 {
		return url
	}
	scheme, _, found := strings.Cut(url[:at], "://")
	if !found {
		return "redacted" + url[at:]
	}
	return scheme + "://redacted" + url[at:]
}

// Mapping hands each field of a mapping to take, and records those that take does not
// know, with the names that it does. An empty value is like an empty mapping.
func (f *Faults) Mapping(path string, v Value, take func(Field) bool, names func() []string) {
	if v.Kind != KindNull && v.Kind != KindMapping {
		f.Invalid(path, v, "a mapping with "+strings.Join(names(), ", "))
	}
	for _, field := range v.Fields {
		if !take(field) {
			f.Unknown(path, field, names())
		}
	}
}

// Unknown records a field that the mapping at path can't have.
func (f *Faults) Unknown(path string, field Field, names []string) {
	f.Add(field.At, "%q is not a name in %s%s; allowed: %s",
		clip.To(maxName, field.Name), path, spell.DidYouMean(field.Name, names), strings.Join(names, ", "))
}

// Write is the counterpart of [Kinds.ReadField] for a struct or a part of one that of points to: a value without places
// that is read as the same. Equal ones give equal values: names are in the order of the fields, or sorted in maps, and
// there is none for what is zero; a list of one item in a map is the item. own is asked for what the tags don't say, by
// a pointer to it and its tag is, and reports whether it wrote it.
func Write(of any, tag reflect.StructTag, own func(of any, is string) (Value, bool)) Value {
	return write(reflect.ValueOf(of).Elem(), tag, own)
}

// write is a field of a struct as a value, by its type and its tag. A zero value is null, which is
// left out when the document is written.
func write(of reflect.Value, tag reflect.StructTag, own func(any, string) (Value, bool)) (v Value) {
	if of.IsZero() {
		return v
	}
	return writeItem(of, tag, own)
}

// writeItem writes what may be zero, as what is in a list or a map. own may know types of its own first.
func writeItem(of reflect.Value, tag reflect.StructTag, own func(any, string) (Value, bool)) (v Value) {
	at := of.Addr().Interface()
	if v, is := own(at, tag.Get("is")); is {
		return v
	}
	if d, is := at.(*time.Duration); is {
		return Value{Kind: KindText, Text: duration.Format(*d)}
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
			item := writeItem(of.Index(i), ofItems(tag), own)
			if item.Kind == KindNull {
				item.Kind = KindMapping
			}
			v.Kind, v.Items = KindList, append(v.Items, item)
		}
		return v
	case reflect.Map:
		for key, value := range of.Seq2() {
			item := reflect.New(value.Type()).Elem()
			item.Set(value)
			f := Field{Name: key.String(), Value: writeItem(item, ofItems(tag), own)}
			if len(f.Value.Items) == 1 {
				f.Value = f.Value.Items[0]
			}
			v.Kind, v.Fields = KindMapping, append(v.Fields, f)
		}
		slices.SortFunc(v.Fields, func(a, b Field) int { return strings.Compare(a.Name, b.Name) })
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
func writeFields(of reflect.Value, own func(any, string) (Value, bool)) (v Value) {
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

// appendJSON writes a value as JSON without spaces. Numbers stay as they were written, so that none
// loses digits.
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
