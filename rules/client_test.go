package rules_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

func TestWhomARuleCounts(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Name, Rule, Request, Outcome, Key string }](t, "testdata/clients.txt") {
		r, request := onPath("a", "/u/{id}/*"), rules.Request{}
		patch(t, &r, test.Rule)
		patch(t, &request, test.Request)
		h := held(t, compile(t, r), request)
		limited := test.Outcome == rules.Limited.String()
		if h.Outcome.String() != test.Outcome || h.Claim.Key != test.Key || (h.Claim.Policy != nil) != limited {
			t.Errorf("%s: %v %q, want %v %q", test.Name, h.Outcome, h.Claim.Key, test.Outcome, test.Key)
		}
	}
}

func TestOverrides(t *testing.T) {
	twenty := stint.FixedWindow(20, 1e9)
	r := rule("a")
	r.Scope, r.Missing = []string{rules.PerAPIKey, "custom:plan"}, rules.MissingIP
	r.Overrides = []rules.Override{
		{Key: "k1|free", Limits: []stint.Limit{twenty}},
		{Key: "k2|free", Unlimited: true},
		{Key: `k3|\|`, Banned: true},
	}
	for _, test := range testtable.Rows[struct {
		Rule, Key, Plan, Outcome string
		Capacity                 int
	}](t, "testdata/overrides.txt") {
		changed := r.Clone()
		patch(t, &changed, test.Rule)
		h := held(t, compile(t, changed), rules.Request{
			Address: "::1", APIKey: test.Key, Attributes: map[string]string{"plan": test.Plan},
		})
		capacity := 0
		if h.Claim.Policy != nil {
			capacity = int(h.Claim.Policy.Limit(0).Capacity)
		}
		if h.Outcome.String() != test.Outcome || capacity != test.Capacity {
			t.Errorf("%+v: %v with %d", test, h.Outcome, capacity)
		}
	}
}

// TestDistinctClientsHaveDistinctKeys draws clients whose parts look like the marks that join and
// hide parts.
func TestDistinctClientsHaveDistinctKeys(t *testing.T) {
	parts := rapid.OneOf(
		some("a", "|", `\`, `\|`, `|\`, `a|a`, `\ip:a`, `\\ip:a`, hashOf("a"), hashOf("|"), "*", "\x00", "é", strings.Repeat("x", 255), strings.Repeat("|", 200)),
		rapid.StringOfN(rapid.SampledFrom([]rune{'a', '|', '\\', 'é', 0}), 1, 4, -1),
	)
	var seen map[string][4]string
	rapid.Check(t, func(t *rapid.T) {
		seen = map[string][4]string{}
		r := rule("a")
		scopes := []string{rules.PerIP, rules.PerUser, rules.PerAPIKey, "custom:x"}
		r.Scope, r.Missing = nil, rules.MissingIP
		from := rapid.IntRange(1, 3).Draw(t, "from")
		r.Scope = scopes[from-rapid.IntRange(0, 1).Draw(t, "address"):]
		set := must.Get(rules.Compile([]rules.Rule{r}, rules.Options{}))(t)
		var m rules.Matches
		for range 60 {
			client := [4]string{parts.Draw(t, "address"), parts.Draw(t, "user"), parts.Draw(t, "key"), parts.Draw(t, "x")}
			if lacks := rapid.IntRange(0, 9).Draw(t, "lacks"); lacks >= from && lacks < 4 {
				client[lacks] = ""
			}
			request := rules.Request{Address: client[0], User: client[1], APIKey: client[2], Attributes: map[string]string{"x": client[3]}}
			must.Do(t, set.Match(&request, &m))
			h, err := m.AtTake(0)
			if err != nil || h.Outcome != rules.Limited {
				t.Fatal(h, err)
			}
			counted := client // as far as the scope looks at it
			fallback := false
			for i := range counted {
				if i < 4-len(r.Scope) {
					counted[i] = ""
				} else if client[i] == "" {
					fallback = true
				}
			}
			if fallback {
				counted = [4]string{client[0], "-", "-", "-"}
			}
			key := h.Claim.Key
			if len(key) == 0 || len(key) > bounds.MaxKeyBytes || strings.ContainsRune(key, 0) {
				t.Fatalf("%q has the key %q", counted, key)
			}
			if other, known := seen[key]; known && other != counted {
				t.Fatalf("%q and %q have the key %q", counted, other, key)
			}
			seen[key] = counted
		}
	})
}

func TestCost(t *testing.T) {
	for _, test := range testtable.Rows[struct {
		Name, Cost, Request string
		Want                int
		Says                string
	}](t, "testdata/costs.txt") {
		r, request := rule("a"), rules.Request{Address: "::1"}
		patch(t, &r.Cost, test.Cost)
		patch(t, &request, test.Request)
		h, err := tryHeld(t, compile(t, r), request)
		switch {
		case test.Want == 0 && (!errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), test.Says)):
			t.Errorf("%s: %v, want a fault that says %q", test.Name, err, test.Says)
		case test.Want != 0 && (err != nil || h.Claim.Permits != int64(test.Want)):
			t.Errorf("%s: %d, %v, want %d", test.Name, h.Claim.Permits, err, test.Want)
		}
	}
}
