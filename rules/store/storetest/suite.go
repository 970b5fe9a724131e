// Package storetest is what every store of rules must pass. It is for tests only.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/store"
)

// A Place is where rules are kept, empty at first.
type Place struct {
	// Open makes a store on the place: each call another one, as another process would have it. The
	// suite does not close them; t.Cleanup does.
	Open func() store.Store
	// Lose empties the place, as a server that lost its data. Default: nil, what depends on it is not tested.
	Lose func()
}

// A Size is how much there is of what a store has to get right in bulk.
type Size struct {
	// Edits is how many edits each of 8 editors makes at the same time.
	Edits int
	// Rules is how many rules a large revision has.
	Rules int
	// Rounds is how many revisions are put while others load.
	Rounds int
	// Kept says that the store keeps no more than store.KeptRevisions and store.KeptBytes.
	Kept bool
}

// The sizes.
var (
	Full  = Size{Edits: 20, Rules: 10_000, Rounds: 100, Kept: true}
	Small = Size{Edits: 3, Rules: 1000, Rounds: 30}
)

// Run tests the stores of a place, which open makes anew for each subtest of t.
func Run(t *testing.T, size Size, open func(t testing.TB) Place) {
	for _, c := range []struct {
		name  string
		check func(p *place)
	}{
		{"Empty", testEmpty},
		{"RoundTrip", testRoundTrip},
		{"OddText", testOddText},
		{"IDs", testIDs},
		{"Conflict", testConflict},
		{"Lost", testLost},
		{"History", testHistory},
		{"ManyRules", size.testManyRules},
		{"KeptRevisions", size.testKeptRevisions},
		{"KeptBytes", size.testKeptBytes},
		{"Edits", size.testEdits},
		{"Whole", size.testWhole},
		{"Watch", testWatch},
		{"Cancelled", testCancelled},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(newPlace(t, open(t))) })
	}
}

// dawn is when the first revision of a place is made: in 2026.
const dawn = 1_790_000_000_123_456

// A tester is a test, or an attempt of rapid.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A place is two stores on one Place, and the revisions that it should hold.
type place struct {
	Place
	t         tester
	test      *testing.T
	ctx       context.Context //nolint:containedctx // the test's
	stores    [2]store.Store
	revisions []store.Revision // the newest last
}

func newPlace(t *testing.T, at Place) *place {
	return &place{Place: at, t: t, test: t, ctx: t.Context(), stores: [2]store.Store{at.Open(), at.Open()}}
}

// head is the newest revision, the zero Revision if there is none.
func (p *place) head() store.Revision {
	if len(p.revisions) == 0 {
		return store.Revision{}
	}
	return p.revisions[len(p.revisions)-1]
}

// next is the revision after the newest with these rules, of two with one ID the last.
func (p *place) next(list ...rules.Rule) store.Revision {
	return after(p.head(), list)
}

func after(head store.Revision, list []rules.Rule) store.Revision {
	next := store.Revision{Info: store.Info{ID: store.ID{Number: head.Number + 1, At: max(head.At+1, dawn)}}}
	byID := func(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) }
	slices.Reverse(list)
	slices.SortStableFunc(list, byID)
	next.Rules = slices.CompactFunc(list, func(a, b rules.Rule) bool { return byID(a, b) == 0 })
	return next
}

// put makes a revision by one store or the other in turn.
func (p *place) put(next store.Revision) {
	p.t.Helper()
	if err := p.stores[next.Number%2].Put(p.ctx, p.head().ID, &next); err != nil {
		p.t.Fatalf("revision %d is not made: %v", next.Number, err)
	}
	if next.Count != len(next.Rules) || next.Bytes < int64(len(next.Rules)) {
		p.t.Errorf("revision %d with %d rules has count %d, %d bytes", next.Number, len(next.Rules), next.Count, next.Bytes)
	}
	p.revisions = append(p.revisions, next)
}

// check compares the newest revision, and those before it up to n of all, with what both stores have.
func (p *place) check(n int) {
	p.t.Helper()
	for i, s := range p.stores {
		if head, err := s.Head(p.ctx); err != nil || head != p.head().ID {
			p.t.Fatalf("store %d: the head is %+v, %v; want %+v", i, head, err, p.head().ID)
		}
		newest, err := s.Load(p.ctx, 0)
		if err != nil {
			p.t.Fatalf("store %d: %v", i, err)
		}
		same(p.t, newest, p.head())
		want := slices.Clone(p.revisions)
		slices.Reverse(want)
		want = want[:min(n, len(want))]
		infos, err := s.History(p.ctx, 0, n)
		if err != nil || !slices.EqualFunc(infos, want, func(a store.Info, b store.Revision) bool { return a == b.Info }) {
			p.t.Fatalf("store %d: the newest %d are\n%+v, %v; want\n%+v", i, n, infos, err, want)
		}
		for _, revision := range want {
			got, err := s.Load(p.ctx, revision.Number)
			if err != nil {
				p.t.Fatalf("store %d: revision %d: %v", i, revision.Number, err)
			}
			same(p.t, got, revision)
		}
		p.notKept(s, p.head().Number+1)
	}
}

// notKept holds a store to have no revision of a number.
func (p *place) notKept(s store.Store, number int64) {
	p.t.Helper()
	if got, err := s.Load(p.ctx, number); !errors.Is(err, store.ErrNotKept) {
		p.t.Fatalf("revision %d: %+v, %v; want ErrNotKept", number, got.Info, err)
	}
}

func same(t tester, got, want store.Revision) {
	t.Helper()
	if got.Info != want.Info || len(got.Rules) != len(want.Rules) {
		t.Fatalf("revision %+v has %d rules, want %+v with %d", got.Info, len(got.Rules), want.Info, len(want.Rules))
	}
	for i := range got.Rules {
		if !got.Rules[i].Equal(&want.Rules[i]) {
			t.Fatalf("rule %d is\n%+v, want\n%+v", i, got.Rules[i], want.Rules[i])
		}
	}
}

// historyIs holds a page of history to its numbers.
func (p *place) historyIs(before int64, n int, want []int64) {
	p.t.Helper()
	for i, s := range p.stores {
		list, err := s.History(p.ctx, before, n)
		if err != nil {
			p.t.Fatalf("store %d: %v", i, err)
		}
		if got := numbersOf(list); !slices.Equal(got, want) {
			p.t.Errorf("store %d: %d revisions before %d are %v, want %v", i, n, before, got, want)
		}
	}
}

func numbersOf(list []store.Info) []int64 {
	numbers := make([]int64, len(list))
	for i := range list {
		numbers[i] = list[i].Number
	}
	return numbers
}

// countdown is the numbers from one down to another.
func countdown(from, to int64) []int64 {
	numbers := []int64{}
	for ; from >= to; from-- {
		numbers = append(numbers, from)
	}
	return numbers
}

// plain is a rule that can be enforced, of which a label says something.
func plain(id, says string) rules.Rule {
	return rules.Rule{
		ID: id, Labels: map[string]string{"says": says}, Scope: []string{rules.Global},
		Limits: []stint.Limit{stint.TokenBucket(1, stint.PerSecond(1))},
	}
}

// says is what a label of a rule says, "" if there is no such rule.
func says(list []rules.Rule, id string) string {
	i, found := slices.BinarySearchFunc(list, id, func(r rules.Rule, id string) int { return cmp.Compare(r.ID, id) })
	if !found {
		return ""
	}
	return list[i].Labels["says"]
}
