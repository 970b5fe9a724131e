package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
)

// A talk is a client of the Redis protocol.
type talk struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
	another func() *talk // of the same service
	http    http.Handler // of the same service
	log     *logBuffer
}

// talking makes a client of a service, which is on this machine or is not.
func talking(t *testing.T, loopback bool, edit func(*server.Config)) *talk {
	t.Helper()
	config, _, log := testConfig()
	config.API.Open = false
	store := newStore()
	config.Store, config.InProcess = store, true
	config.Policies = map[string][]stint.Limit{
		"api": {stint.TokenBucket(2, stint.PerSecond(1)).Named("burst"), stint.FixedWindow(10, time.Hour).Named("hour")},
		"llm": {stint.Concurrency(1).WithCost(1), stint.FixedWindow(100, time.Hour).Named("tokens")},
	}
	config.Rules = compile(t, []rules.Rule{{
		ID: "login", Match: rules.Match{Paths: []string{"/login"}, Attributes: map[string][]string{"plan": {"free"}}},
		Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(1, time.Hour)},
	}})
	if edit != nil {
		edit(&config)
	}
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	served := s.RESP(loopback)
	t.Cleanup(func() {
		if err := served.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	var dial func() *talk
	dial = func() *talk {
		near, far := net.Pipe()
		ln := single{make(chan net.Conn, 1)}
		ln.conn <- addressed{far}
		_ = ln.Close()
		if err := served.Serve(ln); !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = near.Close() })
		return &talk{t, near, bufio.NewReader(near), dial, s.Handler(), log}
	}
	return dial()
}

// addressed is a connection from an address of this machine, as net.Pipe's are not.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9} }

// say sends commands, each a line of words, at once.
func (c *talk) say(lines ...string) {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(command(strings.Fields(line)...))
	}
	if _, err := io.WriteString(c, text.String()); err != nil {
		c.t.Error(err)
	}
}

// hear reads one answer: its parts, one behind another.
func (c *talk) hear() string {
	line, err := c.answers.ReadString('\n')
	if err != nil {
		return err.Error()
	}
	line = strings.TrimSuffix(line, "\r\n")
	n := 0
	for _, digit := range line[1:] {
		n = n*10 + int(digit-'0')
	}
	switch line[0] {
	case '$':
		text := make([]byte, max(n, 0)+2)
		if line == "$-1" {
			return "nil"
		}
		_, _ = io.ReadFull(c.answers, text)
		return string(text[:n])
	case '*', '%':
		if line[0] == '%' {
			n *= 2
		}
		var parts []string
		for range n {
			parts = append(parts, c.hear())
		}
		return "[" + strings.Join(parts, " ") + "]"
	case ':', '#':
		return line[1:]
	}
	return line
}

// expect has a conversation: commands that are sent at once, and what is answered.
func (c *talk) expect(said string, answers ...string) {
	c.t.Helper()
	go c.say(strings.Split(said, "\n")...)
	for i, want := range answers {
		if got := c.hear(); !isAnswer(got, want) {
			c.t.Errorf("%q: answer %d is %q, want %q", said, i, got, want)
		}
	}
}

// isAnswer reports whether an answer is as expected, or, where that ends in …, begins so.
func isAnswer(got, want string) bool {
	begin, more := strings.CutSuffix(want, "…")
	return got == want || more && strings.HasPrefix(got, begin)
}

func TestRESP(t *testing.T) {
	c := talking(t, true, nil)
	c.expect("PING\nping hello\nECHO a\nSELECT 0\nSELECT 15\nSELECT 0\nSELECT 16\nSELECT -1\nSELECT x\nCLIENT ID\nCLIENT SETNAME me\nclient getname\nCLIENT SETINFO LIB-NAME x",
		"+PONG", "hello", "a", "+OK", "+OK", "+OK", "-ERR DB index is out of range", "-ERR DB index is out of range", "-ERR DB index is out of range", "1", "+OK", "me", "+OK")
	c.expect("CLIENT MAINT_NOTIFICATIONS ON\nCLUSTER SLOTS\nSENTINEL masters\nGET k\nCONFIG GET save\nCONFIG GET nothing\nCOMMAND COUNT\nCOMMAND DOCS",
		"-ERR unknown subcommand…", "-ERR This instance has cluster support disabled", "-ERR unknown command 'SENTINEL', with args beginning with: 'masters' ",
		"-ERR unknown command 'GET', with args beginning with: 'k' ", "[save ]", "[]", "29", "[]")
	c.expect("COMMAND INFO CL.THROTTLE nothing ping", "[[cl.throttle -5 [+fast] 1 1 1] nil [ping -1 [+fast] 0 0 0]]")
	c.expect("HELLO 4\nHELLO 3 SETNAME you\nHELLO", "-NOPROTO unsupported protocol version",
		"[server stint version 7.2.0 proto 3 id 1 mode standalone role master modules []]", "[server stint version…")
	c.expect("CONFIG GET appendonly\nCLIENT GETNAME\nRESET\nCLIENT GETNAME\nHELLO 2 AUTH a b",
		"[appendonly no]", "you", "+RESET", "nil", "[server stint…")
	c.expect("AUTH x\nAUTH default x\nCONFIG GET max*", "-ERR AUTH <password> called without any password configured for the default user…", "+OK", "[maxmemory 0]")
	c.expect("INFO server", "# Server\r\nredis_version:7.2.0\r\n…")
	c.expect("QUIT\nPING", "+OK", "EOF")
}

