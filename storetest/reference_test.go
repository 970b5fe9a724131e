package storetest

import (
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/oracle"
)

// reference is the exact model with faults: before changes what it is asked, after what it answers, reset the name of the
// policy to reset; any may be nil.
type reference struct {
	*oracle.Oracle
	before func(op *stint.Op)
	after  func(d *stint.Decision)
	reset  func(name string) string
}

func (r *reference) Decide(op stint.Op, now stint.Instant) oracle.Answer {
	if r.before != nil {
		r.before(&op)
	}
	a := r.Oracle.Decide(op, now)
	if r.after != nil && a.Err == nil {
		r.after(&a.Decision)
	}
	return a
}

func (r *reference) ResetAll(scope stint.Scope, now stint.Instant) {
	if r.reset != nil && !scope.All {
		scope.Policy = r.reset(scope.Policy)
	}
	r.Oracle.ResetAll(scope, now)
}

// like makes stores of models with the faults of another.
func like(broken *reference) newStoreFunc {
	return func(_ testing.TB, clock *Clock) stint.Store {
		model := *broken
		model.Oracle = oracle.New(0)
		return &oracle.Store{Model: &model, Now: clock.Instant}
	}
}

// The suite passes for the store that is made of the model. Its random sequences
// compare the model with itself here, so fewer of them will do, and very few where only races count.
func TestReference(t *testing.T) {
	options := Options{Operations: 20_000}
	if testing.Short() {
		options.Operations = 1000
	}
	Run(t, like(&reference{}), options)
}
