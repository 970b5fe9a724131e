package rules

import (
	"fmt"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clip"
)

// A Fault is one thing that is wrong with a rule of a list. It wraps what is wrong, so that
// errors.Is(err, stint.ErrInvalid) holds.
type Fault struct {
	// Index is the rule's place in the list.
	Index int
	// ID is the rule's, as far as it has one.
	ID string
	// Param is the part of the rule, such as match.path or limits[1].
	Param string
	// Err is what is wrong with it.
	Err error
}

// maxShownID bounds, in bytes, what is repeated of an ID that is too long.
const maxShownID = MaxIDBytes

// Error reads: rule "login": scope is "per_moon"; allowed: …
func (f *Fault) Error() string {
	if f.ID == "" {
		return fmt.Sprintf("rule %d: %v", f.Index, f.Err)
	}
	return fmt.Sprintf("rule %q: %v", clip.To(maxShownID, f.ID), f.Err)
}

// Unwrap returns what is wrong.
func (f *Fault) Unwrap() error { return f.Err }

// plain is what came, in words that a fault shows without quotes.
type plain string

// missing is what came where there is nothing.
const missing plain = "missing"

// faults gathers what is wrong with one rule.
type faults struct {
	index int
	id    string
	bits  int // by which IPv6 clients are counted; 0 is not known
	all   []error
}

func (f *faults) add(param string, err error) {
	f.all = append(f.all, &Fault{Index: f.index, ID: f.id, Param: param, Err: err})
}

func (f *faults) invalid(param string, value any, allowed string) {
	f.add(param, stint.Invalid(param, value, allowed))
}
