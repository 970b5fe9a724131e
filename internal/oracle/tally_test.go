package oracle_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/oracle"
)

// A tally counts what a run has covered: for each kind of limit, and for all operations, how often each verb was
// answered in which way.
type tally map[string]int

func (y tally) bump(row, column string) { y[row+": "+column]++ }

func (y tally) add(other tally) {
	for line, n := range other {
		y[line] += n
	}
}

func (y tally) count(op stint.Op, a oracle.Answer) {
	column := op.Verb.String()
	switch {
	case errors.Is(a.Err, stint.ErrResolved):
		column += " resolved"
	case errors.Is(a.Err, stint.ErrOtherClaims):
		column += " of other claims"
	case a.Err != nil:
		column += " unknown"
	case !a.Decision.Allowed && op.Verb != stint.VerbList:
		column += " denied"
	}
	for _, word := range []struct {
		is   bool
		text string
	}{
		{a.Hold.Replayed, " again"},
		{a.Hold.Late, " late"},
		{a.Hold.Lost, " lost"},
		{a.Hold.Reset, " after reset"},
		{a.Hold.Full, " full"},
	} {
		if word.is {
			column += word.text
		}
	}
	if op.Verb == stint.VerbCommit && a.Err == nil && !a.Hold.Replayed && !a.Hold.Late && !a.Hold.Reset {
		switch n := a.Decision.Applied; {
		case n > 0:
			column += " more"
		case n < 0:
			column += " less"
		}
	}
	y.bump("all", column)
	y.bump("all", fmt.Sprintf("of %d limits", op.Limits()))
	if slices.Max(kept(op)) > 0 {
		y.bump("all", "keeping "+column)
	}
	if op.Groups() != nil {
		row := "with ways"
		switch {
		case !isEmpty(op):
		case op.Policy == nil:
			row = "with an empty way alone"
		default:
			row = "with an empty way"
		}
		y.bump(row, column)
		if a.Err == nil && op.Verb != stint.VerbReset {
			y.bump(row, fmt.Sprintf("via %d", a.Decision.Via))
		}
	}
	kinds := map[string]bool{}
	for i := range op.Limits() {
		kinds[limitOf(op, i).Algorithm.String()] = true
	}
	for kind := range kinds {
		y.bump(kind, op.Verb.String())
	}
}

func (y tally) String() string {
	var b strings.Builder
	for _, line := range slices.Sorted(maps.Keys(y)) {
		fmt.Fprintf(&b, "%s %d\n", line, y[line])
	}
	return b.String()
}

// isEmpty reports whether a group of the operation may charge nothing.
func isEmpty(op stint.Op) bool {
	return slices.ContainsFunc(op.Groups(), func(group []stint.Way) bool { return len(group[len(group)-1]) == 0 })
}

// limitOf is limit i of an operation.
func limitOf(op stint.Op, i int) stint.Limit {
	limit, _ := op.LimitAt(i)
	return limit
}
