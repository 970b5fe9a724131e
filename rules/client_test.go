package rules_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

func sha(text string) string {
	sum := sha256.Sum256([]byte(text))
	return `\sha256:` + hex.EncodeToString(sum[:])
}

func TestWhomARuleCounts(t *testing.T) {
	full := rules.Request{
		Path: "/u/7/posts", Address: "192.0.2.1", User: "ann", APIKey: "s3cret",
		Attributes: map[string]string{"plan": "free", "odd": `a|b\`, "bytes": "a\x00b"},
	}
	long := full
	long.User = strings.Repeat("x", bounds.MaxKeyBytes+1)
	for _, test := range []struct {
		name    string
		scope   string
		missing rules.Missing
		request rules.Request
		want    rules.Outcome
		key     string
	}{
		{"global", "global", 0, rules.Request{Path: "/u/7/posts"}, rules.Limited, "*"},
		{"address", "per_ip", 0, full, rules.Limited, "192.0.2.1"},
		{"user", "per_user", rules.MissingSkip, full, rules.Limited, "ann"},
		{"API key", "per_api_key", rules.MissingSkip, full, rules.Limited, sha("s3cret")},
		{"attribute", "custom:plan", rules.MissingSkip, full, rules.Limited, "free"},
		{"parameter", "custom:id", 0, full, rules.Limited, "7"},
		{"parameter with a slash", "custom:id", 0, rules.Request{Path: "/u/a%2Fb/posts"}, rules.Limited, "a/b"},
		{"parameter with both slashes", "custom:id", 0, rules.Request{Path: `/u/a\b%2Fc/posts`}, rules.Limited, `a\\b/c`},
		{"parameter of dots", "custom:id", 0, rules.Request{Path: "/u/%2e%2e/posts/"}, rules.Limited, ".."},
		{"parameter of the canonical variant", "custom:id", 0, rules.Request{Path: "/x/../u/8/../7/posts"}, rules.Limited, "7"},
		{"escaped", "custom:odd", rules.MissingSkip, full, rules.Limited, `a\|b\\`},
		{"bytes", "custom:bytes", rules.MissingSkip, full, rules.Limited, sha("a\x00b")},
		{"composite", "per_ip custom:id per_user", rules.MissingSkip, full, rules.Limited, "192.0.2.1|7|ann"},
		{"composite with an API key", "per_api_key custom:odd", rules.MissingSkip, full, rules.Limited, sha("s3cret") + `|a\|b\\`},
		{"long", "per_user", rules.MissingSkip, long, rules.Limited, sha(long.User)},
		{"long composite", "per_user per_ip", rules.MissingSkip, long, rules.Limited, sha(long.User + "|192.0.2.1")},

		{"no address", "per_ip", 0, rules.Request{Path: "/u/7/posts"}, rules.Lacking, ""},
		{"no address, skipped", "per_ip", rules.MissingSkip, rules.Request{Path: "/u/7/posts"}, rules.Skipped, ""},
		{"no user: skip", "per_user", rules.MissingSkip, rules.Request{Path: "/u/7/posts"}, rules.Skipped, ""},
		{"no user: deny", "per_user", rules.MissingDeny, rules.Request{Path: "/u/7/posts"}, rules.Lacking, ""},
		{"no user: ip", "per_user", rules.MissingIP, rules.Request{Path: "/u/7/posts", Address: "192.0.2.1"}, rules.Limited, `\ip:192.0.2.1`},
		{"no user: no ip", "per_user", rules.MissingIP, rules.Request{Path: "/u/7/posts"}, rules.Lacking, ""},
		{"an empty parameter", "custom:id", 0, rules.Request{Path: "/u//posts"}, rules.Lacking, ""},
		{"one part of two", "per_ip per_user", rules.MissingIP, rules.Request{Path: "/u/7/posts", Address: "192.0.2.1"}, rules.Limited, `\ip:192.0.2.1`},
		{"a user named so", "per_user", rules.MissingIP, rules.Request{Path: "/u/7/posts", User: `\ip:192.0.2.1`}, rules.Limited, `\\ip:192.0.2.1`},
	} {
		r := onPath("a", "/u/{id}/*")
		r.Scope, r.Missing = strings.Fields(test.scope), test.missing
		h := held(t, compile(t, r), test.request)
		if h.Outcome != test.want || h.Claim.Key != test.key || (h.Claim.Policy != nil) != (test.want == rules.Limited) {
			t.Errorf("%s: %v %q, want %v %q", test.name, h.Outcome, h.Claim.Key, test.want, test.key)
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
	banned, unlimited := r, r
	banned.Limits, banned.Banned = nil, true
	unlimited.Limits, unlimited.Unlimited = nil, true
	for _, test := range []struct {
		rule      rules.Rule
		key, plan string
		want      rules.Outcome
		capacity  int64
	}{
		{r, "k0", "free", rules.Limited, 10},
		{r, "k1", "free", rules.Limited, 20},
		{r, "k1", "paid", rules.Limited, 10},
		{r, "k2", "free", rules.Unlimited, 0},
		{r, "k3", "|", rules.Banned, 0},
		{r, "", "free", rules.Limited, 10},
		{banned, "k0", "free", rules.Banned, 0},
		{banned, "k1", "free", rules.Limited, 20},
		{banned, "k2", "free", rules.Unlimited, 0},
		{unlimited, "k0", "free", rules.Unlimited, 0},
		{unlimited, "k1", "free", rules.Limited, 20},
		{unlimited, "k3", "|", rules.Banned, 0},
	} {
		h := held(t, compile(t, test.rule), rules.Request{Address: "::1", APIKey: test.key, Attributes: map[string]string{"plan": test.plan}})
		if h.Outcome != test.want || h.Outcome == rules.Limited && h.Claim.Policy.Limit(0).Capacity != test.capacity {
			t.Errorf("%s|%s: %v, want %v with %d", test.key, test.plan, h.Outcome, test.want, test.capacity)
		}
	}
}

// TestDistinctClientsHaveDistinctKeys draws clients whose parts look like the marks that join and
// hide parts.
func TestDistinctClientsHaveDistinctKeys(t *testing.T) {
	parts := rapid.OneOf(
		some("a", "|", `\`, `\|`, `|\`, `a|a`, `\ip:a`, `\\ip:a`, sha("a"), sha("|"), "*", "\x00", "é", strings.Repeat("x", 255), strings.Repeat("|", 200)),
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

func TestAPIKeysAreNeverShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := "S3" + rapid.StringMatching(`[A-Z]{6,300}`).Draw(t, "key")
		r := rule("a")
		r.Missing = rules.MissingDeny
		r.Scope = rapid.SampledFrom([][]string{{rules.PerAPIKey}, {rules.PerUser, rules.PerAPIKey}, {rules.PerAPIKey, rules.PerIP}}).Draw(t, "scope")
		set := must.Get(rules.Compile([]rules.Rule{r}, rules.Options{}))(t)
		var m rules.Matches
		must.Do(t, set.Match(&rules.Request{APIKey: key, User: "u", Address: "::1"}, &m))
		if h, err := m.AtTake(0); err != nil || h.Outcome != rules.Limited || strings.Contains(h.Claim.Key, key) {
			t.Fatalf("%q is in the claim %+v, %v", key, h, err)
		}
	})
}

func TestCost(t *testing.T) {
	for _, test := range []struct {
		name  string
		cost  rules.Cost
		lines []string
		fact  string
		want  int64 // 0: an error
		says  string
	}{
		{"none", rules.Cost{}, nil, "", 1, ""},
		{"fixed", rules.Cost{Permits: 7}, nil, "", 7, ""},
		{"header", rules.Cost{Header: "x-cost"}, []string{"5"}, "", 5, ""},
		{"header's default", rules.Cost{Header: "x-cost", Permits: 3}, nil, "", 3, ""},
		{"empty header", rules.Cost{Header: "x-cost", Permits: 3}, []string{""}, "", 3, ""},
		{"attribute", rules.Cost{Attribute: "size"}, nil, "6", 6, ""},
		{"attribute's default", rules.Cost{Attribute: "size"}, nil, "", 1, ""},
		{"greatest", rules.Cost{Attribute: "size"}, nil, "1000000000", 1000000000, ""},
		{"above", rules.Cost{Attribute: "size"}, nil, "1000000001", 0, `size is "1000000001"; allowed: a cost, 1 to 1000000000`},
		{"zero", rules.Cost{Header: "x-cost"}, []string{"0"}, "", 0, `X-Cost is "0"`},
		{"negative", rules.Cost{Header: "x-cost"}, []string{"-1"}, "", 0, `X-Cost is "-1"`},
		{"text", rules.Cost{Header: "x-cost"}, []string{"1e3"}, "", 0, `X-Cost is "1e3"`},
		{"two lines", rules.Cost{Header: "x-cost"}, []string{"1", "2"}, "", 0, `X-Cost is "2 lines"; allowed: one`},
		{"long", rules.Cost{Header: "x-cost"}, []string{strings.Repeat("9", 500)}, "", 0, strings.Repeat("9", 64) + `";`},
	} {
		r := rule("a")
		r.Cost = test.cost
		h, err := tryHeld(t, compile(t, r), rules.Request{
			Address: "::1", Header: http.Header{"X-Cost": test.lines}, Attributes: map[string]string{"size": test.fact},
		})
		switch {
		case test.want == 0 && (!errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: %v, want a fault that says %q", test.name, err, test.says)
		case test.want != 0 && (err != nil || h.Claim.Permits != test.want):
			t.Errorf("%s: %d, %v, want %d", test.name, h.Claim.Permits, err, test.want)
		}
	}
}
