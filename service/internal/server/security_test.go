package server_test

import (
	"errors"
	"net"
	"net/http"
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

// A call is a request.
type call struct{ method, path, body string }

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// manage are the requests that name a key, reset or settle.
func manage() []call {
	return []call{
		{"GET", check + "?key=k", ""},
		{"POST", check, `{"key":"k"}`},
		{"POST", check, `[{},{"key":"k"}]`},
		{"GET", apipath.Remaining + "?key=k", ""},
		{"HEAD", apipath.Remaining + "?key=k", ""},
		{"DELETE", apipath.Reset + "?key=k", ""},
		{"DELETE", apipath.Reset, ""},
		{"POST", apipath.Settle, `{"key":"k","permits":1}`},
		{"POST", apipath.Settle, `{"permits":1}`},
		{"POST", apipath.Evaluate, `{"ip":"198.51.100.1"}`},
	}
}

// "Without one they are allowed on a loopback listener ... and the log says so at start", for every kind of listener. Each
// has its own warning, of what is true of it.
func TestListenersAndTheLog(t *testing.T) {
	tokens := func(c *server.Config) { c.API.Tokens = []string{apiToken} }
	open := func(c *server.Config) { c.API.Open = true }
	closed := func(c *server.Config) { c.API.ExplicitKeys = false }
	const here, others, refused, anyone = "127.0.0.1:0", "0.0.0.0:0", "are refused", "anyone who can reach"
	const http, resp, machine = "service=http ", "service=resp ", "anyone on this machine"
	for name, test := range map[string]struct {
		listen, resp string
		change       func(*server.Config)
		status       int
		warns        map[string]string // by the listener that is named
	}{
		"loopback":               {here, "", nil, 200, map[string]string{http: "anyone on this machine may name keys"}},
		"all addresses":          {others, "", nil, 403, map[string]string{http: "keys, reset, settle and evaluate " + refused}},
		"all addresses, open":    {others, "", open, 200, map[string]string{http: anyone + " the service may name keys"}},
		"all addresses, tokens":  {others, "", tokens, 401, map[string]string{"": "tokens are sent unencrypted"}},
		"loopback, tokens":       {here, "", tokens, 401, nil},
		"an address of no host":  {":0", "", nil, 403, map[string]string{http: refused}},
		"loopback by its name":   {"localhost:0", "", nil, 200, map[string]string{http: machine}},
		"loopback, closed by us": {here, "", closed, 403, map[string]string{http: machine}},
		"both on loopback":       {here, here, nil, 200, map[string]string{http: machine, resp: machine}},
		"resp for others":        {here, others, nil, 200, map[string]string{http: machine, resp: refused}},
		"http for others":        {others, here, nil, 403, map[string]string{http: refused, resp: machine}},
		"open, one on others":    {here, others, open, 200, map[string]string{http: anyone, resp: anyone}},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, func(c *server.Config) {
				c.HTTP.MaxConnections = 100 // of which no system has too few
				if c.Listen, c.RESPListen = test.listen, test.resp; test.change != nil {
					test.change(c)
				}
			})
			addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: r.server.Addr().(*net.TCPAddr).Port}).String()
			if got := r.send(r.request("GET", addr, check+"?key=k")); got.status != test.status {
				t.Errorf("naming a key: %d %s, want %d", got.status, got.body, test.status)
			}
			for service, text := range test.warns {
				want := regexp.MustCompile("level=WARN .*" + text + ".* " + service + "addr=")
				if !want.MatchString(r.log.String()) {
					t.Errorf("the log lacks %s:\n%s", want, r.log)
				}
			}
			if warned := strings.Count(r.log.String(), "level=WARN"); warned != len(test.warns) {
				t.Errorf("%d warnings, want %d:\n%s", warned, len(test.warns), r.log)
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
		s, log, err := startFails(t, func(c *server.Config) { c.AdminListen = listen })
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
				request := r.request(c.method, addr, c.path, c.body)
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
			for _, c := range manage() {
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
