package config_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/config"
)

// The headers of attributes come from a mapping, a variable or a flag, of which the last one given has them all.
func TestIdentityAttributes(t *testing.T) {
	variable := env(map[string]string{"STINT_IDENTITY_ATTRIBUTES": "team=x-team"})
	for want, sources := range map[string]config.Sources{
		"plan X-Plan": {File: write(t, "identity: {attributes: {plan: X-Plan}}\n")},
		"team x-team": {File: write(t, "identity: {attributes: {plan: X-Plan}}\n"), Env: variable},
		"tier X-Tier": {Env: variable, Flags: map[string]string{"identity-attributes": "tier=X-Tier"}},
		"":            {File: write(t, "identity: {attributes: {}}\n")},
	} {
		got := must.Get(config.Load(sources))(t)
		name, header, _ := strings.Cut(want, " ")
		if all := got.Identity.Attributes; name == "" && len(all) > 0 || name != "" && !maps.Equal(all, map[string]string{name: header}) {
			t.Errorf("%v, want %q", all, want)
		}
	}
	several := config.Sources{Flags: map[string]string{"identity-attributes": "plan=X-Plan, team=X-Team"}}
	if got, err := config.Load(several); err != nil || len(got.Identity.Attributes) != 2 || got.Identity.Attributes["team"] != "X-Team" {
		t.Errorf("%v, %v", got.Identity.Attributes, err)
	}
}

// Every fault has its place.
func TestWrongIdentityAttributes(t *testing.T) {
	many := "identity:\n  attributes:\n"
	for _, letter := range "abcdefghijklmnopq" {
		many += "    " + string(letter) + ": X-" + string(letter) + "\n"
	}
	refuses(t, map[string]string{
		"identity:\n  user: X-User\n  attributes:\n    plan: x-user\n":      `4:11: identity.attributes.plan is "x-user"; allowed: another field than that of identity.user`,
		"identity: {api_key: X-Key, attributes: {plan: X-KEY}}":             "another field than that of identity.api_key",
		"identity: {attributes: {plan: X-Plan, tier: x-plan}}":              `identity.attributes.tier is "x-plan"; allowed: another field than that of identity.attributes.plan`,
		"identity: {attributes: {userId: X-User}}":                          "allowed: identity.user in its place",
		"identity: {attributes: {apiKey: X-Key}}":                           "allowed: identity.api_key in its place",
		"identity: {attributes: {\"\": X-Key}}":                             "allowed: names of attributes, 1 to 256 bytes",
		"identity: {attributes: {" + strings.Repeat("n", 257) + ": X-Key}}": "allowed: names of attributes, 1 to 256 bytes",
		`identity: {attributes: {"a\u0007": X-Key}}`:                        "allowed: names of attributes, 1 to 256 bytes",
		"identity: {attributes: {plan: \"\"}}":                              "allowed: the name of a header field",
		"identity: {attributes: {plan: X Plan}}":                            "allowed: the name of a header field",
		"identity: {attributes: [plan]}":                                    "identity.attributes is a list; allowed: headers by the attributes that they hold",
		"identity: {attributes: {plan: [X-Plan]}}":                          "identity.attributes is a list; allowed: headers by the attributes that they hold",
		many: "identity.attributes is 17; allowed: at most 16 attributes",
	})
	for _, text := range []string{"plan", "plan=X-Plan,plan=X-Tier", "=X-Plan", "plan="} {
		if _, err := config.Load(config.Sources{Flags: map[string]string{"identity-attributes": text}}); err == nil {
			t.Errorf("the flag %q is accepted", text)
		}
	}
}

// The fields of the IETF are those of a revision.
func TestRevisions(t *testing.T) {
	for text, want := range map[string]httplimit.Fields{
		"true": httplimit.IETF, "True": httplimit.IETF, "draft-11": httplimit.IETF, "issue-166": httplimit.IETF166, "false": 0,
	} {
		for name, sources := range map[string]config.Sources{
			"file": {File: write(t, "headers: {ietf: "+text+"}\n")}, "flag": {Flags: map[string]string{"headers-ietf": text}},
			"variable": {Env: env(map[string]string{"STINT_HEADERS_IETF": text})},
		} {
			got, err := config.Load(sources)
			if fields := got.Headers.Fields(); err != nil || fields != httplimit.XRateLimit|httplimit.RetryAfter|want {
				t.Errorf("%s by a %s: fields %d, %v", text, name, fields, err)
			}
		}
	}
}
