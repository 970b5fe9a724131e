package document

import (
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
)

// A Setter takes a value over into a field. It calls fault for each value (the one
// given, or an item of it) that is not allowed.
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

// Between reads a duration within bounds.
func Between(field *time.Duration, least, most time.Duration) Setter {
	return Scalar(fmt.Sprintf("%s to %s", brief(least), brief(most)), func(text string) bool {
		d, err := stint.ParseDuration(text)
		*field = d
		return err == nil && d >= least && d <= most
	}, KindText, KindInteger)
}

// Parsed reads what a function parses, whose error says what is allowed.
func Parsed[T any](field *T, parse func(text string) (T, error), kinds ...Kind) Setter {
	_, none := parse("")
	return Scalar(Allowed(none), func(text string) bool {
		var err error
		*field, err = parse(text)
		return err == nil
	}, kinds...)
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

// oneOf reads one of several names: into a string as it is, else as its place. zero, if it is not "", is allowed too.
func oneOf(field reflect.Value, names []string, zero string) Setter {
	all := slices.DeleteFunc(append(slices.Clone(names), zero), func(name string) bool { return name == "" })
	kind := KindText
	if names[0] == "true" {
		kind = KindBoolean
	}
	return Scalar(choices(all), func(text string) bool {
		field.SetZero()
		at := slices.IndexFunc(names, func(name string) bool { return name == text || kind == KindBoolean && strings.EqualFold(name, text) })
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
	switch field := field.(type) {
	case *time.Duration:
		low, _ := stint.ParseDuration(least)
		high, _ := stint.ParseDuration(most)
		return Between(field, low, high)
	case *int:
		low, _ := strconv.Atoi(least)
		high, _ := strconv.Atoi(most)
		return Integer(field, low, high)
	case *int64:
		if words[0] != "size" {
			low, _ := ParseInteger(least)
			high, _ := ParseInteger(most)
			return Integer(field, low, high)
		}
		return size(field, words[1:])
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
	return Scalar("a number of bytes such as 64KiB or 1GiB, "+allowed, func(text string) bool {
		n, ok := parseSize(text)
		*field = n
		return ok && n >= least && n <= most
	}, KindText, KindInteger)
}

// parseSize reads a number of bytes with one of the units KiB, MiB, GiB and TiB,
// or with none.
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
