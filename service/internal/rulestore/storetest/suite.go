// Package storetest is the conformance suite for stores of rules. It is for tests only.
//
// [Run] takes what opens stores on one place, and holds them against a model: after each step of a
// random sequence, every store has to have the revisions that the model has. The rest are tests of
// what sequences can't show: many editors at once, notifications, bounds, and contexts that end.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testrules"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// A Place is where rules are kept, empty at first.
type Place struct {
	// Open makes another store on the place with each call, as another process would. The
	// suite does not close them; t.Cleanup does.
	Open func() rulestore.Store
	// Lose empties the place, as a server that lost its data. Default: nil, losses are not tested.
	Lose func()
}

// A Size is the amount of work in the suite's larger tests.
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
	for name, check := range map[string]func(p *place){
		"Model": testModel, "ManyRules": size.testManyRules, "KeptRevisions": size.testKeptRevisions,
		"KeptBytes": size.testKeptBytes,
		"Edits":     size.testEdits, "Whole": size.testWhole, "Watch": testWatch, "Cancelled": testCancelled,
	} {
		t.Run(name, func(t *testing.T) {
			at := open(t)
			check(&place{
				Place: at, tester: t, test: t, ctx: t.Context(), at: 1, stores: [2]rulestore.Store{at.Open(), at.Open()},
			})
		})
	}
}

// A tester is a test, or an attempt of rapid.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// A place is two stores on one Place, and the model of what it should hold.
type place struct {
	Place
	tester
	test      *testing.T
	ctx       context.Context //nolint:containedctx // the test's
	stores    [2]rulestore.Store
	at        int64                // the time of the next revision
	revisions []rulestore.Revision // the newest last
	lost      []rulestore.Revision // were there before the place lost them
}

// testModel compares stores with the model after each of some steps. What one store writes, the other reads, text that
// means something to the server too. Only the number after the newest can be put, once, by whichever store, and only
// after the revision that is the newest, not after another of its number. A place that lost its data has no revisions,
// and is not put those after lost ones.
func testModel(p *place) {
	p.check(5)
	p.historyIs(5, 3)
	rapid.Check(p.test, func(t *rapid.T) {
		p.tester = t
		steps := []string{"put", "put", "put", "refuse", "refuse", "page"}
		if p.Lose != nil && rapid.IntRange(0, 19).Draw(t, "loses") == 0 {
			steps = []string{"lose"}
		}
		for range 2 {
			switch n := p.head().Number; rapid.SampledFrom(steps).Draw(t, "step") {
			case "put":
				p.at += rapid.SampledFrom([]int64{1, 1000, 1_000_000, 10_000_000_000_000}).Draw(t, "later")
				next := p.next(rapid.SliceOfN(testrules.Rules(), 0, 4).Draw(t, "rules")...)
				next.Author = rulestore.Author{
					By:      testrules.Text.Draw(t, "by"),
					Action:  testrules.Text.Draw(t, "action"),
					Comment: testrules.Text.Draw(t, "comment"),
				}
				p.put(next)
			case "refuse":
				expected := rulestore.ID{
					Number: n + rapid.Int64Range(-2, 2).Draw(t, "number"),
					At:     p.head().At + rapid.SampledFrom([]int64{-1, 0, 1, 1_000_000}).Draw(t, "at"),
				}
				p.refuse(expected, expected.Number+1)
				p.refuse(p.head().ID, n+rapid.SampledFrom([]int64{-1, 0, 2, 3}).Draw(t, "next"))
				p.refuse(rulestore.ID{}, rapid.Int64Range(0, n+2).Draw(t, "first"))
			case "page":
				p.historyIs(rapid.Int64Range(0, n+3).Draw(t, "before"), int(rapid.Int64Range(1, n+2).Draw(t, "n")))
			case "lose":
				p.Lose()
				p.lost, p.revisions = append(p.lost, p.revisions...), nil
				p.check(5)
				p.at++
				p.put(p.next(plain("b", "")))
			}
		}
		if len(p.lost) > 0 {
			was := rapid.SampledFrom(p.lost).Draw(t, "lost")
			p.refuse(was.ID, was.Number+1)
		}
		p.check(3)
	})
}

