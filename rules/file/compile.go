package file

import (
	"errors"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// Compile makes a set of rules that were read, and says where they are that don't make sense. The
// error is [notation.Faults].
func Compile(list []rules.Rule, positions []notation.Position, options rules.Options) (*rules.Set, error) {
	set, err := rules.Compile(list, options)
	if err == nil {
		return set, nil
	}
	var faults notation.Faults
	locate(err, positions, &faults)
	return nil, faults.Err()
}

// locate takes joined faults apart and adds each with its rule's position.
func locate(err error, positions []notation.Position, faults *notation.Faults) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, part := range joined.Unwrap() {
			locate(part, positions, faults)
		}
		return
	}
	var at notation.Position
	var fault *rules.Fault
	if errors.As(err, &fault) && fault.Index < len(positions) {
		at = positions[fault.Index]
	} else if len(positions) > 0 {
		at.Source = positions[0].Source
	}
	faults.Add(at, "%v", err)
	if fault != nil && len(*faults) <= notation.MaxFaults {
		(*faults)[len(*faults)-1].Rule = fault.ID
	}
}