// A wrong subcommand, and the HELP that nobody has here, is told which there are.
func TestRESPSubcommands(t *testing.T) {
	c := talking(t, true, nil)
	const wrong = "-ERR unknown subcommand or wrong number of arguments for "
	c.expect("CLIENT HELP\nCOMMAND GETKEYS\nCONFIG HELP\nCLIENT ID 1",
		wrong+"'HELP'; allowed: GETNAME, ID, NO-EVICT, NO-TOUCH, SETINFO, SETNAME, TRACKING",
		wrong+"'GETKEYS'; allowed: COUNT, DOCS, INFO, LIST", wrong+"'HELP'; allowed: GET", wrong+"'ID'; allowed: GETNAME…")
}

// A client that is refused before its first command hears nothing that helps, so the log says why, some of the times.
func TestRESPHandshakes(t *testing.T) {
	a, other := testredis.NewAuthority(t), testredis.NewAuthority(t)
	cert, key := a.Issue(t, "resp")
	shake := func(c net.Conn, config *tls.Config) { _ = tls.Client(c, config).HandshakeContext(t.Context()) }
	for name, test := range map[string]struct {
		say  func(net.Conn)
		want string // of the log
	}{
		"without TLS":      {func(c net.Conn) { _, _ = io.WriteString(c, "PING\r\n") }, "first record does not look like a TLS handshake"},
		"no certificate":   {func(c net.Conn) { shake(c, trusting(t, a, nil, "")) }, "client didn't provide a certificate"},
		"of others":        {func(c net.Conn) { shake(c, trusting(t, a, other, "x")) }, "failed to verify certificate"},
		"trusts others":    {func(c net.Conn) { shake(c, trusting(t, other, nil, "")) }, "remote error: tls: bad certificate"},
		"a look at a port": {func(net.Conn) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, func(c *server.Config) {
				c.RESPListen, c.RESPTLS = "127.0.0.1:0", server.TLS{CertFile: cert, KeyFile: key, ClientCAFile: a.CAFile}
			})
			for range 3 {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.server.RESPAddr().String())
				if err != nil {
					t.Fatal(err)
				}
				test.say(conn)
				_ = conn.(*net.TCPConn).CloseWrite()
				_, _ = io.Copy(io.Discard, conn) // until the service has closed it
				_ = conn.Close()
			}
			const head = `level=WARN msg="a TLS handshake on the listener of the Redis protocol failed" peer=127.0.0.1:`
			want := 1
			if test.want == "" {
				want = 0
			}
			if log := r.log.String(); strings.Count(log, head) != want || !strings.Contains(log, test.want) {
				t.Errorf("the log, want %d line with %q:\n%s", want, test.want, log)
			}
		})
	}
}

// INFO has what redis-cli --stat shows.
func TestRESPInfo(t *testing.T) {
	c := talking(t, true, nil)
	c.another().expect("PING\nPING", "+PONG", "+PONG")
	c.expect("PING", "+PONG")
	go c.say("INFO")
	info := c.hear()
	for _, want := range []string{
		`connected_clients:2`, `blocked_clients:0`, `used_memory:[1-9]\d{5,}`, `total_connections_received:2`, `total_commands_processed:3`,
	} {
		if !regexp.MustCompile("(?m)^" + want + "\r$").MatchString(info) {
			t.Errorf("INFO lacks %s:\n%s", want, info)
		}
	}
}