// refuse checks that the stores refuse a revision that does not follow the newest.
func (p *place) refuse(expected rulestore.ID, number int64) {
	p.Helper()
	if expected == p.head().ID && number == expected.Number+1 {
		return
	}
	for i, s := range p.stores {
		next := p.next(plain("other", "refused"))
		next.Number, next.At = number, p.at+5
		if err := s.Put(p.ctx, expected, &next); !errors.Is(err, rulestore.ErrConflict) {
			p.Errorf("store %d: revision %d after %+v where %+v is the newest: %v, want ErrConflict", i, number,
				expected, p.head().ID, err)
		}
	}
}

// Many rules are one revision.
func (s Size) testManyRules(p *place) {
	var list []rules.Rule
	for i := range s.Rules {
		rule := plain(fmt.Sprintf("rule-%d", i), "something that is a little longer")
		rule.Match.Methods = []string{fmt.Sprintf("METHOD-%d", i)}
		list = append(list, rule)
	}
	p.put(p.next(list...))
	p.check(1)
	p.put(p.next(slices.Clone(p.head().Rules[:s.Rules/2])...))
	p.check(2)
}

// The newest revisions are kept, and not many more.
func (s Size) testKeptRevisions(p *place) {
	if !s.Kept {
		return
	}
	const kept, made = rulestore.KeptRevisions, rulestore.KeptRevisions + 120
	for i := range made {
		p.put(p.next(plain(fmt.Sprintf("rule-%d", i%7), fmt.Sprint(i))))
	}
	p.revisions = p.revisions[made-kept:]
	p.check(5)
	p.historyIs(0, 2*made)
	p.historyIs(made-kept+2, 5)
	for _, s := range p.stores {
		p.notKept(s, made-kept)
		if _, err := s.Load(p.ctx, made-kept+1); err != nil {
			p.Errorf("the oldest: %v", err)
		}
	}
}

