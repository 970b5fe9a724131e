package registrytest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

// dawn is when the first version of a place is made, if nobody says otherwise: in 2026.
const dawn = 1_790_000_000_123_456

// A tester is a test, or an attempt of rapid.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A place is two backends on one place, and what it should hold.
type place struct {
	t        tester
	ctx      context.Context //nolint:containedctx // the test's
	backends [2]registry.Backend
	head     registry.Head
	rules    map[string]rules.Rule
	versions []registry.Version // the newest last
}

func newPlace(t testing.TB, open Open) *place {
	t.Helper()
	another := open(t)
	return &place{t: t, ctx: t.Context(), backends: [2]registry.Backend{another(), another()}, rules: map[string]rules.Rule{}}
}

// next is the version after the newest in which rules are put and others deleted.
func (p *place) next(put []rules.Rule, deleted ...string) registry.Version {
	v := registry.Version{Head: registry.Head{Number: p.head.Number + 1, At: max(p.head.At+1, dawn)}}
	ids := map[string]*rules.Rule{}
	for _, rule := range put {
		ids[rule.ID] = &rule
	}
	for _, id := range deleted {
		ids[id] = nil
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		change := registry.Change{ID: id, After: ids[id]}
		if before, was := p.rules[id]; was {
			change.Before = &before
		}
		v.Changes = append(v.Changes, change)
	}
	return v
}

// commit makes a version by one backend or the other in turn.
func (p *place) commit(v registry.Version) {
	p.t.Helper()
	if err := p.backends[v.Number%2].Commit(p.ctx, p.head, &v); err != nil {
		p.t.Fatalf("version %d is not made: %v", v.Number, err)
	}
	p.head = v.Head
	p.versions = append(p.versions, v)
	for _, c := range v.Changes {
		if c.After == nil {
			delete(p.rules, c.ID)
		} else {
			p.rules[c.ID] = *c.After
		}
	}
}

// check compares what both backends have with what they should have.
func (p *place) check() {
	p.t.Helper()
	want := registry.Snapshot{Head: p.head}
	for _, id := range slices.Sorted(maps.Keys(p.rules)) {
		want.Rules = append(want.Rules, p.rules[id])
	}
	for i, b := range p.backends {
		if head, err := b.Head(p.ctx); err != nil || head != p.head {
			p.t.Fatalf("backend %d: the head is %+v, %v; want %+v", i, head, err, p.head)
		}
		got, err := b.Load(p.ctx)
		if err != nil {
			p.t.Fatalf("backend %d: %v", i, err)
		}
		sameSnapshot(p.t, got, want)
	}
}

// checkVersions compares the newest versions of both backends with those that were made.
func (p *place) checkVersions(n int) {
	p.t.Helper()
	want := slices.Clone(p.versions)
	slices.Reverse(want)
	want = want[:min(n, len(want))]
	for i, b := range p.backends {
		got, err := b.Versions(p.ctx, 0, n)
		if err != nil {
			p.t.Fatalf("backend %d: %v", i, err)
		}
		if !slices.EqualFunc(got, want, sameVersion) {
			p.t.Fatalf("backend %d: the newest %d versions are\n%+v, want\n%+v", i, n, got, want)
		}
	}
}

func sameSnapshot(t tester, got, want registry.Snapshot) {
	t.Helper()
	if got.Head != want.Head || len(got.Rules) != len(want.Rules) {
		t.Fatalf("version %+v has %d rules, want %+v with %d", got.Head, len(got.Rules), want.Head, len(want.Rules))
	}
	for i := range got.Rules {
		if !got.Rules[i].Equal(&want.Rules[i]) {
			t.Fatalf("rule %d is\n%+v, want\n%+v", i, got.Rules[i], want.Rules[i])
		}
	}
}

func sameVersion(a, b registry.Version) bool {
	return a.Head == b.Head && a.Author == b.Author && slices.EqualFunc(a.Changes, b.Changes, func(a, b registry.Change) bool {
		return a.ID == b.ID && sameRule(a.Before, b.Before) && sameRule(a.After, b.After)
	})
}

func sameRule(a, b *rules.Rule) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(b)
}

// numbersOf are the numbers of versions.
func numbersOf(list []registry.Version) []int64 {
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

// versionsAre holds a page of versions to its numbers.
func (p *place) versionsAre(before int64, n int, want []int64) {
	p.t.Helper()
	for i, b := range p.backends {
		list, err := b.Versions(p.ctx, before, n)
		if err != nil {
			p.t.Fatalf("backend %d: %v", i, err)
		}
		if got := numbersOf(list); !slices.Equal(got, want) {
			p.t.Errorf("backend %d: %d versions before %d are %v, want %v", i, n, before, got, want)
		}
	}
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
	i, found := slices.BinarySearchFunc(list, id, func(r rules.Rule, id string) int { return strings.Compare(r.ID, id) })
	if !found {
		return ""
	}
	return list[i].Labels["says"]
}
