package rules_test

import (
	"fmt"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// The lists of a request's rules don't overwrite one another, however long they are, and whichever request was before.
func TestListsOfMatches(t *testing.T) {
	org, team := organisation()
	several := func(id string) rules.Rule {
		r := rule(id)
		r.Limits = []stint.Limit{stint.TokenBucket(10, stint.PerSecond(1)).Named("a"), stint.TokenBucket(11, stint.PerSecond(1)).Named("b")}
		r.Costs = []rules.Cost{{Permits: 1}, {Permits: 2}}
		return r
	}
	paid, extra := rule("paid"), rule("extra")
	paid.Otherwise = "extra"
	set := compile(t, org, team, users(), several("a"), several("z"), paid, extra)
	requests := []rules.Request{
		{Address: "192.0.2.1", User: "ann", Attributes: map[string]string{"team": "search"}},
		{Address: "192.0.2.2", Attributes: map[string]string{"team": "ads"}},
		{Address: "192.0.2.3", User: "bob", Attributes: map[string]string{"team": "none"}},
	}
	var m rules.Matches
	for range 5 {
		for i := range requests {
			must.Do(t, set.Match(&requests[i], &m))
			var got []rules.Matched
			for j := range m.Len() {
				matched := must.Get(m.AtTake(j))(t)
				got = append(got, matched)
			}
			for j := range got {
				var fresh rules.Matches
				must.Do(t, set.Match(&requests[i], &fresh))
				if want, err := fresh.AtTake(j); err != nil || fmt.Sprint(got[j]) != fmt.Sprint(want) {
					t.Errorf("request %d: %+v, want %+v, %v", i, got[j], want, err)
				}
			}
		}
	}
}
