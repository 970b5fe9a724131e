package registrytest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

// A place begins without rules and versions.
func testEmpty(t *testing.T, open Open) {
	p := newPlace(t, open)
	p.check()
	p.checkVersions(1)
	p.versionsAre(5, 3, []int64{})
}

// What is written by one backend is read by the other as it was: rules, changes, authors.
func testRoundTrip(t *testing.T, open Open) {
	p := newPlace(t, open)
	author := rapid.Custom(func(t *rapid.T) registry.Author {
		text := rapid.String()
		return registry.Author{By: text.Draw(t, "by"), Action: text.Draw(t, "action"), Comment: text.Draw(t, "comment")}
	})
	rapid.Check(t, func(r *rapid.T) {
		p.t = r
		put := rapid.SliceOfN(Rules(), 1, 3).Draw(r, "put")
		var deleted []string
		if len(p.rules) > 0 {
			deleted = rapid.SliceOfN(rapid.SampledFrom(slices.Sorted(maps.Keys(p.rules))), 0, 2).Draw(r, "deleted")
		}
		v := p.next(put, deleted...)
		v.Author = author.Draw(r, "author")
		p.commit(v)
		p.check()
		p.checkVersions(2)
	})
}

// Text that means something to what keeps it is kept as any other.
func testOddText(t *testing.T, open Open) {
	p := newPlace(t, open)
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
		other.Match.Paths, other.Scope = []string{text + "/"}, []string{rules.Custom(text + "|")}
		v := p.next([]rules.Rule{other})
		v.By, v.Action, v.Comment = text, text, text
		p.commit(v)
	}
	p.commit(p.next([]rules.Rule{rule}))
	p.commit(p.next([]rules.Rule{plain(".", "dot"), plain("..", "dots"), plain(":", "colon"), plain("-", "minus"), plain("A", "large"), plain("a", "small"), plain("0", "number"), plain("_id", "name")}))
	p.check()
	p.checkVersions(len(p.versions))
	p.commit(p.next(nil, "odd", ".", "A", "odd-3.:_"))
	p.check()
	p.commit(p.next(nil, slices.Collect(maps.Keys(p.rules))...))
	p.check()
	p.checkVersions(len(p.versions))
}

// A head is kept to the microsecond, so that versions of one number are told apart when the
// first one was lost.
func testHeads(t *testing.T, open Open) {
	for _, at := range []int64{1, dawn, dawn + 1, 4_000_000_000_000_000, 9_000_000_000_000_001} {
		p := newPlace(t, open)
		for _, number := range []int64{1, 2} {
			v := p.next([]rules.Rule{plain("a", fmt.Sprint(number))})
			v.At = at + number
			p.commit(v)
			p.check()
		}
		p.checkVersions(2)
	}
}

// Many rules are one version, and read as one.
func (s Size) testManyRules(t *testing.T, open Open) {
	p := newPlace(t, open)
	var list []rules.Rule
	var half []string
	for i := range s.rules {
		rule := plain(fmt.Sprintf("rule-%d", i), "something that is a little longer")
		rule.Match.Paths = []string{fmt.Sprintf("/things/%d/{id}/**", i)}
		list = append(list, rule)
		if i%2 == 0 {
			half = append(half, rule.ID)
		}
	}
	p.commit(p.next(list))
	p.check()
	p.commit(p.next(list[1:2], half...))
	p.check()
	p.checkVersions(2)
}

// A version may be as large as an edit may be, and a rule as a rule.
func (s Size) testLargeVersions(t *testing.T, open Open) {
	p := newPlace(t, open)
	const margin = 2000 // for what is around the texts
	large := plain("large", strings.Repeat("x", registry.MaxRuleBytes-margin))
	var list []rules.Rule
	for i := range 64 {
		list = append(list, plain(fmt.Sprintf("rule-%d", i), strings.Repeat("y", (s.bytes-margin)/64-256)))
	}
	p.commit(p.next([]rules.Rule{large}))
	p.commit(p.next(nil, "large"))
	p.commit(p.next(list))
	p.check()
	p.checkVersions(3)
}
