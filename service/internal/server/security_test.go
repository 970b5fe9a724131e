package server_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

// The tokens of the tests below.
const (
	apiToken   = "0123456789abcdef"
	adminToken = "s3cret~token.of-admins=="
)

// adminTokens are those of the admin listener, the last of which is adminToken.
func adminTokens() []server.AdminToken {
	return []server.AdminToken{{Token: "another-token-of-mine", Role: server.RoleRead, Name: "ann"}, {Token: adminToken, Role: server.RoleWrite}}
}

// A call is a request and what it must come to.
type call struct {
	method, path, body string
	header             http.Header
	peer               string // 192.0.2.1:1234 when it is ""
	status             int
	key                string // that was decided on; "" is not looked at
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// manage are the requests that name a key, reset or settle, each to come to status.
func manage(header http.Header, status int) []call {
	var calls []call
	for _, c := range []call{
		{method: "GET", path: check + "?key=k"},
		{method: "POST", path: check, body: `{"key":"k"}`},
		{method: "POST", path: check, body: `[{},{"key":"k"}]`},
		{method: "GET", path: apipath.Remaining + "?key=k"},
		{method: "HEAD", path: apipath.Remaining + "?key=k"},
		{method: "DELETE", path: apipath.Reset + "?key=k"},
		{method: "DELETE", path: apipath.Reset},
		{method: "POST", path: apipath.Settle, body: `{"key":"k","permits":1}`},
		{method: "POST", path: apipath.Settle, body: `{"permits":1}`},
		{method: "POST", path: apipath.Evaluate, body: `{"ip":"198.51.100.1"}`},
	} {
		c.header, c.status = header, status
		calls = append(calls, c)
	}
	return calls
}

// forwarded is a check from the peer with the lines of X-Forwarded-For, and the key
// that it has to come to.
func forwarded(peer, key string, lines ...string) call {
	return call{method: "GET", path: check, peer: peer, header: http.Header{"X-Forwarded-For": lines}, status: 200, key: key}
}

// Each clause of docs/security.md's "Permission to name keys" and "Trust", with requests that
// hold the service to it.
func TestSecurityModel(t *testing.T) {
	const proxy = "10.0.0.1:4711"
	tokens := func(c *server.Config) {
		c.API = config.API{ExplicitKeys: true, Tokens: []string{"another-token-of-mine", apiToken}}
	}
	remote := func(c *server.Config) { c.API = config.API{ExplicitKeys: true} } // a handler alone is not on loopback
	open := func(c *server.Config) { c.API = config.API{ExplicitKeys: true, Open: true} }
	implicit := func(c *server.Config) { c.API = config.API{Open: true, Tokens: []string{apiToken}} }
	proxies := func(names ...string) func(*server.Config) {
		return func(c *server.Config) {
			c.ClientIP = config.ClientIP{
				TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}, Headers: names,
			}
		}
	}
	behind := proxies("X-Forwarded-For", "X-Real-IP")
	wide := func(c *server.Config) { c.ClientIP.IPv6Prefix = 48 }

	own := []call{
		{method: "GET", path: check, status: 200, key: "192.0.2.1"},
		{method: "POST", path: check, body: `{}`, status: 200, key: "192.0.2.1"},
		{method: "POST", path: check, body: `[{},{}]`, status: 200},
		{method: "GET", path: apipath.Remaining, status: 200, key: "192.0.2.1"},
	}
	var others []call
	for _, name := range []string{
		"X-Forwarded-For", "X-Real-Ip", "Forwarded", "Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
	} {
		others = append(others, call{method: "GET", path: check, header: http.Header{name: {"198.51.100.1"}}, status: 200, key: "192.0.2.1"})
	}
	identity := func(peer, key string) call {
		return call{
			method: "GET", path: check, peer: peer, status: 200, key: key,
			header: http.Header{"X-User-Id": {"root"}, "X-Api-Key": {"k"}, "X-Forwarded-Host": {"h"}, "X-Forwarded-Method": {"DELETE"}, "X-Forwarded-Uri": {apipath.Reset}},
		}
	}
	forwardAuth := func(peer string, status int) call {
		return call{method: "GET", path: apipath.ForwardAuth, peer: peer, status: status, header: traefik("POST", "/login")}
	}
	for _, clause := range []struct {
		text   string
		change func(*server.Config)
		calls  []call
	}{
		{"The peer's address, unless the peer is in trusted_proxies", nil, append(others, forwarded("", "192.0.2.1", "198.51.100.1"))},
		{"... also when others are trusted", behind, append(others, forwarded("11.0.0.1:1", "11.0.0.1", "198.51.100.1"))},
		{"then the first of client_ip_headers that is present", behind, []call{
			{method: "GET", path: check, peer: proxy, status: 200, key: "198.51.100.1", header: http.Header{"X-Forwarded-For": {"198.51.100.1"}, "X-Real-Ip": {"198.51.100.2"}}},
			{method: "GET", path: check, peer: proxy, status: 200, key: "198.51.100.2", header: http.Header{"X-Real-Ip": {"198.51.100.2"}}},
			{method: "GET", path: check, peer: proxy, status: 200, key: "10.0.0.1"},
		}},
		{"only those that were named", proxies("X-Real-IP"), []call{forwarded(proxy, "10.0.0.1", "198.51.100.1")}},
		{"All X-Forwarded-For lines are joined and walked from the right", behind, []call{
			forwarded(proxy, "198.51.100.1", "1.1.1.1", "198.51.100.1, 10.2.2.2", "10.3.3.3"),
			forwarded(proxy, "198.51.100.1", "10.9.9.9, 198.51.100.1"),
		}},
		{"the first address that is not a trusted proxy counts", behind, []call{
			forwarded(proxy, "198.51.100.1", "1.1.1.1, 2.2.2.2, 198.51.100.1"),
			forwarded("[fd00::1]:80", "198.51.100.1", "1.1.1.1, 198.51.100.1, fd00::2"),
		}},
		{"ports and zones are stripped", behind, []call{
			forwarded(proxy, "198.51.100.1", "198.51.100.1:4711"),
			forwarded(proxy, "2001:db8:1:2::/64", "[2001:db8:1:2::3%eth0]:443"),
			forwarded(proxy, "fe80::/64", "fe80::1%eth0"),
		}},
		{"at an unreadable hop the walk stops and the last trusted hop counts", behind, []call{
			forwarded(proxy, "10.0.0.1", "198.51.100.1, unknown"),
			forwarded(proxy, "10.9.9.9", "198.51.100.1, unknown, 10.9.9.9"),
			forwarded(proxy, "10.0.0.1", ""),
			forwarded(proxy, "10.0.0.1", "198.51.100.1,"),
		}},
		{"if all are trusted, the left-most", behind, []call{forwarded(proxy, "10.7.7.7", "10.7.7.7, 10.8.8.8", "10.9.9.9")}},
		{"IPv6 clients are keyed by their /64", nil, []call{
			{method: "GET", path: check, peer: "[2001:db8:1:2:3:4:5:6]:1", status: 200, key: "2001:db8:1:2::/64"},
		}},
		{"... or ipv6_prefix", wide, []call{
			{method: "GET", path: check, peer: "[2001:db8:1:2:3:4:5:6]:1", status: 200, key: "2001:db8:1::/48"},
		}},
		{"IPv4-mapped addresses are IPv4", behind, []call{
			{method: "GET", path: check, peer: "[::ffff:192.0.2.7]:1", status: 200, key: "192.0.2.7"},
			forwarded("[::ffff:10.0.0.1]:1", "198.51.100.1", "::ffff:198.51.100.1"),
		}},
		{"Forwarded method, URI, host and the identity headers are believed from trusted peers only", behind, []call{
			identity("192.0.2.1:1", "192.0.2.1"),
			// A check is by no rule, which would read them: they change nothing.
			identity(proxy, "10.0.0.1"),
			forwardAuth("192.0.2.1:1", 403),
			forwardAuth(proxy, 200),
		}},
		{"anybody who reaches the listener may check and ask for what remains, under the own address", remote, own},
		{"... with tokens as well", tokens, own},
		{"with api.tokens_file, reset, settle and any explicit key need Authorization: Bearer TOKEN", tokens, manage(bearer(apiToken), 200)},
		{"... each token of the file", tokens, manage(bearer("another-token-of-mine"), 200)},
		{"... whose scheme has no case", tokens, manage(http.Header{"Authorization": {"bEARER  " + apiToken}}, 200)},
		{"else 401: none", tokens, manage(nil, 401)},
		{"else 401: a wrong one", tokens, manage(bearer("0123456789abcdeF"), 401)},
		{"else 401: the beginning of one", tokens, manage(bearer(apiToken[:15]), 401)},
		{"else 401: more than one of them", tokens, manage(bearer(apiToken+apiToken), 401)},
		{"else 401: an empty one", tokens, manage(bearer(""), 401)},
		{"else 401: another scheme", tokens, manage(http.Header{"Authorization": {"Basic " + apiToken}}, 401)},
		{"else 401: two lines", tokens, manage(http.Header{"Authorization": {"Bearer " + apiToken, "Bearer " + apiToken}}, 401)},
		{"else 401: elsewhere in the request", tokens, append(
			manage(http.Header{"Cookie": {"token=" + apiToken}, "X-Api-Key": {apiToken}, "Proxy-Authorization": {"Bearer " + apiToken}}, 401),
			call{method: "GET", path: check + "?key=k&access_token=" + apiToken, status: 400},
		)},
		{"Without one they are allowed with api.open: true", open, manage(nil, 200)},
		{"... which gives way to tokens", func(c *server.Config) { tokens(c); c.API.Open = true }, manage(nil, 401)},
		{"else 403", remote, append(manage(nil, 403), manage(bearer(apiToken), 403)...)},
		{"explicit_keys false: any key is 403", implicit, []call{
			{method: "GET", path: check + "?key=k", header: bearer(apiToken), status: 403},
			{method: "GET", path: check + "?key=k", status: 403},
			{method: "GET", path: check + "?key=", status: 403},
			{method: "POST", path: check, body: `[{},{"key":"k"}]`, header: bearer(apiToken), status: 403},
			{method: "GET", path: apipath.Remaining + "?key=k", header: bearer(apiToken), status: 403},
			{method: "DELETE", path: apipath.Reset + "?key=k", header: bearer(apiToken), status: 403},
			{method: "POST", path: apipath.Settle, body: `{"key":"k","permits":1}`, header: bearer(apiToken), status: 403},
			{method: "DELETE", path: apipath.Reset, header: bearer(apiToken), status: 200, key: "192.0.2.1"},
			{method: "GET", path: check, status: 200, key: "192.0.2.1"},
		}},
		{"the profiler is the admin listener's alone", open, []call{{method: "GET", path: "/debug/pprof/", header: bearer(adminToken), status: 404}}},
	} {
		t.Run(clause.text, func(t *testing.T) {
			f := newFixture(t, clause.change)
			for _, c := range clause.calls {
				f.holds(c)
			}
		})
	}
}

