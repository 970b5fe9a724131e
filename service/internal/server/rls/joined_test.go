package rls_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// In the atomic accounting a value can't lead to another key's limit; in the reference one it does, as in that service.
func TestKeysAreApart(t *testing.T) {
	const config = `
domain: d
descriptors:
  - {key: user, ` + years + `1}}
  - {key: user_internal, rate_limit: {unlimited: true}}
  - {key: plan, value: free, ` + years + `1}}
  - {key: "team_*", ` + years + `9}}
  - {key: team, ` + years + `1}}
  - {key: zone, value: "a*", ` + years + `1}}
  - {key: "z*", value: "*e_b", ` + years + `5}}
  - {key: below, descriptors: [{key: user, ` + years + `1}}, {key: user_internal, rate_limit: {unlimited: true}}]}
  - {key: end_, ` + years + `1}}
`
	const unlimited = "ok ok:4294967295"
	for _, test := range []struct {
		entries           string
		atomic, reference string
	}{
		{"user=internal", "ok ok:0", unlimited},
		{"user_internal=x", unlimited, unlimited},
		{"user=internal_x", "ok ok:0", "ok ok:0"},
		{"plan_free=x", "ok ok:0", "ok ok:0"}, // no limit, or that of the plan
		{"plan=free", "ok ok:0", "ok ok:0"},
		{"team=red", "ok ok:0", "ok ok:8"},
		{"team_red=1", "ok ok:8", "ok ok:8"},
		{"zone=ab", "ok ok:0", "ok ok:0"},
		{"zone=e_b", "ok ok:4", "ok ok:4"},
		{"z=x_b", "ok ok:0", "ok ok:0"},
		{"zon=e_b", "ok ok:4", "ok ok:4"},
		{"zo=e_b", "ok ok:4", "ok ok:4"},
		{"zone_a=x", "ok ok:0", "ok ok:0"},
		{"below=1,user=internal", "ok ok:0", unlimited},
		{"below=1,user_internal=x", unlimited, unlimited},
		{"end=", "ok ok:0", "ok ok:0"}, // no limit, or that of end_
		{"end_=x", "ok ok:0", "ok ok:0"},
	} {
		for accounting, want := range map[domains.Accounting]string{domains.Atomic: test.atomic, domains.Reference: test.reference} {
			s := newService(t, rls.Config{Accounting: accounting}, config)
			if got := said(ask(t, s, entries(test.entries))); got != want {
				t.Errorf("%s: %s says %s, want %s", accounting, test.entries, got, want)
			}
		}
	}
	// What looks alike without a limit and with one that is used up.
	for _, text := range []string{"plan_free=x", "end=", "zone_a=x"} {
		for accounting, limited := range map[domains.Accounting]bool{domains.Atomic: false, domains.Reference: true} {
			s := newService(t, rls.Config{Accounting: accounting}, config)
			if got := ask(t, s, entries(text)).Statuses[0].CurrentLimit != nil; got != limited {
				t.Errorf("%s: %s has a limit: %t, want %t", accounting, text, got, limited)
			}
		}
	}
}

// A limit that counts as the reference service does, in a service that does not, has its counters apart, too.
func TestCountersAreApart(t *testing.T) {
	const config = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 5, accounting: reference}}
  - {key: user_internal, rate_limit: {unit: year, requests_per_unit: 5, accounting: reference}}
`
	for accounting, want := range map[domains.Accounting]string{domains.Atomic: "ok ok:4", domains.Reference: "ok ok:3"} {
		walk(t, newService(t, rls.Config{Accounting: accounting}, config), []step{
			{of(entries("user=internal_x")), "ok ok:4"}, {of(entries("user_internal=x")), want},
		})
	}
}

// A service of the reference accounting warns of keys that values of others reach, one of the atomic accounting has none.
func TestJoinedWarnings(t *testing.T) {
	list := parsed(t, `
domain: d
descriptors:
  - {key: user}
  - {key: user_internal, rate_limit: {unlimited: true}}
  - {key: remote_address, descriptors: [{key: a}, {key: a_b, value: c}, {key: ab}, {key: b_a}]}
`, "domain: other\ndescriptors: [{key: remote}]\n", "domain: d\ndescriptors: [{key: remote}]\n")
	want := []string{
		`test.yaml: descriptors[1]: under envoy.accounting: reference, as in Envoy's reference service, the key "user_internal" also counts user=internal,`,
		`test.yaml: descriptors[2]: under envoy.accounting: reference, as in Envoy's reference service, the key "remote_address" also counts remote=address,`,
		`test.yaml: descriptors[2].descriptors[1]: under envoy.accounting: reference, as in Envoy's reference service, the key "a_b" also counts a=b_c,`,
	}
	got := newService(t, rls.Config{Accounting: domains.Reference}).Warnings(list)
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
	if got := newService(t, rls.Config{}).Warnings(list); got != nil {
		t.Errorf("atomic: %q", got)
	}
	many := &domains.Domain{Name: "d", Descriptors: []domains.Descriptor{{Key: "k"}}}
	for range 200 {
		many.Descriptors = append(many.Descriptors, domains.Descriptor{Key: "k_" + strings.Repeat("_", len(many.Descriptors))})
	}
	if got := domains.Joined([]*domains.Domain{many}); len(got) != 101 || !strings.HasPrefix(got[100], "and more") {
		t.Errorf("%d warnings, the last is %q", len(got), got[len(got)-1])
	}
}
