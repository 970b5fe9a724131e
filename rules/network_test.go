package rules_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// naiveOverride is the place of the override that holds for a client, by looking at each; -1 is none.
func naiveOverride(list []rules.Override, client, address string) int {
	best, longest := -1, -1
	for i, o := range list {
		if o.Key == client {
			return i
		}
		of, found := strings.CutPrefix(o.Key, strings.TrimSuffix(client, address))
		network, err := netip.ParsePrefix(of)
		host, _, _ := strings.Cut(address, "/")
		if ip, err2 := netip.ParseAddr(host); found && err == nil && err2 == nil && network.Contains(ip) && network.Bits() > longest {
			best, longest = i, network.Bits()
		}
	}
	return best
}

// Overrides of networks are compared with looking at each, of addresses alone and beside other parts, with API keys hashed and not.
func TestNetworksAsOneByOne(t *testing.T) {
	for _, scope := range [][]string{{rules.PerIP}, {rules.PerUser, rules.PerIP}, {rules.PerAPIKey, rules.PerIP}} {
		found := 0
		rapid.Check(t, func(t *rapid.T) { found += compareNetworks(t, scope) })
		if found == 0 {
			t.Errorf("no override of %s was found", scope)
		}
	}
}

// compareNetworks looks for clients of a rule with overrides, and returns how many have one.
func compareNetworks(t *rapid.T, scope []string) (found int) {
	bits := rapid.SampledFrom([]int{56, 64, 128}).Draw(t, "bits")
	address := rapid.Custom(func(t *rapid.T) netip.Addr {
		some := func(n int) byte { return byte(rapid.IntRange(0, n).Draw(t, "byte")) }
		if rapid.Bool().Draw(t, "IPv4") {
			return netip.AddrFrom4([4]byte{10, some(1), some(3), some(3) << 6})
		}
		return netip.AddrFrom16([16]byte{0x20, 1, some(1), 0, 5: some(3), 7: some(3) << 6, 15: some(1)})
	})
	network := func(ip netip.Addr, ipv4, ipv6 int) string {
		of := map[bool]int{true: ipv4, false: ipv6}[ip.Is4()]
		if of == ip.BitLen() {
			return ip.String()
		}
		return netip.PrefixFrom(ip, of).Masked().String()
	}
	ipv4 := rapid.SampledFrom([]int{0, 0, 8, 24, 25, 32}).Draw(t, "IPv4 bits")
	ipv6 := rapid.SampledFrom([]int{0, 0, 17, 48, 56}).Draw(t, "IPv6 bits")
	keyOf := func(ip netip.Addr) string { return network(ip, cmp.Or(ipv4, 32), cmp.Or(ipv6, bits)) }
	r := rule("a")
	r.Scope = slices.Clone(scope)
	r.Scope[len(scope)-1] = rules.PerNetwork(ipv4, ipv6)
	if r.Missing = rules.MissingSkip; len(r.Scope) == 1 {
		r.Missing = 0
	}
	other := func(name string) string {
		if len(r.Scope) == 1 {
			return ""
		}
		return some("ann|", `a\|b|`).Draw(t, name)
	}
	seen, hashes := map[string]bool{}, r.Scope[0] == rules.PerAPIKey && rapid.Bool().Draw(t, "hashes")
	for i := range rapid.IntRange(1, 20).Draw(t, "overrides") {
		ip := address.Draw(t, "address")
		key := keyOf(ip)
		if rapid.Bool().Draw(t, "network") {
			most := cmp.Or(ipv4, 32) - 1
			if ip.Is6() {
				most = cmp.Or(ipv6, bits) - 1
			}
			key = netip.PrefixFrom(ip, rapid.IntRange(0, most).Draw(t, "length")).Masked().String()
		}
		if key = other("override of") + key; !seen[key] {
			seen[key] = true
			r.Overrides = append(r.Overrides, rules.Override{Key: key, Limits: []stint.Limit{stint.FixedWindow(int64(100+i), 1e9)}})
		}
	}
	plain := append([]rules.Override(nil), r.Overrides...)
	for i, o := range plain {
		if key, ip, _ := strings.Cut(strings.ReplaceAll(o.Key, `\|`, "!"), "|"); hashes && i%2 == 0 {
			r.Overrides[i].Key = rules.HashedClient(strings.ReplaceAll(key, "!", `\|`)) + "|" + ip
		}
	}
	set := must.Get(rules.Compile([]rules.Rule{r}, rules.Options{IPv6Prefix: bits}))(t)
	for range 20 {
		came := address.Draw(t, "client")
		ip, sent := keyOf(came), network(came, 32, bits)
		if rapid.IntRange(0, 9).Draw(t, "none") == 0 {
			ip, sent = "unknown", "unknown"
		}
		who := other("client of")
		part := strings.TrimSuffix(strings.ReplaceAll(who, `\`, ""), "|")
		request := rules.Request{Address: sent, User: part, APIKey: part}
		want := int64(10)
		if at := naiveOverride(plain, who+ip, ip); at >= 0 {
			want = plain[at].Limits[0].Capacity
			found++
		}
		var m rules.Matches
		must.Do(t, set.Match(&request, &m))
		h, err := m.AtTake(0)
		if err != nil || h.Claim.Policy.Limit(0).Capacity != want {
			t.Fatalf("%s%s has %+v, %v; want the limit %d of %+v", who, ip, h, err, want, r.Overrides)
		}
		if hashed := r.Scope[0] == rules.PerAPIKey; !hashed && h.Claim.Key != who+ip {
			t.Fatalf("%s%s is counted as %q", who, ip, h.Claim.Key)
		}
		claims, err := set.ClientClaims("a", who+ip)
		if err != nil || claims[min(1, len(claims)-1)].Policy.Limit(0).Capacity != want {
			t.Fatalf("%s%s has the claims %+v, %v; want one of %d behind its own", who, ip, claims, err, want)
		}
	}
	return found
}

// A rule that counts networks counts all of their clients together, and has no others.
func TestPerNetwork(t *testing.T) {
	r := rule("a")
	r.Scope = []string{rules.PerNetwork(24, 56)}
	r.Overrides = []rules.Override{{Key: "192.0.2.0/24", Banned: true}, {Key: "2001:db8::/32", Unlimited: true}}
	by := rule("by")
	by.Scope, by.Missing = []string{rules.PerUser, rules.PerNetwork(0, 48)}, rules.MissingIP
	set := compile(t, r, by)
	for _, test := range testtable.Rows[struct{ Address, Network, Ann, Nobody string }](t, "testdata/network_keys.txt") {
		for user, want := range map[string]string{"ann": test.Ann, "": test.Nobody} {
			request, m := rules.Request{Address: test.Address, User: user}, rules.Matches{}
			must.Do(t, set.Match(&request, &m))
			one, err := m.AtTake(0)
			two, err2 := m.AtTake(1)
			if err != nil || err2 != nil || one.Claim.Key != test.Network || two.Claim.Key != want {
				t.Errorf("%+v of %q is counted as %q and %q, %v %v", test, user, one.Claim.Key, two.Claim.Key, err, err2)
			}
		}
	}
	for _, test := range testtable.Rows[struct{ Kind, Text, Allowed string }](t, "testdata/networks.txt") {
		changed := rule("a")
		changed.Scope = []string{rules.PerNetwork(24, 56)}
		switch test.Kind {
		case "scope":
			if changed.Scope[0] = test.Text; test.Allowed == "each part once" {
				changed.Scope = append(changed.Scope, rules.PerIP)
			}
		case "override":
			changed.Overrides = []rules.Override{{Key: test.Text, Unlimited: true}}
		}
		set, err := rules.Compile([]rules.Rule{changed}, rules.Options{})
		if test.Kind == "client" {
			_, err = set.ClientClaims("a", test.Text)
		}
		if allowedOf(err) != test.Allowed {
			t.Errorf("the %s %s: %v; want %q", test.Kind, test.Text, err, test.Allowed)
		}
	}
}

// allowedOf is what an error says is allowed.
func allowedOf(err error) string {
	var invalid *stint.InvalidError
	if errors.As(err, &invalid) {
		return invalid.Allowed
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// tenThousand is a rule with as many overrides of networks, of all usual lengths.
func tenThousand() rules.Rule {
	r := rule("a")
	for i := range 10_000 {
		ip := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0})
		r.Overrides = append(r.Overrides, rules.Override{Key: netip.PrefixFrom(ip, 24).String(), Unlimited: true})
	}
	for i := range 24 {
		r.Overrides[i].Key = netip.PrefixFrom(netip.AddrFrom4([4]byte{10}), 8+i).Masked().String()
	}
	return r
}

func TestNetworksDoNotAllocate(t *testing.T) {
	r := tenThousand()
	r.Overrides[9999].Key = "10.255.255.1"
	set := compile(t, r)
	for _, address := range []string{"10.20.30.40", "10.0.0.1", "192.0.2.1", "2001:db8:1:2::/64", "unknown"} {
		var m rules.Matches
		request := rules.Request{Address: address}
		if n := testing.AllocsPerRun(100, func() { _ = set.Match(&request, &m); _, _ = m.AtTake(0) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", address, n)
		}
	}
}

// BenchmarkNetworks measures finding the override of a client among networks of one length, and of 24.
func BenchmarkNetworks(b *testing.B) {
	many := tenThousand()
	few := many
	few.Overrides = many.Overrides[24:]
	for lengths, r := range map[int]rules.Rule{1: few, 24: many} {
		b.Run(fmt.Sprintf("lengths=%d", lengths), func(b *testing.B) {
			set := compile(b, r)
			request := rules.Request{Address: "10.20.30.40"}
			var m rules.Matches
			if err := set.Match(&request, &m); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if h, err := m.AtTake(0); err != nil || h.Outcome != rules.Unlimited {
					b.Fatal(h, err)
				}
			}
		})
	}
}