// holds makes a call and compares its result. A refused call has not reached
// the store.
func (f *fixture) holds(c call) {
	f.t.Helper()
	r := newRequest(c.method, c.path, c.body)
	for name, lines := range c.header {
		r.Header[name] = lines
	}
	if c.peer != "" {
		r.RemoteAddr = c.peer
	}
	before := f.store.calls.Load()
	got := f.do(r)
	if got.status != c.status {
		f.t.Errorf("%s %s %s from %q with %v: %d %s, want %d", c.method, c.path, c.body, c.peer, c.header, got.status, got.body, c.status)
		return
	}
	if c.key != "" && !strings.Contains(got.body, `"key":"`+c.key+`"`) {
		f.t.Errorf("%s %s from %q with %v: %s, want key %s", c.method, c.path, c.peer, c.header, got.body, c.key)
	}
	if c.status >= 400 {
		got.problem(c.status)
		if f.store.calls.Load() != before {
			f.t.Errorf("%s %s: %d, and the store was asked", c.method, c.path, c.status)
		}
	}
	if challenge := got.header.Get("WWW-Authenticate"); (challenge != "") != (c.status == 401) || c.status == 401 && !strings.HasPrefix(challenge, "Bearer") {
		f.t.Errorf("%s %s: %d with WWW-Authenticate %q", c.method, c.path, c.status, challenge)
	}
	for _, secret := range []string{apiToken, adminToken} {
		if strings.Contains(got.body, secret) {
			f.t.Errorf("%s %s: the answer repeats a token: %s", c.method, c.path, got.body)
		}
	}
}

