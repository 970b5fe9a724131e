package rulesapi

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint"
)

// A query is the parameters of a request's query, in the order in which they came.
type query []parameter

type parameter struct{ name, value string }

func parseQuery(text string) (query, error) {
	var q query
	for pair := range strings.SplitSeq(text, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err == nil {
			value, err = url.QueryUnescape(value)
		}
		if err != nil {
			return nil, invalid("query", pair, "percent-encoding, % with two hexadecimal digits")
		}
		q = append(q, parameter{name, value})
	}
	return q, nil
}

// only refuses parameters that are not among the names, and those that are there twice. label may
// be there several times.
func (q query) only(names ...string) error {
	for i, p := range q {
		if !slices.Contains(names, p.name) {
			allowed := "none"
			if len(names) > 0 {
				allowed = strings.Join(names, ", ")
			}
			return invalid("parameter", p.name, allowed)
		}
		twice := func(o parameter) bool { return o.name == p.name }
		if p.name != "label" && slices.ContainsFunc(q[:i], twice) {
			return stint.Invalid("parameter", p.name, "once")
		}
	}
	return nil
}

// get returns a parameter, and whether it is there.
func (q query) get(name string) (string, bool) {
	for _, p := range q {
		if p.name == name {
			return p.value, true
		}
	}
	return "", false
}

// integer reads a parameter between bounds; without it, it is otherwise.
func (q query) integer(name string, otherwise, least, most int64) (int64, error) {
	text, given := q.get(name)
	if !given {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, invalid(name, text, strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
	}
	return n, nil
}

// maxComment bounds what an author has to say of an edit.
const maxComment = 512

// comment is what the author of an edit has to say.
func (q query) comment() (string, error) {
	text, _ := q.get("comment")
	control := func(r rune) bool { return unicode.IsControl(r) }
	if len(text) > maxComment || !utf8.ValidString(text) || strings.ContainsFunc(text, control) {
		return "", invalid("comment", text, "up to 512 bytes of UTF-8 without control characters")
	}
	return text, nil
}

// parseNumber reads the number of a version.
func parseNumber(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0, invalid("number", text, "an integer in decimal")
	}
	return int64(n), nil
}
