package rules_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/rules"
)

// models are rules by which each API key has floors for some models.
func models() (key, model rules.Rule) {
	key, model = organisation()
	key.Scope, key.Missing = []string{rules.PerAPIKey}, rules.MissingSkip
	model.Scope = []string{rules.PerAPIKey, rules.Custom("model")}
	model.Guaranteed = map[string]rules.Floor{
		"large": {Capacity: 30, Refill: stint.PerSecond(3)}, `a\|b`: {Capacity: 20, Refill: stint.PerSecond(2)},
	}
	return key, model
}

// Floors that leave out the scope of the rule they are within are those of each of its clients.
func TestFloorsOfEachOuterClient(t *testing.T) {
	key, model := models()
	long := strings.Repeat("x", bounds.MaxKeyBytes)
	model.Guaranteed[long] = rules.Floor{Capacity: 1, Refill: stint.PerSecond(1)}
	set := compile(t, key, model)
	if warnings := set.Warnings("team", false); warnings != nil {
		t.Error(warnings)
	}
	ask := func(apiKey, model string) []string {
		return claimsOf(t, set, "team", rules.Request{APIKey: apiKey, Attributes: map[string]string{"model": model}})
	}
	for _, apiKey := range []string{"k|1", "k2"} {
		outer := rules.HashedClient(rules.JoinKey(apiKey))
		for name, shown := range map[string]string{"large": "large", "a|b": `a\|b`, long: ""} {
			client := outer + "|" + shown
			if shown == "" {
				client = rules.HashedClient(outer + "|" + name)
			}
			want := []string{"either rule/team " + client + " keeps 0 guaranteed", "with rule/org " + outer + " keeps 0 guaranteed", "else rule/org " + outer + " keeps 51 borrowed"}
			if got := ask(apiKey, name); !slices.Equal(got, want) {
				t.Errorf("%s, %.9s: %q", apiKey, name, got)
			}
			claims, err := set.ClientClaims("team", rules.JoinKey(apiKey, name))
			if err != nil || len(claims) != 1 || claims[0].Key != client {
				t.Errorf("named as %s, %.9s: %v, %v", apiKey, name, claims, err)
			}
			if h, err := set.ClientMatch("team", rules.JoinKey(apiKey, name), nil); err != nil || !slices.Equal(h.Vias, []string{rules.ViaGuaranteed}) {
				t.Errorf("of %s, %.9s: %+v, %v", apiKey, name, h, err)
			}
		}
		if got := ask(apiKey, "small"); !slices.Equal(got, []string{"must rule/org " + outer + " keeps 51 borrowed"}) {
			t.Errorf("without a floor: %q", got)
		}
	}
}

// A client that is counted by its address has none of the floors.
func TestFloorsOfFallbacks(t *testing.T) {
	key, model := models()
	key.Missing, model.Missing = rules.MissingIP, rules.MissingIP
	set := compile(t, key, model)
	got := claimsOf(t, set, "team", rules.Request{Address: "192.0.2.1", Attributes: map[string]string{"model": "large"}})
	if !slices.Equal(got, []string{`must rule/org \ip:192.0.2.1 keeps 50 borrowed`}) {
		t.Errorf("got %q", got)
	}
	if claims, err := set.ClientClaims("team", `\ip:192.0.2.1`); err != nil || len(claims) != 0 {
		t.Errorf("%v, %v", claims, err)
	}
}

func TestFaultsOfOuterClients(t *testing.T) {
	floor := rules.Floor{Capacity: 1, Refill: stint.PerSecond(1)}
	for _, test := range []struct {
		name  string
		spoil func(key, model *rules.Rule)
		fault string
		says  string
	}{
		{"sound", func(_, _ *rules.Rule) {}, "", ""},
		{
			"another order", func(_, m *rules.Rule) { slices.Reverse(m.Scope) }, "team:guaranteed",
			"guaranteed is of clients by the end of the scope; allowed: clients with all parts of the scope, or with those behind the scope of rule org, if this one begins with it",
		},
		{"another scope", func(k, _ *rules.Rule) { k.Scope = []string{rules.PerUser} }, "team:guaranteed", "or with those behind the scope of rule org"},
		{"weights", func(k, m *rules.Rule) {
			k.Scope = []string{rules.PerUser}
			m.Guaranteed, m.Weights = nil, map[string]int64{"large": 1}
		}, "team:weights", "weights is of clients by the end of the scope"},
		{
			"one in full", func(_, m *rules.Rule) { m.Guaranteed["0-s3cret|large"] = floor }, "team:guaranteed",
			`guaranteed is "one of 14 bytes"; allowed: 2 parts joined by |, as the scope has, or in all clients here those behind the scope of rule org`,
		},
		{"one wrong among others", func(k, m *rules.Rule) {
			k.Scope, m.Scope = []string{rules.PerUser}, []string{rules.PerUser, rules.Custom("model")}
			m.Guaranteed[""], m.Guaranteed[`a\b`], m.Guaranteed["A|large"] = floor, floor, floor
			m.Guaranteed["other"] = floor
		}, `team:guaranteed. team:guaranteed.A|large team:guaranteed.a\b`, `guaranteed.A|large is "A|large"; allowed: 2 parts joined by |`},
		{"a parameter of a path", func(k, m *rules.Rule) {
			k.Scope, m.Scope, m.Match.Paths = []string{rules.Custom("id")}, []string{rules.Custom("id"), rules.Custom("model")}, one("/o/{id}/**")
		}, "team:guaranteed", "and none of it is a parameter of a path"},
		{"twice", func(k, m *rules.Rule) {
			k.Scope, m.Scope = []string{rules.PerUser}, []string{rules.PerUser, rules.Custom("model"), rules.PerAPIKey}
			m.Guaranteed = map[string]rules.Floor{"m|s3cret": floor, "m|" + rules.HashedClient("s3cret"): floor}
		}, "team:guaranteed", "each client once"},
		{"a part of two is missing", func(_, m *rules.Rule) { m.Scope = append(m.Scope, rules.PerUser) }, "team:guaranteed", "of clients by the end of the scope"},
	} {
		t.Run(test.name, func(t *testing.T) {
			key, model := models()
			test.spoil(&key, &model)
			_, err := rules.Compile([]rules.Rule{key, model}, rules.Options{})
			checkFaults(t, err, test.fault, test.says)
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the fault has the key: %v", err)
			}
		})
	}
}
