package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
)

// A talk is a client of the Redis protocol.
type talk struct {
	t testing.TB
	net.Conn
	answers *bufio.Reader
	another func() *talk // of the same service
	log     *logBuffer
}

// talking makes a client of a service, which is on this machine or is not.
func talking(t *testing.T, loopback bool, edit func(*server.Config)) *talk {
	t.Helper()
	return newFixture(t, func(config *server.Config) {
		config.API.Open, config.InProcess = false, true
		config.Policies = map[string][]stint.Limit{
			"api": {stint.TokenBucket(2, stint.PerSecond(1)).Named("burst"), stint.FixedWindow(10, time.Hour).Named("hour")},
			"llm": {stint.Concurrency(1).WithCost(1), stint.FixedWindow(100, time.Hour).Named("tokens")},
		}
		config.Rules = compile(t, []rules.Rule{{
			ID: "login", Match: rules.Match{Paths: []string{"/login"}, Attributes: map[string][]string{"plan": {"free"}}},
			Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(1, time.Hour)},
		}})
		if edit != nil {
			edit(config)
		}
	}).talk(loopback)
}

// talk makes a client of the Redis protocol, which is on this machine or is not.
func (f *fixture) talk(loopback bool) *talk {
	f.t.Helper()
	served := f.server.RESP(loopback)
	f.t.Cleanup(func() {
		if err := served.Shutdown(context.Background()); err != nil {
			f.t.Error(err)
		}
	})
	var dial func() *talk
	dial = func() *talk {
		near, far := net.Pipe()
		ln := single{make(chan net.Conn, 1)}
		ln.conn <- addressed{far}
		_ = ln.Close()
		if err := served.Serve(ln); !errors.Is(err, net.ErrClosed) {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { _ = near.Close() })
		return &talk{f.t, near, bufio.NewReader(near), dial, f.log}
	}
	return dial()
}

// addressed is a connection from an address of this machine, as net.Pipe's are not.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9} }

// say sends commands, each a line of words as a shell takes them, at once.
func (c *talk) say(lines ...string) {
	var text strings.Builder
	for _, line := range lines {
		text.WriteString(testredis.Command(words(line)...))
	}
	if _, err := io.WriteString(c, text.String()); err != nil {
		c.t.Error(err)
	}
}

// hear reads one answer: its parts, one behind another.
func (c *talk) hear() string {
	r, err := testredis.ReadReply(c.answers)
	if err != nil {
		return err.Error()
	}
	return heard(r)
}

func heard(r testredis.Reply) string {
	switch r.Kind {
	case '_':
		return "nil"
	case '+', '-':
		return string(r.Kind) + r.Text
	case '*', '%':
		var parts []string
		for _, item := range r.Items {
			parts = append(parts, heard(item))
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return r.Text
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
				conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", r.server.RESPAddr().String()))(t)
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
		`redis_version:7.2.0`, `connected_clients:2`, `blocked_clients:0`, `used_memory:[1-9]\d{5,}`, `total_connections_received:2`, `total_commands_processed:3`,
	} {
		if !regexp.MustCompile("(?m)^" + want + "\r$").MatchString(info) {
			t.Errorf("INFO lacks %s:\n%s", want, info)
		}
	}
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
			ops[i].Hold().ExpiresAt = now.Add(bounds.HoldTTL(ops[i].Hold().TTL))
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

// A command that comes byte by byte is the same command.
func TestRESPByteByByte(t *testing.T) {
	c := talking(t, true, nil)
	go func() {
		for _, b := range []byte(testredis.Command("CL.THROTTLE", "k", "1", "1", "1") + "PING\r\n" + testredis.Command("ECHO", strings.Repeat("y", 5000))) {
			_, _ = c.Write([]byte{b})
		}
	}()
	for _, want := range []string{"[0 2 1 -1 1]", "+PONG", strings.Repeat("y", 5000)} {
		if got := c.hear(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
