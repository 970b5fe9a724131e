package stint

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Errors that callers tell apart with errors.Is. A denial is not an error: it is
// a [Decision].
var (
	// ErrInvalid marks an input that is outside what is allowed. The message names
	// the parameter, what came and what is allowed; [InvalidError] carries them.
	ErrInvalid = errors.New("stint: invalid")
	// ErrUnavailable marks a decision that the store could not make. Whether the
	// permits were taken is not known.
	ErrUnavailable = errors.New("stint: store unavailable")
	// ErrOverloaded marks a decision that this process, or the service it asked, was too
	// busy to make in time, while the store can be reached. Permits may have been taken.
	// A limiter that admitted then would protect nothing: answer 503, and try again later.
	ErrOverloaded = errors.New("stint: overloaded")
	// ErrDeadline says that Wait gave up at once because the context ends before
	// the permits could be had, or that Ask left a turn that comes too late.
	// errors.Is(ErrDeadline, context.DeadlineExceeded) holds.
	ErrDeadline error = deadlineError{}
	// ErrNever says that Wait was asked for more permits than the limit can ever
	// grant. Nothing was consumed.
	ErrNever = errors.New("stint: the cost is above the limit itself")
)

// deadlineError is the type of ErrDeadline.
type deadlineError struct{}

// Error says that the context would end first.
func (deadlineError) Error() string {
	return "stint: the wait is longer than the context's deadline allows"
}

func (deadlineError) Is(target error) bool { return target == context.DeadlineExceeded }

// An InvalidError is one fault of an input. errors.Is(err, [ErrInvalid]) holds.
type InvalidError struct {
	Param   string // an argument or a field, as the caller spells it: "capacity", "MaxDebt"; "max_debt" in a document
	Value   string // what came
	Allowed string // what is allowed, in words
}

// Invalid returns the fault of one parameter: its name, what came and what is
// allowed.
func Invalid(param string, value any, allowed string) *InvalidError {
	text, ok := value.(string)
	if ok {
		text = fmt.Sprintf("%q", text)
	} else {
		text = fmt.Sprint(value)
	}
	return &InvalidError{Param: param, Value: text, Allowed: allowed}
}

// Error reads "stint: capacity is 0; allowed: 1 to 1000000000". Of a long value, and of a long name or of what is
// allowed, it repeats the beginning.
func (e *InvalidError) Error() string {
	return fmt.Sprintf(
		"stint: %s is %s; allowed: %s",
		shown(e.Param, maxShown),
		shown(e.Value, maxShown),
		shown(e.Allowed, maxAllowed),
	)
}

// An error is for people to read: what came is repeated up to a bound, since it may be a client's.
const (
	// maxShown is the longest valid key, quoted.
	maxShown   = 300
	maxAllowed = 1024 // bytes of what is allowed, which may name much
)

// shown is a text, or the beginning of one that is longer than anybody reads.
func shown(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for !utf8.RuneStart(text[end]) && end > most-utf8.UTFMax {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:end], len(text))
}

// Is reports whether target is [ErrInvalid].
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
