package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

// A running is a server that listens on 127.0.0.1 and ends with the test.
type running struct {
	t      *testing.T
	server *server.Server
	store  *store
	log    *logBuffer
	client *http.Client
	stop   context.CancelFunc
	ended  chan error // what Run returned
}

func run(t *testing.T, change func(*server.Config)) *running {
	t.Helper()
	return runOn(t, nil, change)
}

// runOn is run with connections of ln, unless it is nil.
func runOn(t *testing.T, ln *pipeListener, change func(*server.Config)) *running {
	t.Helper()
	config, store, log := testConfig()
	config.Listen = "127.0.0.1:0"
	config.API.Open = false
	config.Drain.KeepAlive = 0 // nobody waits for the connections of a test that ends
	config.Rules = compile(t, ruleList())
	if ln == nil { // on a busy machine a client may stand still for seconds
		config.HTTP.ReadHeaderTimeout, config.HTTP.BodyTimeout, config.HTTP.WriteTimeout = patience, patience, 2*patience
	}
	if change != nil {
		change(&config)
	}
	s := must.Get(server.New(config))(t)
	if s.Addr() != nil || s.AdminAddr() != nil {
		t.Error("a server that does not listen has an address")
	}
	ctx, stop := context.WithCancel(t.Context())
	transport := &http.Transport{}
	if ln != nil {
		s.SetListener(ln)
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return ln.dial() }
	}
	r := &running{
		t: t, server: s, store: store, log: log, stop: stop, ended: make(chan error, 1),
		client: &http.Client{Transport: transport},
	}
	go func() { r.ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		_ = r.end() // a test that cares has asked already
	})
	select {
	case <-s.Listening():
	case err := <-r.ended:
		t.Fatalf("Run: %v", err)
	}
	return r
}

// startFails makes and runs a server that can't start, and returns why.
func startFails(t *testing.T, change func(*server.Config)) (*server.Server, *logBuffer, error) {
	t.Helper()
	config, _, log := testConfig()
	config.Listen = "127.0.0.1:0"
	change(&config)
	s, err := server.New(config)
	if err == nil {
		err = s.Run(t.Context())
	}
	if err == nil {
		t.Fatal("the server starts")
	}
	return s, log, err
}

// end waits until Run has returned and returns its error.
func (r *running) end() error {
	err := <-r.ended
	r.ended <- err
	return err
}

func (r *running) request(method, addr, path string, body ...string) *http.Request {
	r.t.Helper()
	text := strings.NewReader(strings.Join(body, ""))
	return must.Get(http.NewRequestWithContext(r.t.Context(), method, "http://"+addr+path, text))(r.t)
}

func (r *running) send(request *http.Request) reply {
	r.t.Helper()
	response := must.Get(r.client.Do(request))(r.t)
	defer func() { _ = response.Body.Close() }()
	body := must.Get(io.ReadAll(response.Body))(r.t)
	return reply{t: r.t, status: response.StatusCode, header: response.Header, body: string(body)}
}

func (r *running) get(path string) reply {
	r.t.Helper()
	return r.send(r.request(http.MethodGet, r.server.Addr().String(), path))
}

// post sends a body to the service's own listener.
func (r *running) post(path, body string) reply {
	r.t.Helper()
	return r.send(r.request(http.MethodPost, r.server.Addr().String(), path, body))
}

func TestRun(t *testing.T) {
	r := run(t, nil)
	if got, want := r.log.String(), "level=INFO msg=listening service=http addr="+r.server.Addr().String()+"\n"; !strings.Contains(got, want) {
		t.Errorf("the log lacks %q:\n%s", want, got)
	}
	if !strings.Contains(r.log.String(), "level=WARN") || r.log.lines() != 2 {
		t.Errorf("the log, want the address and a warning that anybody may name keys:\n%s", r.log)
	}
	got := r.get(check + "?key=user:123")
	if got.status != 200 || got.check().Remaining != 99 {
		t.Errorf("on loopback keys may be named: %d %s", got.status, got.body)
	}
	if got.header.Get("Content-Length") != fmt.Sprint(len(got.body)) {
		t.Errorf("Content-Length %q of %d bytes", got.header.Get("Content-Length"), len(got.body))
	}
	if c := r.get(check).check(); c.Key != "127.0.0.1" {
		t.Errorf("without a key: %+v", c)
	}
	if r.server.AdminAddr() != nil {
		t.Error("there is an admin listener that nobody asked for")
	}
	if err := r.server.Run(t.Context()); err == nil {
		t.Error("Run runs twice")
	}
	options := r.request("OPTIONS", r.server.Addr().String(), "/")
	options.URL.Opaque = "*"
	r.send(options).problem(404, "path")
	r.stop()
	if err := r.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// A request in flight ends, and is answered, after Run was told to stop; meanwhile
// the server is not ready but alive.
func TestDrain(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	r := run(t, nil)
	r.store.enter = func(context.Context) { close(inside); <-release }
	answered := make(chan reply, 1)
	request := r.request("GET", r.server.Addr().String(), check+"?key=k")
	go func() { answered <- r.send(request) }()
	<-inside
	r.stop()
	f := &fixture{t: t, store: r.store, log: r.log, Handler: r.server.Handler(), router: description(t)}
	eventually(t, func() bool { return f.get(apipath.Readiness).status == http.StatusServiceUnavailable })
	if got := f.get(apipath.Readiness); got.body != `{"status":"DOWN","components":{"server":{"status":"DOWN"},"store":{"status":"UP"}}}`+"\n" {
		t.Errorf("readiness: %s", got.body)
	}
	if got := f.get(apipath.Liveness); got.status != 200 {
		t.Errorf("liveness: %d", got.status)
	}
	select {
	case err := <-r.ended:
		t.Fatalf("Run ended before its request: %v", err)
	default:
	}
	close(release)
	if got := <-answered; got.status != 200 || !got.check().Allowed {
		t.Errorf("the request in flight: %d %s", got.status, got.body)
	}
	if err := r.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.server.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("the address still accepts connections")
	}
}

