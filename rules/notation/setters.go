package notation

import (
	"fmt"
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

// OneOf reads one of several names.
func OneOf(field *string, names ...string) Setter {
	return Scalar(strings.Join(names, " or "), func(text string) bool {
		*field = text
		return slices.Contains(names, text)
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