// Of large revisions as many of the newest are kept as fit.
func (s Size) testKeptBytes(p *place) {
	if !s.Kept {
		return
	}
	const size, made = 4 << 20, 24        // 96 MiB, of which compression leaves three quarters
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // nothing is kept safe by it
	text := make([]byte, size)
	for range made {
		for i := range text {
			text[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[random.Uint32()%64]
		}
		p.put(p.next(plain("large", string(text))))
	}
	p.check(2)
	list, err := p.stores[0].History(p.ctx, 0, made)
	if n := len(list); err != nil || n < rulestore.KeptBytes/size-1 || n >= made {
		p.Errorf("%d are kept, %v", n, err)
	}
	p.historyIs(0, len(list))
	p.notKept(p.stores[0], 1)
}

const editors = 8

// Edits of many editors by two stores are all made, one after another, and none is lost.
func (s Size) testEdits(p *place) {
	var group sync.WaitGroup
	for editor := range editors {
		group.Go(func() {
			for i := range s.Edits {
				if err := insist(p.ctx, p.stores[editor%2], fmt.Sprintf("editor-%d.%d", editor, i)); err != nil {
					p.Errorf("editor %d, edit %d: %v", editor, i, err)
					return
				}
			}
		})
	}
	group.Wait()
	all := editors * s.Edits
	for _, at := range p.stores {
		now, err := at.Load(p.ctx, 0)
		if err != nil || len(now.Rules) != all || now.Number != int64(all) {
			p.Errorf("revision %d has %d rules, want %d; %v", now.Number, len(now.Rules), all, err)
		}
		if list, err := at.History(p.ctx, 0, 2*all); err != nil || len(list) != all {
			p.Errorf("the history has %d revisions, want %d; %v", len(list), all, err)
		}
	}
}

// insist adds a rule, and tries again whenever others come first.
func insist(ctx context.Context, at rulestore.Store, id string) error {
	for {
		now, err := at.Load(ctx, 0)
		if err != nil {
			return err
		}
		next := after(now, now.At+1, append(slices.Clone(now.Rules), plain(id, "")))
		if err := at.Put(ctx, now.ID, &next); !errors.Is(err, rulestore.ErrConflict) {
			return err
		}
	}
}

// A revision is loaded whole or not at all while others are put.
func (s Size) testWhole(p *place) {
	const many = 100
	at := func(number int64) rulestore.Revision {
		var list []rules.Rule
		for i := range many - number%7 {
			list = append(list, plain(fmt.Sprintf("rule-%03d", i), fmt.Sprint(number)))
		}
		return p.next(list...)
	}
	p.put(at(1))
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	var group sync.WaitGroup
	for _, reader := range p.stores {
		group.Go(func() {
			for loads := 0; ctx.Err() == nil || loads == 0; loads++ {
				now, err := reader.Load(p.ctx, 0)
				other := slices.IndexFunc(now.Rules, func(r rules.Rule) bool { return r.Labels["says"] != fmt.Sprint(now.Number) })
				if err != nil || int64(len(now.Rules)) != many-now.Number%7 || other >= 0 {
					p.Errorf("revision %d has %d rules, of which %d is another's; %v", now.Number, len(now.Rules), other, err)
					return
				}
			}
		})
	}
	for number := range int64(s.Rounds) {
		p.put(at(number + 2))
	}
	cancel()
	group.Wait()
	p.check(3)
}

// patience is how long a notification may take. A store that needs half of it is too slow, and one
// that is stuck fails the test.
const patience = 5 * time.Minute

// A watcher is notified of revisions that another store puts, from when it is ready until its
// context ends.
func testWatch(p *place) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	late, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	ready, notified, ended := make(chan struct{}, 1), make(chan struct{}, 1), make(chan error, 1)
	signal := func(c chan struct{}) func() {
		return func() {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	go func() { ended <- p.stores[0].Watch(ctx, signal(ready), signal(notified)) }()
	// await reports false of a store that can't notify, as it may say.
	await := func(what chan struct{}, name string) bool {
		p.Helper()
		select {
		case <-what:
			return true
		case err := <-ended:
			if !errors.Is(err, errors.ErrUnsupported) {
				p.Fatalf("the watch ended before %s: %v", name, err)
			}
		case <-late.Done():
			p.Fatalf("no %s", name)
		}
		return false
	}
	if !await(ready, "readiness") {
		return
	}
	for number := range 3 {
		next := p.next(plain("a", fmt.Sprint(number)))
		if err := p.stores[1].Put(p.ctx, p.head().ID, &next); err != nil {
			p.Fatalf("%v", err)
		}
		p.revisions = append(p.revisions, next)
		await(notified, fmt.Sprintf("notification of revision %d", next.Number))
		if head, err := p.stores[0].Head(p.ctx); err != nil || head != p.head().ID {
			p.Fatalf("the notification came before the revision: %+v, %v", head, err)
		}
	}
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			p.Errorf("the watch does not say why it ended")
		}
	case <-late.Done():
		p.Fatalf("the watch does not end")
	}
}

// A context that has ended ends every call, and nothing is written.
func testCancelled(p *place) {
	p.put(p.next(plain("a", "1")))
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	next := p.next(plain("a", "2"))
	s := p.stores[0]
	for name, call := range map[string]func() error{
		"Head":    func() error { _, err := s.Head(ctx); return err },
		"Load":    func() error { _, err := s.Load(ctx, 0); return err },
		"Put":     func() error { return s.Put(ctx, p.head().ID, &next) },
		"History": func() error { _, err := s.History(ctx, 0, 1); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			p.Errorf("%s: %v, want that the context is cancelled", name, err)
		}
	}
	p.check(2)
}