// "Without one they are allowed on a loopback listener ... and the log says so at
// start", for every kind of listener.
func TestListenersAndTheLog(t *testing.T) {
	tokens := func(c *server.Config) { c.API.Tokens = []string{apiToken} }
	for name, test := range map[string]struct {
		listen string
		change func(*server.Config)
		status int
		log    string // the warning; "" is none
	}{
		"loopback":               {"127.0.0.1:0", nil, 200, "anyone on this machine may name keys"},
		"all addresses":          {"0.0.0.0:0", nil, 403, "explicit keys, reset, settle and evaluate are refused"},
		"all addresses, open":    {"0.0.0.0:0", func(c *server.Config) { c.API.Open = true }, 200, "anyone who can reach the service may name keys"},
		"all addresses, tokens":  {"0.0.0.0:0", tokens, 401, "tokens are sent unencrypted"},
		"loopback, tokens":       {"127.0.0.1:0", tokens, 401, ""},
		"an address of no host":  {":0", nil, 403, "are refused"},
		"loopback by its name":   {"localhost:0", nil, 200, "anyone on this machine"},
		"loopback, closed by us": {"127.0.0.1:0", func(c *server.Config) { c.API.ExplicitKeys = false }, 403, "anyone on this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, func(c *server.Config) {
				c.Listen = test.listen
				if test.change != nil {
					test.change(c)
				}
			})
			addr := r.server.Addr().(*net.TCPAddr)
			if addr.IP.IsUnspecified() {
				addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: addr.Port}
			}
			if got := r.send(r.request("GET", addr.String(), check+"?key=k")); got.status != test.status {
				t.Errorf("naming a key: %d %s, want %d", got.status, got.body, test.status)
			}
			warned := strings.Count(r.log.String(), "level=WARN")
			if test.log == "" && warned > 0 || test.log != "" && (warned != 1 || !strings.Contains(r.log.String(), test.log)) {
				t.Errorf("the log, want a warning %q:\n%s", test.log, r.log)
			}
		})
	}
}

