package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// banning is a rule that bans one client.
func banning(client string, scope ...string) rules.Rule {
	r := rule("a")
	r.Scope, r.Overrides = scope, []rules.Override{{Key: client, Banned: true}}
	if len(scope) > 1 {
		r.Missing = rules.MissingSkip
	}
	return r
}

func TestOverridesOfAddresses(t *testing.T) {
	for _, test := range testtable.Rows[struct {
		Bits         int
		Key, Allowed string
	}](t, "testdata/addresses.txt") {
		_, err := rules.Compile([]rules.Rule{banning(test.Key, rules.PerIP)}, rules.Options{IPv6Prefix: test.Bits})
		want := ""
		if test.Allowed != "" {
			want = fmt.Sprintf(`stint: rule "a": overrides[0].key is %q; allowed: %s`, test.Key, test.Allowed)
		}
		if got := text(err); got != want {
			t.Errorf("%q of %d bits: %s, want %s", test.Key, test.Bits, got, want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A rule by itself does not know by how many bits clients are counted.
func TestARuleKnowsTheFormOfAddresses(t *testing.T) {
	for key, sound := range map[string]bool{
		"192.0.2.1": true, "2001:db8::1": true, "2001:db8::/48": true, "2001:db8::/64": true, "unknown": true,
		"2001:DB8::1": false, "2001:db8::1/64": false, "10.1.0.0/8": false, "foo": false, "2001:db8::1/128": false,
		"::ffff:192.0.2.0/120": false, "::ffff:192.0.2.1": false,
	} {
		r := banning(key, rules.PerIP)
		if err := r.Validate(); (err == nil) != sound {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := r.ClientKey(key); (err == nil) != sound {
			t.Errorf("%s: its key: %v", key, err)
		}
	}
	for _, network := range []string{"10.0.0.0/8", "::/0"} { // which is no client
		r := banning(network, rules.PerIP)
		if err := r.Validate(); err != nil {
			t.Error(err)
		}
		if key, err := r.ClientKey(network); err == nil {
			t.Errorf("%s has the key %s", network, key)
		}
	}
}

func TestOverridesOfAddressesAndMore(t *testing.T) {
	if _, err := rules.Compile([]rules.Rule{banning("ann|2001:db8::/64", rules.PerUser, rules.PerIP)}, rules.Options{}); err != nil {
		t.Error(err)
	}
	_, err := rules.Compile([]rules.Rule{banning("ann|2001:db8::1", rules.PerUser, rules.PerIP)}, rules.Options{})
	const want = `stint: rule "a": overrides[0].key is "ann|2001:db8::1"; allowed: in the place of per_ip: 2001:db8::/64, by which the client is counted`
	if text(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
	_, err = rules.Compile([]rules.Rule{banning("s3cret|2001:db8::1", rules.PerAPIKey, rules.PerIP)}, rules.Options{})
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("an API key in a fault: %v", err)
	}
	if _, err := rules.Compile(nil, rules.Options{IPv6Prefix: 129}); text(err) != "stint: IPv6Prefix is 129; allowed: 1 to 128" {
		t.Error(err)
	}
}

// Whatever clientip makes of an address can be overridden, and what is right instead of another
// spelling is that.
func TestKeysOfClientsCanBeOverridden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(1, 128).Draw(t, "bits")
		bytes := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")
		address := netip.AddrFrom16([16]byte(bytes))
		if rapid.Bool().Draw(t, "IPv4") {
			address = netip.AddrFrom4([4]byte(bytes))
		}
		address = address.Unmap()
		resolver := must.Get(clientip.New(clientip.Config{IPv6Prefix: bits}))(t)
		key := resolver.KeyOf(address)
		if _, err := rules.Compile([]rules.Rule{banning(key, rules.PerIP)}, rules.Options{IPv6Prefix: bits}); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		spelt := netip.AddrPortFrom(address, 80).String()
		_, err := rules.Compile([]rules.Rule{banning(spelt, rules.PerIP)}, rules.Options{IPv6Prefix: bits})
		if !strings.Contains(text(err), "; allowed: "+key+", by which") {
			t.Errorf("%s with %d bits: %v, want %s", spelt, bits, err, key)
		}
	})
}