// A request that is in flight when the drain begins is answered with the end of its connection, while others' are kept.
func TestDrainEndsConnectionsOfRequestsInFlight(t *testing.T) {
	for _, admin := range []bool{false, true} {
		inside, release := make(chan struct{}), make(chan struct{})
		r := run(t, func(c *server.Config) { c.Drain.KeepAlive, c.AdminListen = time.Hour, "127.0.0.1:0" })
		enter := sync.OnceFunc(func() { close(inside) })
		r.store.enter = func(context.Context) { enter(); <-release }
		request := r.request("GET", r.server.Addr().String(), check+"?key=k")
		if admin {
			request = r.request("POST", r.server.AdminAddr().String(), "/api/v1/rules/explain", `{"method":"GET","path":"/login"}`)
			request.Header.Set("Content-Type", "application/json")
		}
		answered := make(chan bool, 1)
		go func() {
			response, err := r.client.Do(request)
			answered <- err == nil && response.Close && response.Body.Close() == nil
		}()
		<-inside
		r.stop()
		f := &fixture{t: t, store: r.store, log: r.log, Handler: r.server.Handler(), router: description(t)}
		eventually(t, func() bool { return f.get(apipath.Readiness).status == http.StatusServiceUnavailable })
		close(release)
		if !<-answered {
			t.Errorf("the answer does not end its connection; of the admin listener: %t", admin)
			r.client.CloseIdleConnections()
		}
		if err := r.end(); err != nil { // long before the hour is over
			t.Errorf("Run = %v", err)
		}
	}
}

func TestDrainTimeout(t *testing.T) {
	inside := make(chan struct{})
	r := run(t, func(c *server.Config) { c.Drain.Timeout = time.Millisecond })
	r.store.enter = func(ctx context.Context) { close(inside); <-ctx.Done() }
	cut := make(chan error, 1)
	request := r.request("GET", r.server.Addr().String(), check+"?key=k")
	go func() {
		response, err := r.client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		cut <- err
	}()
	<-inside
	r.stop()
	if err := r.end(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run = %v, want that requests were cut off", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request was answered")
	}
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the condition did not come about in %v", patience)
		}
	}
}

// An address that another program has, or that can't be listened on, is named with its setting and its flag.
func TestListenFails(t *testing.T) {
	taken := run(t, nil).server.Addr().String()
	another := "another program listens on " + taken
	for _, test := range []struct {
		change func(*server.Config)
		says   []string
	}{
		{func(c *server.Config) { c.Listen = taken }, []string{"listen", another, "with --listen,"}},
		{func(c *server.Config) { c.AdminListen = taken }, []string{"admin_listen", another, "with --admin-listen,"}},
		{func(c *server.Config) { c.GRPCListen = taken }, []string{"grpc_listen", another}},
		{
			func(c *server.Config) { c.GRPCListen = "unix:" + filepath.Join(t.TempDir(), "none", "socket") },
			[]string{"grpc_listen", "unix: and the path of a socket that is not there yet"},
		},
	} {
		s, _, err := startFails(t, test.change)
		says(t, err.Error(), test.says...)
		if s.Addr() != nil {
			t.Errorf("%v, and the server has an address", err)
		}
	}
}

