package rules_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

var ends = time.Date(2026, time.December, 24, 18, 0, 0, 0, time.UTC)

// ending is a set of one rule, that bans a client until the end, and admits more of its network for ever.
func ending(t *testing.T) *rules.Set {
	t.Helper()
	return must.Get(rules.Compile([]rules.Rule{{
		ID: "a", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(1, time.Hour)},
		Overrides: []rules.Override{
			{Key: "192.0.2.1", Banned: true, Until: ends},
			{Key: "192.0.2.0/24", Limits: []stint.Limit{stint.FixedWindow(50, time.Hour)}},
			{Key: "198.51.100.0/24", Unlimited: true, Until: ends},
		},
	}}, rules.Options{}))(t)
}

// An override holds until its end, and not at it; then that of a longer network does, or the rule's limits.
func TestOverrideEnds(t *testing.T) {
	set := ending(t)
	for _, c := range []struct {
		address       string
		before, after rules.Outcome
		limit         int64 // after
	}{
		{"192.0.2.1", rules.Banned, rules.Limited, 50},
		{"198.51.100.7", rules.Unlimited, rules.Limited, 1},
		{"192.0.2.9", rules.Limited, rules.Limited, 50},
		{"203.0.113.1", rules.Limited, rules.Limited, 1},
	} {
		for now, want := range map[time.Time]rules.Outcome{
			ends.Add(-time.Microsecond): c.before, ends: c.after, ends.Add(time.Hour): c.after, {}: c.before,
		} {
			m := rules.Matches{Now: func() time.Time { return now }}
			if now.IsZero() { // nobody tells the time: none has ended
				m.Now = nil
			}
			must.Do(t, set.Match(&rules.Request{Path: "/", Address: c.address}, &m))
			got, err := m.AtTake(0)
			shown, errShown := set.ClientMatch("a", c.address, m.Now)
			if err != nil || errShown != nil || got.Outcome != want || shown.Outcome != want {
				t.Errorf("%s at %v: %v and %v, want %v", c.address, now, got.Outcome, shown.Outcome, want)
			}
			if want == rules.Limited && !now.Before(ends) && got.Claim.Policy.Limit(0).Capacity != c.limit {
				t.Errorf("%s at %v: limit %d, want %d", c.address, now, got.Claim.Policy.Limit(0).Capacity, c.limit)
			}
		}
	}
	// What it may have counted is found by a reset, ended or not.
	claims, err := set.ClientClaims("a", "192.0.2.1")
	if err != nil || len(claims) != 2 {
		t.Errorf("%v, %v", claims, err)
	}
}

// A client of which several overrides held, one after another, has left state under each of them.
func TestClaimsOfOverrides(t *testing.T) {
	named := func(name string) []stint.Limit { return []stint.Limit{stint.FixedWindow(3, time.Minute).Named(name)} }
	set := must.Get(rules.Compile([]rules.Rule{{
		ID: "a", Scope: []string{rules.PerIP}, Limits: named("own"), Overrides: []rules.Override{
			{Key: "192.0.2.1", Limits: named("client"), Until: ends},
			{Key: "192.0.2.0/24", Limits: named("24")},
			{Key: "192.0.0.0/8", Limits: named("8")},
			{Key: "2001:db8::/64", Limits: named("64")},
			{Key: "2001:db8::/32", Limits: named("32")},
		},
	}}, rules.Options{}))(t)
	for client, want := range map[string][]string{
		"192.0.2.1": {"own", "client", "24", "8"}, "192.0.3.1": {"own", "8"}, "2001:db8::/64": {"own", "64", "32"}, "10.0.0.1": {"own"},
	} {
		var got []string
		for _, claim := range must.Get(set.ClientClaims("a", client))(t) {
			got = append(got, claim.Policy.Limit(0).Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has claims of %q, want %q", client, got, want)
		}
	}
}

// The time is asked for only about clients of overrides that end.
func TestTimeOfOverrides(t *testing.T) {
	set, asked := ending(t), 0
	m := rules.Matches{Now: func() time.Time { asked++; return ends }}
	for address, want := range map[string]int{"192.0.2.1": 1, "192.0.2.9": 0, "203.0.113.1": 0} {
		asked = 0
		must.Do(t, set.Match(&rules.Request{Path: "/", Address: address}, &m))
		if _, err := m.AtTake(0); err != nil || asked != want {
			t.Errorf("%s: the time was asked for %d times, want %d (%v)", address, asked, want, err)
		}
	}
}

// Rules differ by when their overrides end.
func TestUntilOfRules(t *testing.T) {
	with := func(until time.Time) rules.Rule {
		return rules.Rule{
			ID: "a", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(1, time.Hour)},
			Overrides: []rules.Override{{Key: "192.0.2.1", Banned: true, Until: until}},
		}
	}
	one, same, other := with(ends), with(ends.In(time.FixedZone("", 3600))), with(ends.Add(1))
	if !one.Equal(&same) || one.Equal(&other) {
		t.Error("rules are compared by when overrides end")
	}
}
