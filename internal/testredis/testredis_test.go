package testredis

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
)

var shared *Server

func TestMain(m *testing.M) { os.Exit(Run(m, &shared)) }

func do(t *testing.T, s *Server, args ...any) any {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// refuses expects an error that begins so, whatever it says if that is "".
func refuses(t *testing.T, s *Server, beginning string, args ...any) {
	t.Helper()
	if _, err := s.Do(args...); err == nil || !strings.HasPrefix(err.Error(), beginning) {
		t.Errorf("%v: got %v, want an error that begins with %q", args, err, beginning)
	}
}

func hasURL(t *testing.T, of interface{ URL() string }, want string) {
	t.Helper()
	if of.URL() != want {
		t.Errorf("URL: got %s, want %s", of.URL(), want)
	}
}

func TestReplies(t *testing.T) {
	script := "return {1, 'two', {err = 'THREE no'}, false, {}, -5}"
	for _, c := range []struct {
		args []any
		want any
	}{
		{[]any{"PING"}, "PONG"},
		{[]any{"SET", "bytes", []byte("a\r\nb\x00")}, "OK"},
		{[]any{"GET", "bytes"}, "a\r\nb\x00"},
		{[]any{"STRLEN", "bytes"}, int64(5)},
		{[]any{"GET", "nothing"}, nil},
		{[]any{"ECHO", ""}, ""},
		{[]any{"EVAL", script, 0}, []any{int64(1), "two", "THREE no", nil, []any{}, int64(-5)}},
	} {
		got := do(t, shared, c.args...)
		if items, ok := got.([]any); ok {
			for i, item := range items {
				if failure, ok := item.(error); ok {
					items[i] = failure.Error()
				}
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: got %#v, want %#v", c.args, got, c.want)
		}
	}
	refuses(t, shared, "NOSCRIPT", "EVALSHA", strings.Repeat("0", 40), 0)
	refuses(t, shared, "") // as there is no command
}

func TestInfo(t *testing.T) {
	info := must.Get(shared.Info("server"))(t)
	if port := strings.TrimPrefix(shared.Addr(), "127.0.0.1:"); info["tcp_port"] != port {
		t.Errorf("tcp_port: got %q, want %q", info["tcp_port"], port)
	}
	if info, err := shared.Info("memory"); err != nil || info["used_memory"] == "" {
		t.Errorf("used_memory: got %q (%v)", info["used_memory"], err)
	}
}

func TestConfigAndPassword(t *testing.T) {
	s := Start(t, Config("maxmemory", "3mb"), Password("s3cret/?"))
	if got := do(t, s, "CONFIG", "GET", "maxmemory"); !reflect.DeepEqual(got, []any{"maxmemory", "3145728"}) {
		t.Errorf("maxmemory: got %v", got)
	}
	hasURL(t, s, "redis://:s3cret%2F%3F@"+s.Addr())
	hasURL(t, shared, "redis://"+shared.Addr())
	refuses(t, &Server{port: s.port}, "NOAUTH", "PING")
}

func TestRestart(t *testing.T) {
	s := Start(t)
	addr := s.Addr()
	do(t, s, "SET", "k", "v")
	s.Restart(t)
	if s.Addr() != addr {
		t.Errorf("the address changed from %s to %s", addr, s.Addr())
	}
	if got := do(t, s, "GET", "k"); got != nil {
		t.Errorf("got %v after a restart, want nothing", got)
	}
	must.Do(t, s.Kill())
	refuses(t, s, "", "PING")
	s.Restart(t)
	do(t, s, "PING")
}

func TestStop(t *testing.T) {
	s := Start(t)
	must.Do(t, s.Stop())
	refuses(t, s, "", "PING")
	if err := errors.Join(s.Stop(), s.Kill()); err != nil {
		t.Errorf("stopped twice: %v", err)
	}
	if err := s.Pause(); err == nil {
		t.Error("a stopped server was paused")
	}
}

func TestPause(t *testing.T) {
	s := Start(t)
	must.Do(t, s.Pause())
	reply := make(chan error, 1)
	go func() {
		_, err := s.Do("SET", "k", "v")
		reply <- err
	}()
	if err := paused(s.process.pid()); err != nil {
		t.Errorf("not paused: %v", err)
	}
	must.Do(t, s.Resume())
	if err := <-reply; err != nil {
		t.Errorf("the command sent meanwhile: %v", err)
	}
	if err := errors.Join(s.Pause(), s.Stop()); err != nil {
		t.Errorf("stopping a paused server: %v", err)
	}
}

// A port taken by somebody else is told apart from other faults and from a server
// that answers there.
func TestPortTaken(t *testing.T) {
	s := &Server{dir: t.TempDir(), port: shared.port, args: []string{"--bind", "127.0.0.1", "--save", ""}}
	if err := s.start(); !errors.Is(err, errPortTaken) {
		t.Errorf("got %v, want %v", err, errPortTaken)
	}
}

func TestFaultyConfig(t *testing.T) {
	_, err := New(t.TempDir(), Config("no-such-directive", "1"))
	if err == nil || !strings.Contains(err.Error(), "no-such-directive") {
		t.Errorf("got %v, want the server's own words", err)
	}
}

func TestMissingProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := New(t.TempDir())
	if !errors.Is(err, ErrMissing) {
		t.Fatalf("got %v, want %v", err, ErrMissing)
	}
	if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, "redis-server") || !strings.Contains(text, "make test") {
		t.Errorf("%q does not say in one line what to install and how", text)
	}
}

