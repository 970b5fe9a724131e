package rules_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// ten is a limit of no importance.
var ten = stint.TokenBucket(10, stint.PerSecond(1))

// rule is a sound rule of all requests of an address.
func rule(id string) rules.Rule {
	return rules.Rule{ID: id, Scope: []string{rules.PerIP}, Limits: []stint.Limit{ten}}
}

// onPath is a sound rule of a path's requests.
func onPath(id, path string) rules.Rule {
	r := rule(id)
	r.Match.Paths = one(path)
	return r
}

// one is a list of one text, and none of "".
func one(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

func compile(t testing.TB, list ...rules.Rule) *rules.Set {
	t.Helper()
	return must.Get(rules.Compile(list, rules.Options{}))(t)
}

// A tester is a test, or an attempt of rapid.
type tester interface {
	Helper()
	Fatal(args ...any)
}

// matched are the IDs of the rules that hold for the request.
func matched(t tester, set *rules.Set, r rules.Request) []string {
	t.Helper()
	var m rules.Matches
	must.Do(t, set.Match(&r, &m))
	ids := make([]string, m.Len())
	for i := range ids {
		ids[i] = m.Rule(i).ID
	}
	return ids
}

// held is what the only rule of a set makes of the request.
func held(t testing.TB, set *rules.Set, r rules.Request) rules.Matched {
	t.Helper()
	return must.Get(tryHeld(t, set, r))(t)
}

func tryHeld(t testing.TB, set *rules.Set, r rules.Request) (rules.Matched, error) {
	t.Helper()
	var m rules.Matches
	must.Do(t, set.Match(&r, &m))
	if m.Len() != 1 {
		t.Fatalf("%d rules match %+v, want 1", m.Len(), r)
	}
	return m.AtTake(0)
}

// faultsOf takes a joined error apart.
func faultsOf(t testing.TB, err error) []*rules.Fault {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v (%T) is not several faults", err, err)
	}
	var all []*rules.Fault
	for _, err := range joined.Unwrap() {
		var fault *rules.Fault
		if !errors.As(err, &fault) || !errors.Is(err, stint.ErrInvalid) {
			t.Fatalf("%v (%T) is no fault", err, err)
		}
		all = append(all, fault)
	}
	return all
}

func equalIDs(got []string, want string) bool { return slices.Equal(got, strings.Fields(want)) }
