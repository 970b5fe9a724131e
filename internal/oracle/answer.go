package oracle

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

// An Answer is what a store says of an operation, or what it must say.
type Answer struct {
	Decision stint.Decision
	Each     []stint.Outcome // nil: it was not asked for
	Hold     stint.HoldOp    // what the store wrote down of the hold
	Live     []stint.Hold
	Err      error

	// Charged says of each limit whether it is the operation's to charge if it is admitted: it has to admit, or is of
	// the way that was taken of its group. Only the model says so.
	Charged []bool

	// unasked says of each limit that it is of another way than the hold is on: whether it would admit is not said.
	unasked []bool
}

// Got is the answer to an operation that a store has carried out, and so has written into.
func Got(op stint.Op, result stint.Result) Answer {
	a := Answer{Decision: result.Decision, Each: op.Each, Err: result.Err}
	if h := op.Hold(); h != nil {
		a.Hold = *h
	}
	if op.Verb == stint.VerbList {
		a.Live = *op.Extra.Live
	}
	return a
}

// WriteTo writes down in an operation what a store would.
func (a *Answer) WriteTo(op stint.Op) {
	copy(op.Each, a.Each)
	if h := op.Hold(); h != nil {
		said := a.Hold
		said.Hold, said.Via = h.Hold, h.Via
		said.ExpiresAt = a.Hold.ExpiresAt
		*h = said
	}
	if op.Verb == stint.VerbList {
		*op.Extra.Live = a.Live
	}
}

// differences lists the fields in which a store's answer differs from the model's. Errors are
// compared first: with one, no other field is. What no store has to say (unasked) counts as right.
func (a *Answer) differences(op stint.Op, got Answer) (found []string) {
	differ := func(field string, got, want any) {
		found = append(found, fmt.Sprintf("%s: got %v, expected %v", field, got, want))
	}
	var mine, other *stint.ResolvedError
	switch {
	case errors.As(got.Err, &mine) && errors.As(a.Err, &other) && *mine == *other:
		return nil
	case (got.Err != nil || a.Err != nil) && (a.Err == nil || other != nil || !errors.Is(got.Err, a.Err)):
		differ("error", prefix.Trim(fmt.Sprint(got.Err)), prefix.Trim(fmt.Sprint(a.Err)))
		return found
	case a.Err != nil:
		return nil
	case op.Verb == stint.VerbList:
		if !slices.IsSortedFunc(got.Live, func(a, b stint.Hold) int { return int(a.ExpiresAt - b.ExpiresAt) }) {
			differ("list", got.Live, "it to be sorted by expiry")
		}
		if live := slices.SortedFunc(slices.Values(got.Live), inOrder); !slices.EqualFunc(live, a.Live, same) {
			differ("list", live, a.Live)
		}
		return found
	case got.Each != nil && len(got.Each) < len(a.Each):
		differ("outcomes", len(got.Each), len(a.Each))
		return found
	}
	for i := range got.Each {
		outcome, want := got.Each[i], a.Each[i]
		if a.unasked[i] {
			outcome.Allowed, outcome.RetryAfter = want.Allowed, want.RetryAfter
		}
		if op.Hold() != nil {
			outcome.Applied, want.Applied = 0, 0 // the decision says it
		}
		eachField(outcome, want, func(field string, got, want any) {
			differ(fmt.Sprintf("outcome %d: %s", i, field), got, want)
		})
	}
	eachField(got.Decision, a.Decision, differ)
	if op.Hold() != nil {
		said := got.Hold
		said.Hold, said.Via = stint.Hold{ExpiresAt: said.ExpiresAt}, 0
		if op.Verb != stint.VerbReserve || !a.Decision.Allowed {
			said.ExpiresAt = 0
		}
		eachField(said, a.Hold, func(field string, got, want any) { differ("hold: "+field, got, want) })
	}
	return found
}

// explain words what differs, with the operation and the states as they were before it, which is all
// that it takes to work out the answer by hand.
func (t *transaction) explain(op stint.Op, differences []string) error {
	i := 0
	for _, m := range members(op) {
		claim := m.claim
		for _, limit := range claim.Policy.Limits() {
			was := "untouched"
			if s := t.world.states[name{claim.Policy.Name(), limit.Name, limit.Algorithm, claim.Key}]; s != nil {
				was = s.String()
			}
			text := fmt.Sprintf("limit %d: %s of key %q was %s", i, DescribeLimit(limit), claim.Key, was)
			differences = append(differences, text)
			i++
		}
	}
	if h := op.Hold(); h != nil {
		if r := t.world.ids[h.ID]; r != nil {
			differences = append(differences, fmt.Sprintf("the id was %+v", *r))
		}
	}
	return fmt.Errorf("stint: at %s, %s:\n\t%s", t.now, Describe(op), strings.Join(differences, "\n\t"))
}

// DescribeLimit lists the fields of a limit that are set.
func DescribeLimit(l stint.Limit) string {
	var set []string
	eachField(l, stint.Limit{}, func(field string, value, _ any) { set = append(set, fmt.Sprintf("%s %v", field, value)) })
	return "{" + strings.Join(set, ", ") + "}"
}

// Describe words an operation.
func Describe(op stint.Op) string {
	text := op.Verb.String()
	list := members(op)
	for i, m := range list {
		c, before := m.claim, spot{}
		if i > 0 {
			before = list[i-1].spot
		}
		switch {
		case m.group == 0 && i > 0:
			text += " and"
		case m.group == 0:
		case m.group != before.group:
			text += " either"
		case m.way != before.way:
			text += " else"
		default:
			text += " with"
		}
		text += fmt.Sprintf(" %d of key %q", c.Permits, c.Key)
		if c.Keep != 0 {
			text += fmt.Sprintf(" keeping %d", c.Keep)
		}
		text += fmt.Sprintf(" under policy %q of", c.Policy.Name())
		for _, l := range c.Policy.Limits() {
			text += " " + DescribeLimit(l)
		}
		if m.optional && (i == len(list)-1 || list[i+1].group != m.group) {
			text += " else nothing"
		}
	}
	if h := op.Hold(); h != nil {
		text += fmt.Sprintf(" as %+v", *h)
	}
	return text
}

// eachField calls with the fields in which two structs differ.
func eachField[T any](got, want T, with func(field string, got, want any)) {
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if a, b := g.Field(i).Interface(), w.Field(i).Interface(); !reflect.DeepEqual(a, b) {
			with(g.Type().Field(i).Name, a, b)
		}
	}
}