// Each listener has its own warning, of what is true of it.
func TestWarningOfEachListener(t *testing.T) {
	for name, test := range map[string]struct {
		http, resp string
		open       bool
		want       [2]string // of http and of resp
	}{
		"on loopback":         {"127.0.0.1:0", "127.0.0.1:0", false, [2]string{"anyone on this machine", "anyone on this machine"}},
		"resp for others":     {"127.0.0.1:0", "0.0.0.0:0", false, [2]string{"anyone on this machine", "are refused"}},
		"http for others":     {"0.0.0.0:0", "127.0.0.1:0", false, [2]string{"are refused", "anyone on this machine"}},
		"open, one on others": {"127.0.0.1:0", "0.0.0.0:0", true, [2]string{"anyone who can reach", "anyone who can reach"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, func(c *server.Config) { c.Listen, c.RESPListen, c.API.Open = test.http, test.resp, test.open })
			for i, service := range []string{"http", "resp"} {
				want := regexp.MustCompile("level=WARN .*" + test.want[i] + ".* service=" + service + " addr=")
				if !want.MatchString(r.log.String()) {
					t.Errorf("the log lacks %s:\n%s", want, r.log)
				}
			}
			if warned := strings.Count(r.log.String(), "no tokens are configured"); warned != 2 {
				t.Errorf("%d warnings, want one of each listener:\n%s", warned, r.log)
			}
		})
	}
}

