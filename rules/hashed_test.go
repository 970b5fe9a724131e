package rules_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return `\sha256:` + hex.EncodeToString(sum[:])
}

// An override that names an API key by its SHA-256 holds for requests with that key only.
func TestOverridesByHash(t *testing.T) {
	limits := []stint.Limit{stint.FixedWindow(5, time.Minute)}
	set := compile(t, []rules.Rule{
		{ID: "one", Scope: []string{rules.PerAPIKey}, Missing: rules.MissingSkip, Limits: limits, Overrides: []rules.Override{
			{Key: hashOf("s3cret"), Unlimited: true}, {Key: hashOf(`a\|\\b`), Banned: true}, {Key: "plain", Banned: true},
		}},
		{ID: "two", Scope: []string{rules.PerIP, rules.PerAPIKey, rules.PerUser}, Missing: rules.MissingSkip, Limits: limits, Overrides: []rules.Override{
			{Key: "192.0.2.1|" + hashOf("s3cret") + `|a\|nn`, Unlimited: true},
		}},
	}...)
	for _, test := range []struct {
		key, user string
		one, two  rules.Outcome
	}{
		{"s3cret", "a|nn", rules.Unlimited, rules.Unlimited},
		{"s3cret", "ben", rules.Unlimited, rules.Limited},
		{`a|\b`, "a|nn", rules.Banned, rules.Limited},
		{"plain", "a|nn", rules.Banned, rules.Limited},
		{"other", "a|nn", rules.Limited, rules.Limited},
		{hashOf("s3cret"), "a|nn", rules.Limited, rules.Limited}, // knowing the hash is not having the key
		{"", "a|nn", rules.Skipped, rules.Skipped},
	} {
		var m rules.Matches
		request := rules.Request{Method: "GET", Path: "/", Address: "192.0.2.1", APIKey: test.key, User: test.user}
		must.Do(t, set.Match(&request, &m))
		for i, want := range []rules.Outcome{test.one, test.two} {
			if matched, err := m.AtTake(i); err != nil || matched.Outcome != want {
				t.Errorf("key %q, user %q: rule %d is %v, %v; want %v", test.key, test.user, i, matched.Outcome, err, want)
			}
		}
	}
}

// However a client is named, it has one state, one override, and the limits of that.
func TestClientsByHash(t *testing.T) {
	rule := rules.Rule{
		ID: "key", Scope: []string{rules.PerUser, rules.PerAPIKey}, Missing: rules.MissingSkip,
		Limits: []stint.Limit{stint.FixedWindow(5, time.Minute)},
	}
	names := []string{"ann|s3cret", "ann|" + hashOf("s3cret")}
	for _, override := range names {
		rule.Overrides = []rules.Override{{Key: override, Limits: []stint.Limit{stint.FixedWindow(9, time.Minute)}}}
		set := compile(t, rule)
		for _, client := range names {
			claims, err := set.ClientClaims("key", client)
			if err != nil || len(claims) != 2 || claims[0].Key != names[1] || claims[1].Key != names[1] || claims[1].Policy.Limit(0).Capacity != 9 {
				t.Errorf("%s with the override %s: %+v, %v", client, override, claims, err)
			}
		}
		if claims, err := set.ClientClaims("key", "ben|s3cret"); err != nil || len(claims) != 1 {
			t.Errorf("another client: %+v, %v", claims, err)
		}
	}
	rule.Overrides = []rules.Override{{Key: names[0], Banned: true}, {Key: names[1], Banned: true}}
	if _, err := rules.Compile([]rules.Rule{rule}, rules.Options{}); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "each client once") {
		t.Errorf("one client twice: %v", err)
	}
}
