package clientip_test

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
)

func resolver(t testing.TB, config clientip.Config) *clientip.Resolver {
	t.Helper()
	return must.Get(clientip.New(config))(t)
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// behind trusts 10/8 and fd00::/8 and reads X-Forwarded-For, then X-Real-IP.
var behind = clientip.Config{
	TrustedProxies: prefixes("10.0.0.0/8", "fd00::/8"),
	Headers:        []string{"X-Forwarded-For", "x-real-ip"},
}

func TestClient(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Name, Peer, Fields, Want string }](t, "testdata/clients.txt") {
		t.Run(test.Name, func(t *testing.T) {
			header := http.Header{}
			for field := range strings.SplitSeq(test.Fields, " | ") {
				if name, value, found := strings.Cut(field, ": "); found {
					header.Add(name, value)
				}
			}
			if got := resolver(t, behind).Client(test.Peer, header); got != netip.MustParseAddr(test.Want) {
				t.Errorf("Client(%q, %v) = %v, want %v", test.Peer, header, got, test.Want)
			}
		})
	}
}

func TestPeerWithoutAddress(t *testing.T) {
	r := resolver(t, clientip.Config{TrustedProxies: prefixes("0.0.0.0/0", "::/0")})
	for _, peer := range []string{"", "@", "/run/stint.sock"} {
		header := http.Header{"X-Forwarded-For": {"198.51.100.1"}}
		if got := r.Client(peer, header); got.IsValid() {
			t.Errorf("Client(%q) = %v, want none", peer, got)
		}
		if got := r.Key(peer, header); got != "unknown" {
			t.Errorf("Key(%q) = %q, want unknown", peer, got)
		}
	}
}

func TestTrustsPeer(t *testing.T) {
	r := resolver(t, behind)
	for _, test := range testtable.Rows[struct {
		Peer  string
		Trust bool
	}](t, "testdata/trusted.txt") {
		if got := r.TrustsPeer(test.Peer); got != test.Trust {
			t.Errorf("TrustsPeer(%q) = %v, want %v", test.Peer, got, test.Trust)
		}
	}
}

func TestKey(t *testing.T) {
	for _, test := range testtable.Rows[struct {
		Bits       int
		Peer, Want string
	}](t, "testdata/keys.txt") {
		r := resolver(t, clientip.Config{IPv6Prefix: test.Bits})
		if got := r.Key(test.Peer, nil); got != test.Want {
			t.Errorf("Key(%q) with /%d = %q, want %q", test.Peer, test.Bits, got, test.Want)
		}
	}
}

func TestMappedTrustedNetwork(t *testing.T) {
	r := resolver(t, clientip.Config{TrustedProxies: prefixes("::ffff:10.0.0.0/104")})
	if got := r.Key("10.1.2.3:80", http.Header{"X-Forwarded-For": {"198.51.100.1"}}); got != "198.51.100.1" {
		t.Errorf("Key = %q; the mapped network does not trust its IPv4 form", got)
	}
}

func TestConfigIsCopied(t *testing.T) {
	config := clientip.Config{TrustedProxies: prefixes("10.0.0.0/8"), Headers: []string{"X-Real-IP"}}
	r := resolver(t, config)
	config.TrustedProxies[0] = netip.MustParsePrefix("0.0.0.0/0")
	config.Headers[0] = "X-Other"
	header := http.Header{"X-Real-Ip": {"198.51.100.1"}}
	if got := r.Key("203.0.113.7:1", header); got != "203.0.113.7" {
		t.Errorf("Key = %q; the resolver follows the caller's slice", got)
	}
	if got := r.Key("10.0.0.1:1", header); got != "198.51.100.1" {
		t.Errorf("Key = %q; the resolver follows the caller's slice", got)
	}
}

func TestInvalidConfig(t *testing.T) {
	_, err := clientip.New(clientip.Config{
		TrustedProxies: []netip.Prefix{{}},
		Headers:        []string{"", "X Forwarded", "forwarded"},
		IPv6Prefix:     129,
	})
	if !errors.Is(err, stint.ErrInvalid) {
		t.Fatalf("New = %v, want ErrInvalid", err)
	}
	for _, want := range []string{"TrustedProxies is invalid", `""`, `"X Forwarded"`, `"forwarded"`, "IPv6Prefix is 129; allowed: 1 to 128"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not report %s:\n%v", want, err)
		}
	}
	if _, err := clientip.New(clientip.Config{IPv6Prefix: -1}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("New with prefix -1 = %v, want ErrInvalid", err)
	}
}

func TestUntrustedPeerDoesNotAllocate(t *testing.T) {
	r := resolver(t, behind)
	header := http.Header{"X-Forwarded-For": {"198.51.100.1"}}
	if n := testing.AllocsPerRun(100, func() { r.Client("203.0.113.7:4711", header) }); n != 0 {
		t.Errorf("Client allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { r.Key("203.0.113.7:4711", header) }); n != 0 {
		t.Errorf("Key allocates %v times", n)
	}
}

// FuzzClient checks what must hold for any field: the client is never a trusted
// proxy while an untrusted hop was read, prepending hops never changes an untrusted
// client, and a peer that isn't trusted is always the client.
func FuzzClient(f *testing.F) {
	f.Add("198.51.100.1, 10.0.0.2")
	f.Add("[2001:db8::1%25x]:80,unknown")
	f.Add("::ffff:10.0.0.1,,")
	f.Add("1.2.3.4:99999")
	f.Add("[::ffff:192.0.2.1]:80")
	f.Add(" 192.0.2.1 ")
	for _, peer := range []string{
		"192.0.2.1:80", "0.0.0.0:0", "255.255.255.255:65535", "192.0.2.256:80", "192.0.02.1:80", "192.0.2:80",
		"192.0.2.1.1:80", "192.0..1:80", "192.0.2.1:", "192.0.2.1:65536", "192.0.2.1:80:80", ":80", "::80", ".1.2.3:80",
	} {
		f.Add(peer)
	}
	f.Fuzz(func(t *testing.T, value string) {
		r := resolver(t, behind)
		header := http.Header{"X-Forwarded-For": {value}}
		if got := r.Key("203.0.113.7:1", header); got != "203.0.113.7" {
			t.Fatalf("an untrusted peer is %q", got)
		}
		if got, want := r.Key(value, nil), r.KeyOf(r.Client(value, nil)); got != want {
			t.Fatalf("a peer's key is %q, and that of its address %q", got, want)
		}
		client := r.Client("10.0.0.1:1", header)
		if !client.IsValid() || client.Zone() != "" || client.Is4In6() {
			t.Fatalf("client %v is not in canonical form", client)
		}
		trusted := r.TrustsPeer(netip.AddrPortFrom(client, 1).String())
		spoofed := r.Client("10.0.0.1:1", http.Header{"X-Forwarded-For": {"6.6.6.6, " + value}})
		if !trusted && spoofed != client {
			t.Fatalf("prepending a hop turned %v into %v", client, spoofed)
		}
		split := r.Client("10.0.0.1:1", http.Header{"X-Forwarded-For": strings.Split(value, ",")})
		if split != client {
			t.Fatalf("one line gives %v, a line for each hop %v", client, split)
		}
	})
}

func TestParse(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Want string }](t, "testdata/parse.txt") {
		addr, ok := clientip.Parse(test.Text)
		if ok != (test.Want != "") || ok && addr.String() != test.Want {
			t.Errorf("Parse(%q) = %v, %t; want %q", test.Text, addr, ok, test.Want)
		}
	}
}