// The state is by key alone, as in redis-cell: other parameters go on with it.
func TestRESPThrottle(t *testing.T) {
	c := talking(t, true, nil)
	c.expect("CL.THROTTLE user123 15 30 60\nCL.THROTTLE user123 15 30 60 5\nTTL user123\nPTTL user123\nCL.THROTTLE user123 15 30 60 0\nEXISTS user123 other user123",
		"[0 16 15 -1 2]", "[0 16 10 -1 12]", "12", "12000", "[0 16 10 -1 12]", "2")
	c.expect("cl.throttle user123 15 30 60 11\ncl.throttle user123 15 30 60 17", "[1 16 10 2 12]", "[1 16 10 -1 12]")
	c.expect("CL.THROTTLE user123 3 1 60\nCL.THROTTLE user123 31 32 32 3\nTTL user123", "[0 4 3 -1 60]", "[0 32 0 -1 32]", "32")
	c.expect("DEL user123 user123 other\nTTL user123\nPTTL never\nEXISTS user123\nCL.THROTTLE user123 15 30 60\nUNLINK user123",
		"1", "-2", "-2", "0", "[0 16 15 -1 2]", "1")
	c.expect("CL.THROTTLE k 0 1 1000\nCL.THROTTLE k 0 1 1000", "[0 1 0 -1 1000]", "[1 1 0 1000 1000]")
	for args, want := range map[string]string{
		"k -1 30 60":                        `max_burst is "-1"; allowed: an integer from 0 to 999999999`,
		"k 1 0 60":                          `count is "0"; allowed: an integer from 1 to 1000000000`,
		"k 1 x 0":                           `count is "x"; allowed: an integer from 1 to 1000000000`,
		"k 1 1 31622401":                    `period is "31622401"; allowed: an integer from 1 to 31622400`,
		"k 1 1 1 99999999999":               `quantity is "99999999999"; allowed: an integer from 0 to 1000000000`,
		"k 999999999 1 60":                  `max_burst, count and period is "999999999, 1 and 60"; allowed: a bucket that fills in less than 10 years`,
		"\x01 1 1 1":                        `key is "\x01"; allowed: no control characters`,
		strings.Repeat("k", 257) + " 1 1 1": `key is "`,
	} {
		c.expect("CL.THROTTLE "+args, "-ERR "+want+"…")
	}
	c.expect("CL.THROTTLE k 1 1", "-ERR wrong number of arguments for 'cl.throttle' command")
}

// TTL goes by a key's own parameters, though so many others were asked with that those were forgotten meanwhile.
func TestRESPThrottleOfManyParameters(t *testing.T) {
	c := talking(t, true, nil)
	other := c.another()
	c.expect("CL.THROTTLE k 9 1 100", "[0 10 9 -1 100]")
	for i := range 1100 {
		other.expect(fmt.Sprintf("CL.THROTTLE x%d 9 1 %d", i, 1000+i), fmt.Sprintf("[0 10 9 -1 %d]", 1000+i))
	}
	c.expect("CL.THROTTLE k 9 1 100\nTTL k", "[0 10 8 -1 200]", "200")
}

// Commands between MULTI and EXEC are decided at EXEC, and answered together.
func TestRESPMulti(t *testing.T) {
	c := talking(t, true, nil)
	c.expect("MULTI\nCL.THROTTLE k 1 1 60\nPING\nSTINT.CHECK api k\nMULTI\nDISCARD\nEXEC\nDISCARD",
		"+OK", "+QUEUED", "+QUEUED", "+QUEUED", "-ERR MULTI calls can not be nested", "+OK", "-ERR EXEC without MULTI", "-ERR DISCARD without MULTI")
	c.expect("EXISTS k\nMULTI\nCL.THROTTLE k 1 1 60\nPING\nTTL k\nEXEC", "0", "+OK", "+QUEUED", "+QUEUED", "+QUEUED", "[[0 2 1 -1 60] +PONG 60]")
	c.expect("MULTI\nGET k\nPING\nEXEC\nPING", "+OK", "-ERR unknown command…", "+QUEUED", "-EXECABORT Transaction discarded because of previous errors.", "+PONG")
	c.expect("MULTI\nCL.THROTTLE k 1 1 x\nCL.THROTTLE k 1 1 60\nEXEC", "+OK", "+QUEUED", "+QUEUED", `[-ERR period is "x"; allowed: an integer from 1 to 31622400 [0 2 0 -1 120]]`)
	c.expect("MULTI\nEXEC\nMULTI\nRESET\nEXEC", "+OK", "[]", "+OK", "+RESET", "-ERR EXEC without MULTI")
	long := "ECHO " + strings.Repeat("x", 300_000)
	c.expect(strings.Join([]string{"MULTI", long, long, long, long, "PING", "EXEC", "PING"}, "\n"), "+OK", "+QUEUED", "+QUEUED", "+QUEUED",
		"-ERR too much between MULTI and EXEC…", "+QUEUED", "-EXECABORT…", "+PONG")
}

