// Package prefix begins the text of errors with the module's name, once.
//
// An error carries the name from its source on, as stint.Invalid makes it. An error that says where it happened, or
// that joins others, is made by [Errorf] or [Join], which move the name to the beginning. People read the text without
// it: [Trim].
package prefix

import (
	"errors"
	"fmt"
	"strings"
)

const name = "stint: "

// inner is where the text of a wrapped error begins.
var inner = strings.NewReplacer(": "+name, ": ", "\n"+name, "\n")

// Errorf is fmt.Errorf of a text that begins with the name, and has it nowhere else.
func Errorf(format string, args ...any) error { return begin(fmt.Errorf(format, args...)) }

// Join is errors.Join of a text that begins with the name, and has it nowhere else.
func Join(errs ...error) error { return begin(errors.Join(errs...)) }

// Trim is a text without the name, and without those of wrapped errors.
func Trim(text string) string { return strings.TrimPrefix(inner.Replace(text), name) }

// begin moves the name to the beginning of an error's text; what the error wraps can still be found
// in it.
func begin(err error) error {
	if err == nil {
		return nil
	}
	return &named{err, name + Trim(err.Error())}
}

type named struct {
	err  error
	text string
}

func (n *named) Error() string { return n.text }

// Unwrap returns what the error wraps or joins itself, for those who take it apart.
func (n *named) Unwrap() []error {
	if joined, ok := n.err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{n.err}
}
