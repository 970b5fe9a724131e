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
	set := compile(t, relatives(t, "models", `{"org": {"Missing": "ip"}, "team": {"Missing": "ip"}}`)...)
	if claims, err := set.ClientClaims("team", `\ip:192.0.2.1`); err != nil || len(claims) != 0 {
		t.Errorf("%v, %v", claims, err)
	}
}
