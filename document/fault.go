package document

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/prefix"
)

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

// Add records a fault in free words, of which it keeps the first 1,024 bytes. It hides the user and password of a URL.
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

// RedactURL hides the user and the password of one URL, also when it is
// malformed.
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
