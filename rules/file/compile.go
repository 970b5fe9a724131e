package file

import (
	"errors"

	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// Compile makes a set of rules that were read, and says where they are that don't make sense. The
// error is [document.Faults].
func Compile(list []rules.Rule, positions []document.Position, options rules.Options) (*rules.Set, error) {
	set, err := rules.Compile(list, options)
	if err == nil {
		return set, nil
	}
	var faults document.Faults
	locate(err, positions, &faults)
	return nil, faults.Err()
}

// locate takes joined faults apart and adds each with its rule's position.
func locate(err error, positions []document.Position, faults *document.Faults) {
	for _, part := range notation.Unjoin[error](err) {
		var at document.Position
		rule := ""
		fault, ok := errors.AsType[*rules.Fault](part)
		if ok {
			rule = fault.ID
		}
		if ok && fault.Index < len(positions) {
			at = positions[fault.Index]
		} else if len(positions) > 0 {
			at.Source = positions[0].Source
		}
		faults.AddOf(rule, at, "%v", part)
	}
}
