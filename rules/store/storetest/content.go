package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/store"
)

// A place begins without revisions.
func testEmpty(p *place) {
	p.check(5)
	p.historyIs(5, 3, []int64{})
}

// What one store writes, the other reads: rules, authors.
func testRoundTrip(p *place) {
	test := p.t
	author := rapid.Custom(func(t *rapid.T) store.Author {
		text := rapid.String()
		return store.Author{By: text.Draw(t, "by"), Action: text.Draw(t, "action"), Comment: text.Draw(t, "comment")}
	})
	rapid.Check(p.test, func(r *rapid.T) {
		p.t = r
		next := p.next(rapid.SliceOfN(Rules(), 0, 4).Draw(r, "rules")...)
		next.Author = author.Draw(r, "author")
		p.put(next)
		p.check(1)
	})
	p.t = test
}

// Text that means something to the server is kept like any other.
func testOddText(p *place) {
	odd := []string{
		"", " ", "$", "$set", "$where", ".", "a.b", "..", "_id", "__proto__", "\x00", "\n", "\r\n", "\t", `"`, `'`, `\`, `\u0000`, "{}", "{tag}", "[1]", "%s", "%25",
		"]]", "--", "<&>", "null", "0", "1e999", "ä", "日本", "\u2028", "\ufeff", "\ufffd", "🙂", "\x7f", strings.Repeat("long ", 1000),
	}
	rule := plain("odd", "text")
	rule.Match.Headers = map[string]string{}
	for i, text := range odd {
		rule.Labels[text], rule.Match.Headers[text] = text, text
		rule.Overrides = append(rule.Overrides, rules.Override{Key: text + "|", Limits: rule.Limits})
		other := plain(fmt.Sprintf("odd-%d.:_", i), text)
		other.Scope = []string{rules.Custom(text + "|")}
		next := p.next(other)
		next.By, next.Action, next.Comment = text, text, text
		p.put(next)
	}
	p.put(p.next(rule))
	p.put(p.next(plain(".", "dot"), plain("..", "dots"), plain(":", "colon"), plain("-", "minus"), plain("A", "large"), plain("a", "small"), plain("0", "number"), plain("_id", "name")))
	p.put(p.next())
	p.check(len(p.revisions))
}

// IDs are kept to the microsecond.
func testIDs(p *place) {
	for _, at := range []int64{1, dawn, dawn + 1, 4_000_000_000_000_000, 9_000_000_000_000_001} {
		next := p.next(plain("a", fmt.Sprint(at)))
		next.At = at
		p.put(next)
		p.check(2)
	}
}

// Only the number after the newest can be put, once, by whichever store, and only after the
// revision that is the newest, not after another of its number.
func testConflict(p *place) {
	refused := func(expected store.ID, number int64) {
		p.t.Helper()
		for i, s := range p.stores {
			next := p.next(plain("other", "refused"))
			next.Number, next.At = number, next.At+5
			if err := s.Put(p.ctx, expected, &next); !errors.Is(err, store.ErrConflict) {
				p.t.Errorf("store %d: revision %d after %+v where %+v is the newest: %v, want ErrConflict", i, number, expected, p.head().ID, err)
			}
		}
		p.check(10)
	}
	refused(store.ID{Number: 1, At: dawn}, 2)
	refused(store.ID{}, 2)
	for number := range 3 {
		p.put(p.next(plain("a", fmt.Sprint(number))))
		head := p.head().ID
		for _, other := range []int64{head.Number - 1, head.Number, head.Number + 2} {
			refused(store.ID{Number: other - 1, At: head.At}, other)
			refused(head, other)
		}
		for _, at := range []int64{head.At - 1, head.At + 1, head.At + 1_000_000, 1, 0} {
			refused(store.ID{Number: head.Number, At: at}, head.Number+1)
		}
		refused(store.ID{}, 1)
		refused(store.ID{}, head.Number+1)
	}
}

// A place that lost its data has no revisions. Numbers begin anew, and revisions from before are not
// taken for those of one number.
func testLost(p *place) {
	if p.Lose == nil {
		return
	}
	for i := range 3 {
		p.put(p.next(plain("a", fmt.Sprint(i))))
	}
	lost := p.revisions
	p.Lose()
	p.revisions = nil
	p.check(5)
	refused := func() {
		p.t.Helper()
		for _, was := range lost {
			next := after(was, []rules.Rule{plain("late", "")})
			if err := p.stores[0].Put(p.ctx, was.ID, &next); !errors.Is(err, store.ErrConflict) {
				p.t.Errorf("revision %d after one that was lost: %v, want ErrConflict", next.Number, err)
			}
		}
	}
	refused()
	first := p.next(plain("b", ""))
	first.At = lost[0].At + 1
	p.put(first)
	refused()
	p.check(5)
	for _, s := range p.stores {
		p.notKept(s, lost[2].Number)
	}
}

// History is read by pages.
func testHistory(p *place) {
	for i := range 130 {
		p.put(p.next(plain("a", fmt.Sprint(i))))
	}
	for _, page := range []struct {
		before int64
		n      int
		want   []int64
	}{
		{0, 1, countdown(130, 130)},
		{0, 3, countdown(130, 128)},
		{131, 2, countdown(130, 129)},
		{1000, 2, countdown(130, 129)},
		{130, 2, countdown(129, 128)},
		{100, 50, countdown(99, 50)},
		{3, 50, countdown(2, 1)},
		{2, 1, countdown(1, 1)},
		{1, 50, countdown(0, 1)},
		{0, store.KeptRevisions, countdown(130, 1)},
		{121, store.KeptRevisions, countdown(120, 1)},
	} {
		p.historyIs(page.before, page.n, page.want)
	}
	p.check(130)
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
	const kept, made = store.KeptRevisions, store.KeptRevisions + 120
	for i := range made {
		p.put(p.next(plain(fmt.Sprintf("rule-%d", i%7), fmt.Sprint(i))))
	}
	p.check(5)
	p.historyIs(0, 2*made, countdown(made, made-kept+1))
	p.historyIs(made-kept+2, 5, countdown(made-kept+1, made-kept+1))
	for _, s := range p.stores {
		p.notKept(s, made-kept)
		if _, err := s.Load(p.ctx, made-kept+1); err != nil {
			p.t.Errorf("the oldest: %v", err)
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
	if n := len(list); err != nil || n < store.KeptBytes/size-1 || n >= made || !slices.Equal(numbersOf(list), countdown(made, int64(made-n+1))) {
		p.t.Errorf("kept are %v, %v", numbersOf(list), err)
	}
	p.notKept(p.stores[0], 1)
}