// head is the newest revision, the zero Revision if there is none.
func (p *place) head() rulestore.Revision {
	if len(p.revisions) == 0 {
		return rulestore.Revision{}
	}
	return p.revisions[len(p.revisions)-1]
}

// next is the revision after the newest with these rules, of two with one ID the last.
func (p *place) next(list ...rules.Rule) rulestore.Revision {
	return after(p.head(), max(p.head().At+1, p.at), list)
}

// after is the revision that follows one, with rules sorted by ID. Of rules with one ID the last
// stays.
func after(head rulestore.Revision, at int64, list []rules.Rule) rulestore.Revision {
	next := rulestore.Revision{Info: rulestore.Info{ID: rulestore.ID{Number: head.Number + 1, At: at}}}
	byID := func(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) }
	slices.Reverse(list)
	slices.SortStableFunc(list, byID)
	next.Rules = slices.CompactFunc(list, func(a, b rules.Rule) bool { return byID(a, b) == 0 })
	return next
}

// put makes a revision by one store or the other in turn.
func (p *place) put(next rulestore.Revision) {
	p.Helper()
	if err := p.stores[next.Number%2].Put(p.ctx, p.head().ID, &next); err != nil {
		p.Fatalf("revision %d is not made: %v", next.Number, err)
	}
	if next.Count != len(next.Rules) || next.Bytes < int64(len(next.Rules)) {
		p.Errorf("revision %d with %d rules has count %d, %d bytes", next.Number, len(next.Rules), next.Count, next.Bytes)
	}
	p.revisions, p.at = append(p.revisions, next), next.At
}

// check compares the newest revision, and those before it up to n of all, with what both stores
// have.
func (p *place) check(n int) {
	p.Helper()
	for i, s := range p.stores {
		if head, err := s.Head(p.ctx); err != nil || head != p.head().ID {
			p.Fatalf("store %d: the head is %+v, %v; want %+v", i, head, err, p.head().ID)
		}
		p.same(s, 0, p.head())
		for _, revision := range p.revisions[max(0, len(p.revisions)-n):] {
			p.same(s, revision.Number, revision)
		}
		p.notKept(s, p.head().Number+1)
	}
	p.historyIs(0, n)
}

// same checks that a store has a revision under a number.
func (p *place) same(s rulestore.Store, number int64, want rulestore.Revision) {
	p.Helper()
	got, err := s.Load(p.ctx, number)
	if err != nil || got.Info != want.Info ||
		!slices.EqualFunc(got.Rules, want.Rules, func(a, b rules.Rule) bool { return a.Equal(&b) }) {
		p.Fatalf("revision %d is\n%+v, %v; want\n%+v", number, got, err, want)
	}
}

// notKept checks that a store has no revision of a number.
func (p *place) notKept(s rulestore.Store, number int64) {
	p.Helper()
	if got, err := s.Load(p.ctx, number); !errors.Is(err, rulestore.ErrNotKept) {
		p.Fatalf("revision %d: %+v, %v; want ErrNotKept", number, got.Info, err)
	}
}

// historyIs compares a page of the history with the model's.
func (p *place) historyIs(before int64, n int) {
	p.Helper()
	var want []rulestore.Info
	for _, revision := range slices.Backward(p.revisions) {
		if len(want) < n && (before == 0 || revision.Number < before) {
			want = append(want, revision.Info)
		}
	}
	for i, s := range p.stores {
		if got, err := s.History(p.ctx, before, n); err != nil || !slices.Equal(got, want) {
			p.Errorf("store %d: %d revisions before %d are\n%+v, %v; want\n%+v", i, n, before, got, err, want)
		}
	}
}

// plain is a rule that can be enforced, with a text as its label.
func plain(id, says string) rules.Rule {
	return rules.Rule{
		ID: id, Labels: map[string]string{"says": says}, Scope: []string{rules.Global},
		Limits: []stint.Limit{stint.TokenBucket(1, stint.PerSecond(1))},
	}
}