// The admin listener needs tokens where others reach it, and wherever it has them.
func TestAdminTokens(t *testing.T) {
	const page = "/debug/pprof/cmdline"
	for name, listen := range map[string]string{"loopback": "127.0.0.1:0", "all addresses": "0.0.0.0:0"} {
		t.Run(name, func(t *testing.T) {
			r := run(t, func(c *server.Config) {
				c.AdminListen, c.Admin.Tokens, c.API.Tokens = listen, adminTokens(), []string{apiToken}
			})
			addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: r.server.AdminAddr().(*net.TCPAddr).Port}).String()
			send := func(header http.Header, path, host string) reply {
				request := r.request("GET", addr, path)
				request.Header = header
				request.Host = host
				return r.send(request)
			}
			if got := send(bearer(adminToken), page, addr); got.status != 200 {
				t.Errorf("with its token: %d %s", got.status, got.body)
			}
			for fault, header := range map[string]http.Header{
				"none": {}, "the service's": bearer(apiToken), "a wrong one": bearer(adminToken[1:]), "another scheme": {"Authorization": {"Basic " + adminToken}},
			} {
				for _, path := range []string{page, "/debug/pprof/", "/debug/pprof/profile?seconds=30", "/nowhere"} {
					got := send(header, path, addr)
					got.problem(401, "Authorization")
					if !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer") {
						t.Errorf("%s: WWW-Authenticate is %q", fault, got.header.Get("WWW-Authenticate"))
					}
				}
			}
			got := send(bearer(adminToken), page, "evil.example")
			if want := map[string]int{"loopback": 403, "all addresses": 200}[name]; got.status != want {
				t.Errorf("with a Host of elsewhere: %d, want %d", got.status, want)
			}
			if warned := strings.Contains(r.log.String(), "tokens are sent unencrypted"); warned != (name != "loopback") {
				t.Errorf("the log:\n%s", r.log)
			}
		})
	}
}

func TestAdminForOthersNeedsTokens(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0"} {
		config, _, log := testConfig()
		config.Listen, config.AdminListen = "127.0.0.1:0", listen
		s, err := server.New(config)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Run(t.Context())
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), `admin_listen: admin.tokens_file is ""; allowed: a file of tokens, since others than this machine reach `) {
			t.Errorf("%s: Run = %v", listen, err)
		}
		if s.Addr() != nil || log.lines() > 0 {
			t.Errorf("%s: it listens at %v:\n%s", listen, s.Addr(), log)
		}
	}
}

// Where only being on this machine gives the right to manage, a page in a browser of it has none.
func TestPagesOfOthersDoNotManage(t *testing.T) {
	foreign := []http.Header{
		{"Origin": {"https://evil.example"}, "Content-Type": {"text/plain"}},
		{"Origin": {"null"}},
		{"Sec-Fetch-Site": {"cross-site"}},
		{"Sec-Fetch-Site": {"same-site"}},
		{"Host": {"evil.example:8080"}},
		{"Host": {"evil.example"}},
	}
	for name, test := range map[string]struct {
		api    config.API
		token  string
		status int
	}{
		"loopback": {config.API{ExplicitKeys: true}, "", 403},
		"open":     {config.API{ExplicitKeys: true, Open: true}, "", 200},
		"tokens":   {config.API{ExplicitKeys: true, Tokens: []string{apiToken}}, apiToken, 200},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, func(c *server.Config) { c.API = test.api })
			addr := r.server.Addr().String()
			ask := func(c call, header http.Header, want int) {
				t.Helper()
				request := r.request(c.method, addr, c.path)
				if c.body != "" {
					request.Body = io.NopCloser(strings.NewReader(c.body))
				}
				for name, values := range header {
					request.Header[name] = values
				}
				if test.token != "" {
					request.Header.Set("Authorization", "Bearer "+test.token)
				}
				if host := header.Get("Host"); host != "" {
					request.Host = host
				}
				if got := r.send(request); got.status != want {
					t.Errorf("%s %s %s with %v: %d %s, want %d", c.method, c.path, c.body, header, got.status, got.body, want)
				}
			}
			for _, c := range manage(nil, 0) {
				for _, header := range foreign {
					ask(c, header, test.status)
				}
				for _, header := range []http.Header{
					nil, {"Origin": {"http://" + addr}, "Sec-Fetch-Site": {"same-origin"}}, {"Sec-Fetch-Site": {"none"}}, {"Host": {"localhost:8080"}}, {"Host": {"[::1]"}},
				} {
					ask(c, header, 200)
				}
			}
			for _, header := range foreign {
				ask(call{method: "GET", path: check}, header, 200) // under the own address anybody may
			}
		})
	}
}