func TestAdmin(t *testing.T) {
	r := run(t, func(c *server.Config) { c.AdminListen = "127.0.0.1:0" })
	addr := r.server.AdminAddr().String()
	says(t, r.log.String(), "level=INFO msg=listening service=admin addr="+addr+"\n")
	send := func(host, origin, path string) reply {
		request := r.request("GET", addr, path)
		request.Host = host
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		return r.send(request)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=1", "/debug/pprof/symbol"} {
		if got := send(addr, "", path); got.status != 200 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := send("localhost:1", "http://localhost:1", "/debug/pprof/"); got.status != 200 {
		t.Errorf("its own page: %d %s", got.status, got.body)
	}
	send("evil.example", "", "/debug/pprof/").problem(403, "Host", "evil.example")
	send(addr, "http://evil.example", "/debug/pprof/").problem(403, "Origin", "evil.example")
	send(addr, "null", "/debug/pprof/").problem(403, "Origin")
	send(addr, "http://localhost:3000", "/debug/pprof/").problem(403, "Origin")
	send(addr, "", "/nothing").problem(404)
	send(addr, "", check).problem(404)
	r.get("/debug/pprof/").problem(404)
}

// A request that takes too long loses its connection, and so its context.
func TestSlowRequest(t *testing.T) {
	r := run(t, func(c *server.Config) { c.HTTP.WriteTimeout = time.Millisecond })
	r.store.enter = func(ctx context.Context) { <-ctx.Done() }
	response, err := r.client.Do(r.request("GET", r.server.Addr().String(), check+"?key=k"))
	if err == nil {
		_ = response.Body.Close()
		t.Errorf("status %d, want the connection closed", response.StatusCode)
	}
}

// All that is wrong with a configuration is reported at once, and no token is told.
func TestInvalidConfig(t *testing.T) {
	one := prometheus.NewCounter(prometheus.CounterOpts{Name: "one_total", Help: "One."})
	for name, test := range map[string]struct {
		change func(*server.Config)
		says   []string
	}{
		"nothing is as it should be": {func(c *server.Config) {
			c.Store, c.API.Tokens, c.ClientIP.IPv6Prefix, c.HTTP.MaxBodyMemory = nil, []string{"a b"}, 200, 1
			c.Defaults = map[stint.Algorithm]stint.Limit{
				stint.AlgorithmTokenBucket: stint.FixedWindow(1, time.Second),
				stint.AlgorithmFixedWindow: stint.FixedWindow(0, time.Second),
			}
			c.Policies = map[string][]stint.Limit{"": pushLimits(), "none": nil, "caf\u00e9": pushLimits()}
			c.TLS, c.AdminTLS = server.TLS{KeyFile: "k"}, server.TLS{CertFile: "c"}
		}, []string{
			"store is", "http.max_body_memory is 1;", "api.tokens_file", "IPv6Prefix is 200", "a limit of algorithm TOKEN_BUCKET",
			"FIXED_WINDOW: limit is 0", `policies is ""`, "policies: none: ", "policies: caf\u00e9: ",
			"tls.cert_file is", "admin_tls.key_file is",
		}},
		"fields of identity": {func(c *server.Config) {
			c.Identity = config.Identity{User: "X User", APIKey: "X-Key:", Attributes: map[string]string{"plan": "X:"}}
			c.Policies[""] = pushLimits()
		}, []string{
			`identity.user is "X User"`, `identity.api_key is "X-Key:"`, `identity.attributes.plan is "X:"`, `policies is ""`,
		}},
		"a token with blanks": {admins(server.AdminToken{Token: "a b c d"}), []string{"a token of 7 bytes"}},
		"a role":              {admins(server.AdminToken{Token: "abc", Role: 7}), []string{"a token with role 7"}},
		"a name": {
			admins(server.AdminToken{Token: "abc", Name: strings.Repeat("n", 65)}), []string{"a token's name of 65 bytes"},
		},
		"a name of two lines": {
			admins(server.AdminToken{Token: "abc", Name: "a\n"}), []string{"a token's name of 2 bytes"},
		},
		"a token with two roles": {
			admins(server.AdminToken{Token: "abc"}, server.AdminToken{Token: "abc", Role: server.RoleWrite}),
			[]string{"there twice"},
		},
		"a collector twice": {func(c *server.Config) { c.Collectors = []prometheus.Collector{one, one} }, []string{""}},
	} {
		_, _, err := startFails(t, test.change)
		says(t, err.Error(), test.says...)
		if strings.Contains(err.Error(), "a b") || strings.Contains(err.Error(), "abc") {
			t.Errorf("%s: the error tells a token:\n%v", name, err)
		}
		if len(test.says) > 1 && !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

// admins gives the admin listener these tokens.
func admins(tokens ...server.AdminToken) func(*server.Config) {
	return func(c *server.Config) { c.Admin.Tokens = tokens }
}
