package rls_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

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