// STINT.* say what the REST API says, by the same names, in RESP 2 as pairs.
func TestRESPCommands(t *testing.T) {
	c := talking(t, true, nil)
	c.expect("STINT.CHECK api k\nSTINT.CHECK api k 1\nSTINT.CHECK api k",
		"[allowed 1 limit 2 remaining 1 resetAfterMicros 1000000 retryAfterMicros 0 delayMicros 0 at 1790000050500000 algorithm TOKEN_BUCKET degraded 0 source store]",
		"[allowed 1 limit 2 remaining 0…", "[allowed 0 limit 2 remaining 0 resetAfterMicros 2000000 retryAfterMicros 1000000…")
	c.expect("STINT.CHECK nothing k\nSTINT.CHECK api k 3\nSTINT.CHECK llm k", `-ERR policy is "nothing"; allowed: api, llm`,
		`-ERR permits is "3"; allowed: an integer from 1 to 2`, "-ERR the operation is \"take\"; allowed: reserve…")
	c.expect("HELLO 3\nSTINT.EVALUATE POST /login ip 192.0.2.1 attributes.plan free\nSTINT.EVALUATE POST /login ip 192.0.2.1 attributes.plan free",
		"[server…", "[allowed t limit 1 remaining 0…", "[allowed f limit 1 remaining 0…")
	c.expect("STINT.EVALUATE GET /\nSTINT.EVALUATE GET / ip\nSTINT.EVALUATE GET / x y\nSTINT.EVALUATE GET / ip 1\nSTINT.EVALUATE GET a\nSTINT.EVALUATE GET / set s\nSTINT.EVALUATE GET / wait maybe\nSTINT.EVALUATE GET / headers.A b headers.a c",
		"[allowed t limit 0 remaining 0…", "-ERR ip has no value", `-ERR name is "x"; allowed: host, ip, set, wait, headers.NAME or attributes.NAME`,
		`-ERR ip is "1"; allowed: an IPv4 or IPv6 address`, `-ERR path is "a"…`, "-NOPERM the request names a set of rules…", `-ERR wait is "maybe"…`, "-ERR headers.a is repeated…")
}

func TestRESPHolds(t *testing.T) {
	c := talking(t, true, nil)
	c.expect("STINT.RESERVE a llm k 40 10s\nSTINT.RESERVE b llm k 40 10s\nSTINT.RESERVE a llm k 40 10s",
		"[allowed 1 limit 1 remaining 0…", "[allowed 0 limit 1 remaining 0…", "[allowed 1 limit 1 remaining 0…")
	c.expect("STINT.COMMIT a 12\nSTINT.COMMIT a 12\nSTINT.COMMIT a 13\nSTINT.CANCEL a", "[id a applied -28 late 0 replayed 0 reset 0…",
		"[id a applied -28 late 0 replayed 1…", "-CONFLICT the hold \"a\" was committed at…", "-CONFLICT the hold \"a\" was committed at…")
	c.expect("STINT.RESERVE c llm k 40 10s\nSTINT.CANCEL c\nSTINT.COMMIT never 1\nSTINT.COMMIT never 1 llm\nSTINT.COMMIT never 1 llm k\nSTINT.COMMIT never 1 llm k 1790000050500000\nSTINT.CANCEL other llm k",
		"[allowed 1…", "[id c applied -40…", `-UNKNOWN this process has not reserved "never": name the policy and the key behind the id and n`,
		`-ERR key is "missing"; allowed: the policy and the key of the hold, or neither`, "-UNKNOWN the reservation is not known…", "[id never applied 1 late 1…", "-UNKNOWN…")
	c.expect("STINT.RESERVE d llm k 40 forever\nSTINT.RESERVE d llm k 40 1ms\nSTINT.RESERVE d llm k 0 10s\nSTINT.COMMIT a -1\nSTINT.COMMIT a 1 llm k soon",
		`-ERR ttl is "forever"; allowed: 1s to 1h`, "-ERR ttl is 1ms…", `-ERR n is "0"…`, `-ERR n is "-1"…`, `-ERR expiresAt is "soon"…`)
}

