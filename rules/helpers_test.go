package rules_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
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

// checkFaults compares faults with RULE:PARAM of each, and one of them with what it says.
func checkFaults(t *testing.T, err error, want, says string) {
	t.Helper()
	if want == "" {
		must.Do(t, err)
		return
	}
	if err == nil {
		t.Fatal("no fault is found, want ", want)
	}
	var got []string
	for _, fault := range faultsOf(t, err) {
		got = append(got, fault.ID+":"+fault.Param)
	}
	if !slices.Equal(got, strings.Fields(want)) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v: %v\nwant %s that says %q", got, err, want, says)
	}
}

func equalIDs(got []string, want string) bool { return slices.Equal(got, strings.Fields(want)) }

// words are what the patches of tables say in place of values.
var words = map[string]any{
	"ten": ten, "burst": ten.Named("burst"), "leased": ten.WithLease(2),
	"no_capacity": stint.TokenBucket(0, stint.PerSecond(1)),
	"hundred":     stint.TokenBucket(100, stint.PerSecond(10)), "slow": stint.TokenBucket(100, stint.PerHour(1)),
	"window": stint.FixedWindow(100, time.Second), "leased_window": stint.FixedWindow(9, time.Second).WithLease(2),
	"four": stint.FixedWindow(4, bounds.MaxPeriod), "named_block": stint.FixedWindow(1, time.Second).Named("block"),
	"denials": stint.FixedWindow(1, time.Second).FromFirst().OfDenials(), "none": stint.Limit{},
	"log": stint.SlidingWindowLog(10, time.Minute), "counting": stint.SlidingWindowLog(10, time.Minute).CountingDenied(),
	"leaky": stint.LeakyBucket(5, stint.PerSecond(1)), "places": stint.Concurrency(5),
	"wait": rules.Wait, "shadow": rules.Shadow, "mark": rules.Mark, "pause": rules.Block{After: 20, For: time.Minute},
	"floor": rules.Floor{Capacity: 1, Refill: stint.PerSecond(1)}, "classes": classes(),
	"full": rules.Request{
		Path: "/u/7/posts", Address: "192.0.2.1", User: "ann", APIKey: "s3cret",
		Attributes: map[string]string{"plan": "free", "odd": `a|b\`, "bytes": "a\x00b"},
	},
}

// counted are words that end in a number: names_17 are as many names.
var counted = map[string]func(n int) any{
	"x":         func(n int) any { return strings.Repeat("x", n) },
	"nines":     func(n int) any { return strings.Repeat("9", n) },
	"umlauts":   func(n int) any { return strings.Repeat("\u00e4", n) },
	"names":     func(n int) any { return slices.Sorted(maps.Keys(each(n, 0))) },
	"fields":    func(n int) any { return each(n, "v") },
	"ones":      func(n int) any { return each(n, 1) },
	"floors":    func(n int) any { return each(n, rules.Floor{Capacity: 1, Refill: stint.PerDay(1)}) },
	"windows":   func(n int) any { return limitsOf(n) },
	"overrides": func(n int) any { return make([]rules.Override, n) },
	"statuses": func(n int) any {
		var list []int
		for i := range n {
			list = append(list, 400+i)
		}
		return list
	},
}

// each gives n names the value.
func each[V any](n int, value V) map[string]V {
	all := map[string]V{}
	for i := range n {
		all[fmt.Sprint("M", i)] = value
	}
	return all
}

// word is a text in JSON, or a word that is none.
var word = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[0-9]*[a-z/][a-z0-9_]*`)

// patch changes some fields of a value. It is JSON, in which there may be words, durations such as 1m, and rates such as
// 10/s.
func patch(t must.Test, value any, text string) {
	t.Helper()
	text = word.ReplaceAllStringFunc(text, func(w string) string {
		if w[0] == '"' || w == "true" || w == "false" || w == "null" {
			return w
		}
		value, known := words[w]
		name, n, _ := strings.Cut(w, "_")
		if many := counted[name]; many != nil && !known {
			value = many(must.Get(strconv.Atoi(n))(t))
		} else if strings.Contains(w, "/") {
			value = must.Get(notation.ParseRate(w))(t)
		} else if !known {
			value = must.Get(notation.ParseDuration(w))(t)
		}
		return string(must.Get(json.Marshal(value))(t))
	})
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		t.Fatal(text, err)
	}
}

// patchAll changes rules of a list, which a patch names by their IDs.
func patchAll(t must.Test, list []rules.Rule, text string) {
	t.Helper()
	var patches map[string]json.RawMessage
	patch(t, &patches, text)
	for i := range list {
		if text, there := patches[list[i].ID]; there {
			patch(t, &list[i], string(text))
			delete(patches, list[i].ID)
		}
	}
	if len(patches) > 0 {
		t.Fatal("no rule has the ID of ", text)
	}
}