func TestCluster(t *testing.T) {
	c := StartCluster(t, 3)
	hasURL(t, c, "redis-cluster://"+strings.Join(c.Addrs(), ","))
	served := 0
	for i := range 30 {
		for _, node := range c.Nodes {
			_, err := node.Do("SET", fmt.Sprint("key", i), i)
			switch {
			case err == nil:
				served++
			case !strings.HasPrefix(err.Error(), "MOVED"):
				t.Errorf("key%d on %s: %v", i, node.Addr(), err)
			}
		}
	}
	if served != 30 {
		t.Errorf("30 keys were served %d times", served)
	}
}

func TestSentinel(t *testing.T) {
	s := StartSentinel(t, Password("pw"))
	hasURL(t, s, "redis-sentinel://:pw@"+strings.Join(addrs(s.Sentinels), ",")+"/stint")
	old := s.Primary
	s.Failover(t)
	if s.Primary == old {
		t.Error("the primary is still the same")
	}
	do(t, s.Primary, "SET", "k", "v")
	if err := s.replaced(); err == nil {
		t.Error("the old primary passes for the new one")
	}
}

// The sentinels replace a primary that is killed, by a replica that Follow finds.
func TestSentinelFollow(t *testing.T) {
	s := StartSentinel(t, SentinelPassword("of the sentinels"), TLS(NewAuthority(t)), GoneAfter(time.Second))
	if !strings.HasPrefix(s.URL(), "rediss-sentinel://") {
		t.Errorf("URL: got %s", s.URL())
	}
	old := s.Primary
	if now, err := s.Current(); now != old || err != nil {
		t.Errorf("the primary is %v (%v)", now, err)
	}
	must.Do(t, old.Kill())
	s.Follow(t)
	if s.Primary == old || slices.Index(s.Replicas, old) < 0 {
		t.Error("the old primary is not among the replicas")
	}
	do(t, s.Primary, "SET", "k", "v")
}

// A replica takes the place of a primary that is killed, with what was written before.
func TestClusterFailover(t *testing.T) {
	c := StartCluster(t, 3, Replicas(1), TLS(NewAuthority(t)), GoneAfter(2*time.Second))
	if len(c.Replicas) != 3 || !strings.HasPrefix(c.URL(), "rediss-cluster://") {
		t.Errorf("%d replicas at %s", len(c.Replicas), c.URL())
	}
	const slot = 0
	if holder, err := c.Holder(slot); holder != c.Nodes[0] || err != nil {
		t.Errorf("slot %d is held by %v (%v)", slot, holder, err)
	}
	must.Do(t, c.Nodes[0].Kill())
	var now *Server
	err := eventually(func() (err error) {
		now, err = c.Holder(slot)
		return err
	})
	if err != nil || now != c.Replicas[0] {
		t.Errorf("slot %d is held by %v (%v), want the replica", slot, now, err)
	}
}

// A slot moves with its keys, and its old holder says where to.
func TestMoveSlot(t *testing.T) {
	c := StartCluster(t, 2, Password("pw"))
	const slot = 12182 // of the key foo (Redis Cluster specification)
	from, to := c.Nodes[1], c.Nodes[0]
	for i := range 250 {
		do(t, from, "SET", fmt.Sprint("{foo}", i), i)
	}
	c.MoveSlot(t, slot, to)
	if got := do(t, to, "GET", "{foo}249"); got != "249" {
		t.Errorf("got %v, want 249", got)
	}
	refuses(t, from, fmt.Sprint("MOVED 12182 ", to.Addr()), "GET", "{foo}0")
	if now, err := c.Holder(slot); now != to || err != nil {
		t.Errorf("held by %v (%v)", now, err)
	}
}

func TestTLS(t *testing.T) {
	a := NewAuthority(t)
	s := Start(t, TLS(a), Password("pw"))
	hasURL(t, s, "rediss://:pw@"+s.Addr())
	do(t, s, "PING")
	refuses(t, &Server{port: s.port}, "", "PING") // without TLS
	// And a client whose certificate is of another authority.
	refuses(t, &Server{port: s.port, tls: NewAuthority(t)}, "", "PING")
}

func TestUser(t *testing.T) {
	s := Start(t, User("limiter", ">pw", "~k*", "+get"))
	if got := fmt.Sprint(do(t, s, "ACL", "LIST")); !strings.Contains(got, "user limiter on") || !strings.Contains(got, "+get") {
		t.Errorf("users: %s", got)
	}
}

func TestDurable(t *testing.T) {
	s := Start(t, Config("appendonly", "yes"), Config("appendfsync", "always"))
	do(t, s, "SET", "k", "v")
	must.Do(t, s.Kill())
	s.Restart(t)
	if got := do(t, s, "GET", "k"); got != "v" {
		t.Errorf("got %v after a crash, want v", got)
	}
}