// unreachable is a store that a failure policy answers for, by admitting without a hold.
type unreachable struct {
	stint.Store
	down atomic.Bool
}

func (u *unreachable) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	if !u.down.Load() {
		u.Store.DecideAll(ctx, ops, results)
		return
	}
	const now stint.Instant = 1_790_000_050_500_000 // the store's
	for i := range ops {
		results[i] = stint.Result{Err: stint.ErrUnavailable}
		if ops[i].Verb == stint.VerbReserve {
			ops[i].Hold().ExpiresAt = now.Add(ops[i].Hold().Lives())
			results[i] = stint.Result{Decision: stint.Decision{
				Allowed: true, Degraded: true, Source: stint.SourceFailurePolicy, At: now,
			}}
		}
	}
}

// The short commit of a hold that no store has is charged when the store is back, once.
func TestRESPCommitsADegradedHold(t *testing.T) {
	store := &unreachable{}
	c := talking(t, true, func(c *server.Config) { store.Store, c.Store, c.InProcess = c.Store, store, false })
	c.expect("STINT.RESERVE live llm k 40 10s\nSTINT.COMMIT live 5", "[allowed 1…", "[id live applied -35 late 0…")
	store.down.Store(true)
	c.expect("STINT.RESERVE a llm k 40 10s\nSTINT.RESERVE b llm k 40 10s\nSTINT.COMMIT a 12",
		"[allowed 1…", "[allowed 1…", "-UNAVAILABLE…")
	store.down.Store(false)
	c.expect("STINT.COMMIT a 12\nSTINT.COMMIT a 12\nSTINT.COMMIT b 3 llm k\nSTINT.COMMIT c 1",
		"[id a applied 12 late 1 replayed 0…", "[id a applied 12 late 1 replayed 1…", "[id b applied 3 late 1 replayed 0…", "-UNKNOWN…")
	c.expect("STINT.RESERVE d llm k 80 10s", "[allowed 1…") // 5 + 12 + 3 + 80 are 100
	c.expect("STINT.RESERVE d llm k 81 10s", "[allowed 0…")
}

// counted fails unless the service's metrics have each line.
func (c *talk) counted(lines ...string) {
	c.t.Helper()
	recorder := httptest.NewRecorder()
	c.http.ServeHTTP(recorder, httptest.NewRequestWithContext(c.t.Context(), http.MethodGet, apipath.Metrics, nil))
	for _, line := range lines {
		if !strings.Contains(recorder.Body.String(), line+"\n") {
			c.t.Errorf("the metrics lack %s", line)
		}
	}
}

// Holds, refusals and overload are counted as over HTTP.
func TestRESPMetrics(t *testing.T) {
	t.Run("holds", func(t *testing.T) {
		c := talking(t, true, nil)
		c.expect("STINT.RESERVE a llm k 40 10s\nSTINT.RESERVE b llm k 40 10s\nSTINT.COMMIT a 12\nSTINT.RESERVE c llm k 40 10s",
			"[allowed 1…", "[allowed 0…", "[id a applied -28…", "[allowed 1…")
		c.counted(
			`rate_limiter_holds_total{outcome="reserved"} 2`, `rate_limiter_holds_total{outcome="denied"} 1`,
			`rate_limiter_holds_total{outcome="committed"} 1`, "rate_limiter_holds_live 1",
		)
	})
	t.Run("unauthenticated", func(t *testing.T) {
		c := talking(t, true, func(c *server.Config) { c.API.Tokens = []string{"secret"} })
		c.expect("CL.THROTTLE k 1 1 1\nAUTH wrong\nHELLO 3\nPING", "-NOAUTH…", "-WRONGPASS…", "-NOAUTH HELLO…", "-NOAUTH…")
		c.counted(`rate_limiter_api_refused_total{outcome="unauthenticated"} 3`, `rate_limiter_api_refused_total{outcome="invalid_token"} 1`)
	})
	t.Run("forbidden", func(t *testing.T) {
		c := talking(t, false, nil)
		c.expect("CL.THROTTLE k 1 1 1", "-NOPERM…")
		c.counted(`rate_limiter_api_refused_total{outcome="forbidden"} 1`)
	})
	t.Run("overload", func(t *testing.T) {
		busy := newStore()
		busy.fail(stint.ErrOverloaded)
		c := talking(t, true, func(c *server.Config) { c.Store, c.InProcess = busy, false })
		c.expect("CL.THROTTLE k 1 1 1", "-UNAVAILABLE…")
		c.counted("rate_limiter_overloaded_total 1", `rate_limiter_requests_total{algorithm="TOKEN_BUCKET",allowed="false"} 1`)
		if !strings.Contains(c.log.String(), "this process is overloaded") {
			t.Errorf("the log: %s", c.log)
		}
	})
}

// Who may name keys over HTTP may do so here.
func TestRESPAuthority(t *testing.T) {
	tokens := func(c *server.Config) { c.API.Tokens = []string{"secret"} }
	c := talking(t, false, tokens)
	c.expect("PING\nCL.THROTTLE k 1 1 1\nHELLO 3\nAUTH wrong\nAUTH any secret\nCL.THROTTLE k 1 1 1", "-NOAUTH Authentication required.", "-NOAUTH…",
		"-NOAUTH HELLO must be called with the client already authenticated…", "-WRONGPASS…", "+OK", "[0 2 1 -1 1]")
	c.expect("RESET\nPING\nHELLO 3 AUTH default secret SETNAME me\nPING", "+RESET", "-NOAUTH…", "[server stint…", "+PONG")
	none := talking(t, false, nil)
	none.expect("PING\nCL.THROTTLE k 1 1 1\nMULTI\nDEL k\nEXEC", "+PONG", "-NOPERM naming a key, reset, settle…", "+OK", "-NOPERM…", "-EXECABORT…")
	open := talking(t, false, func(c *server.Config) { c.API.Open = true })
	open.expect("CL.THROTTLE k 1 1 1", "[0 2 1 -1 1]")
	own := talking(t, true, func(c *server.Config) { c.API.ExplicitKeys = false })
	own.expect("CL.THROTTLE k 1 1 1\nSTINT.EVALUATE GET / ip 192.0.2.1", "-NOPERM the request names a key; allowed: none…", "[allowed 1…")
}

// What is no command ends the connection, behind the answers to what came before it.
func TestRESPMalformed(t *testing.T) {
	for text, want := range map[string]string{
		"*1\r\n$4\r\nPING\r\nGET / HTTP/1.1\r\n":     "-ERR unknown command 'GET', in a line that is no array; the connection is closed",
		"*1\r\n$536870912\r\n":                       "-ERR Protocol error: an argument of 536870912 bytes…",
		"*16385\r\n":                                 "-ERR Protocol error: a command of 16385 arguments; allowed: 16384",
		"*x\r\n":                                     "-ERR Protocol error: 'x' in the length of an argument",
		"*1\r\n+PING\r\n":                            "-ERR Protocol error: expected '$', got '+'",
		"*1\r\n$-1\r\n":                              "-ERR Protocol error: '-' in the length of an argument",
		"*1\r\n$4\r\nPINGPING\r\n":                   "-ERR Protocol error: an argument of 4 bytes is not followed by the end of the line",
		"*1\r\n$1048577\r\n":                         "-ERR Protocol error: an argument of 1048577 bytes…",
		strings.Repeat("x", 1024):                    "-ERR Protocol error: a line of more than 1024 bytes that is no array",
		"*99999999999999999999\r\n":                  "-ERR Protocol error: '9' in the length of an argument",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\n": "-ERR unknown command…",
	} {
		c := talking(t, true, nil)
		c.expect("PING", "+PONG")
		go func() { _, _ = io.WriteString(c, "*0\r\n\r\n*-1\r\nping\r\n"+text) }()
		if got := c.hear(); got != "+PONG" {
			t.Errorf("%q: PING in a line: %q", text, got)
		}
		if strings.HasPrefix(text, "*1\r\n$4\r\nPING\r\nG") {
			c.hear()
		}
		c.expectNext(text, want)
		c.expectNext(text, "EOF")
	}
}

func (c *talk) expectNext(said, want string) {
	c.t.Helper()
	if got := c.hear(); !isAnswer(got, want) {
		c.t.Errorf("%q: %q, want %q", said, got, want)
	}
}

// A command that comes byte by byte is the same command.
func TestRESPByteByByte(t *testing.T) {
	c := talking(t, true, nil)
	go func() {
		for _, b := range []byte(command("CL.THROTTLE", "k", "1", "1", "1") + "PING\r\n" + command("ECHO", strings.Repeat("y", 5000))) {
			_, _ = c.Write([]byte{b})
		}
	}()
	for _, want := range []string{"[0 2 1 -1 1]", "+PONG", strings.Repeat("y", 5000)} {
		c.expectNext("byte by byte", want)
	}
}
