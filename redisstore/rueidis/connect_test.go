package rueidis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// minimal is what docs/redis.md says a user needs to be allowed.
func minimal(t testing.TB) []string {
	t.Helper()
	text := must.Get(os.ReadFile("../../docs/redis.md"))(t)
	_, rules, found := strings.Cut(string(text), "ACL SETUSER limiter on >PASSWORD ")
	rules, _, ended := strings.Cut(rules, "\n")
	if !found || !ended {
		t.Fatal("docs/redis.md says no rights")
	}
	return strings.Fields(rules)
}

// writeSecret writes a file.
func writeSecret(t testing.TB, name, text string) string {
	t.Helper()
	must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// Every topology, with TLS, client certificates and passwords from wherever they may
// be.
func TestTopologies(t *testing.T) {
	t.Parallel()
	authority := testredis.NewAuthority(t)
	files := rueidis.TLSFiles{CAFile: authority.CAFile, CertFile: authority.CertFile, KeyFile: authority.KeyFile}
	file := writeSecret(t, filepath.Join(t.TempDir(), "password"), "s3cret\n")
	tls, password := testredis.TLS(authority), testredis.Password("s3cret")
	for name, make := range map[string]func(t *testing.T) (rueidis.Config, []*testredis.Server){
		"TLS": func(t *testing.T) (rueidis.Config, []*testredis.Server) {
			own := testredis.Start(t, tls, password)
			return rueidis.Config{URL: own.URL() + "/2", TLS: files}, []*testredis.Server{own}
		},
		"TLS by another name": func(t *testing.T) (rueidis.Config, []*testredis.Server) {
			own := testredis.Start(t, tls)
			files := files
			files.ServerName = "server"
			return rueidis.Config{URL: own.URL(), TLS: files}, []*testredis.Server{own}
		},
		"user with the least rights": func(t *testing.T) (rueidis.Config, []*testredis.Server) {
			own := testredis.Start(t, testredis.User("limiter", append([]string{">s3cret"}, minimal(t)...)...))
			return rueidis.Config{URL: own.URL(), Username: "limiter", PasswordFile: file}, []*testredis.Server{own}
		},
		"user with the least rights in a cluster": func(t *testing.T) (rueidis.Config, []*testredis.Server) {
			cluster := testredis.StartCluster(t, 3, testredis.User("limiter", append([]string{">s3cret"}, minimal(t)...)...))
			return rueidis.Config{URL: cluster.URL(), Username: "limiter", Password: "s3cret"}, cluster.Nodes
		},
		"user with the least rights and sentinels": func(t *testing.T) (rueidis.Config, []*testredis.Server) {
			watched := testredis.StartSentinel(t, testredis.User("limiter", append([]string{">s3cret"}, minimal(t)...)...))
			for _, sentinel := range watched.Sentinels {
				must.Get(sentinel.Do("ACL", "SETUSER", "asker", "on", ">theirs", "+ping", "+sentinel|get-master-addr-by-name"))(t)
			}
			return rueidis.Config{
				URL: watched.URL(), Username: "limiter", PasswordFile: file, SentinelUsername: "asker", SentinelPassword: "theirs",
			}, []*testredis.Server{watched.Primary}
		},
		"socket": func(t *testing.T) (rueidis.Config, []*testredis.Server) {
			dir := must.Get(os.MkdirTemp("", "stint"))(t) //nolint:usetesting // a socket's path is short
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			socket := filepath.Join(dir, "redis.sock")
			own := testredis.Start(t, testredis.Config("unixsocket", socket), password)
			return rueidis.Config{URL: "unix://:s3cret@" + socket + "?db=1"}, []*testredis.Server{own}
		},
		"sentinel": func(t *testing.T) (rueidis.Config, []*testredis.Server) {
			watched := testredis.StartSentinel(t, tls, password, testredis.SentinelPassword("theirs"))
			url := strings.Replace(watched.URL(), ":s3cret@", "", 1)
			return rueidis.Config{URL: url, Password: "s3cret", SentinelPassword: "theirs", TLS: files}, []*testredis.Server{watched.Primary}
		},
		"cluster": func(t *testing.T) (rueidis.Config, []*testredis.Server) {
			cluster := testredis.StartCluster(t, 3, tls, password)
			return rueidis.Config{URL: "rediss-cluster://" + cluster.Nodes[2].Addr(), PasswordFile: file, TLS: files}, cluster.Nodes
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, servers := make(t)
			for _, encoding := range encodings {
				store := open(t, c, redisstore.Options{LogEncoding: encoding})
				until(t, "the store is connected", func() bool { return store.Ping(t.Context()) == nil })
				exercise(t, store, string(encoding))
				policy := policyOf(t, "settled"+string(encoding), aLimit(stint.AlgorithmSlidingWindowLog, 50))
				take(t, store, "k", policy, 50)
				decide(t, store, op(stint.VerbSettle, "k", policy, -10))
				if d := take(t, store, "k", policy, 10); !d.Allowed {
					t.Errorf("%s: %+v after a refund", encoding, d)
				}
				must.Do(t, store.ResetAll(t.Context(), stint.Scope{Policy: policy.Name()}))
				must.Do(t, store.ResetAll(t.Context(), stint.Scope{All: true}))
				until(t, "announcements are heard", func() bool { return store.Stats().Announcing })
				store.Close()
				for _, server := range servers {
					must.Get(server.Do("FLUSHALL"))(t) // another encoding needs other settings
				}
			}
		})
	}
}

// A server that is absent, or that does not let the store in, is an error that says
// why, without the password; once it does, the same store decides.
func TestConnectRecovers(t *testing.T) {
	t.Parallel()
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 1000))
	limiter := func(s *testredis.Server) rueidis.Config {
		return rueidis.Config{URL: s.URL(), Username: "limiter", Password: "hunter2"}
	}
	rule := func(s *testredis.Server, rules ...any) {
		t.Helper()
		must.Get(s.Do(append([]any{"ACL", "SETUSER", "limiter"}, rules...)...))(t)
	}
	for _, c := range []struct {
		name, cause string
		connection  func(s *testredis.Server) rueidis.Config
		break_      func(s *testredis.Server)
		mend        func(s *testredis.Server)
	}{
		{
			"absent", "connection refused",
			func(s *testredis.Server) rueidis.Config { return rueidis.Config{URL: s.URL()} },
			func(s *testredis.Server) { must.Do(t, s.Stop()) },
			func(s *testredis.Server) { s.Restart(t) },
		},
		{
			"wrong password, changed at the server", "WRONGPASS",
			limiter,
			func(s *testredis.Server) { rule(s, "on", ">another", "~*", "&*", "+@all") },
			func(s *testredis.Server) { rule(s, ">hunter2") },
		},
		{
			"not permitted", "NOPERM",
			limiter,
			func(s *testredis.Server) { rule(s, "on", ">hunter2", "~*", "&*", "-@all") },
			func(s *testredis.Server) { rule(s, "+@all") },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := testredis.Start(t)
			c.break_(own)
			store := open(t, c.connection(own), redisstore.Options{})
			for range 3 {
				_, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1))
				if !errors.Is(err, stint.ErrUnavailable) || !strings.Contains(err.Error(), c.cause) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("got %v, want %v for %s and no password", err, stint.ErrUnavailable, c.cause)
				}
			}
			c.mend(own)
			until(t, "it decides", func() bool {
				d, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1))
				return err == nil && d.Allowed
			})
		})
	}
}

// A password that is changed on both sides while the store is in use: the next
// connection takes the new one.
func TestPasswordRotates(t *testing.T) {
	t.Parallel()
	own := testredis.Start(t, testredis.User("limiter", ">old", "~*", "&*", "+@all"))
	file := writeSecret(t, filepath.Join(t.TempDir(), "password"), "old")
	store := open(t, rueidis.Config{URL: own.URL(), Username: "limiter", PasswordFile: file}, redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 1000))
	take(t, store, "k", policy, 1)
	writeSecret(t, file, "new\r\n")
	for _, command := range [][]any{{"ACL", "SETUSER", "limiter", "resetpass", ">new"}, {"CLIENT", "KILL", "USER", "limiter"}} {
		must.Get(own.Do(command...))(t)
	}
	until(t, "it decides", func() bool {
		_, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1))
		return err == nil
	})
}

// So does a new certificate.
func TestCertificateRotates(t *testing.T) {
	t.Parallel()
	authority := testredis.NewAuthority(t)
	own := testredis.Start(t, testredis.TLS(authority))
	cert, key := authority.Issue(t, "service")
	write := func(from, to string) {
		text := must.Get(os.ReadFile(from))(t)
		writeSecret(t, to, string(text))
	}
	// One that the server does not believe, at first.
	strangers := testredis.NewAuthority(t)
	write(strangers.CertFile, cert)
	write(strangers.KeyFile, key)
	store := open(t, rueidis.Config{URL: own.URL(), TLS: rueidis.TLSFiles{
		CAFile: authority.CAFile, CertFile: cert, KeyFile: key,
	}}, redisstore.Options{})
	if err := store.Ping(t.Context()); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("a stranger's certificate: got %v, want %v", err, stint.ErrUnavailable)
	}
	authority.Issue(t, "service")
	until(t, "it is let in", func() bool { return store.Ping(t.Context()) == nil })
}

// A server that takes connections and says nothing: nobody is held beyond its context,
// and all hear that there is no connection.
func TestSilentServer(t *testing.T) {
	ln := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer func() { _ = ln.Close() }()
	before := goleak.IgnoreCurrent()
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 5))
	for _, scheme := range []string{"redis://%s", "rediss://%s", "redis-sentinel://%s/main", "redis-cluster://%s"} {
		store := open(t, rueidis.Config{URL: fmt.Sprintf(scheme, ln.Addr())}, redisstore.Options{})
		for name, call := range map[string]func(context.Context) error{
			"ping": store.Ping,
			"decide": func(ctx context.Context) error {
				_, err := store.Decide(ctx, op(stint.VerbTake, "k", policy, 1))
				return err
			},
		} {
			// A cancelled context ends a call that has no deadline.
			ctx, cancel := context.WithCancel(t.Context())
			returned := make(chan error, 1)
			go func() { returned <- call(ctx) }()
			cancel()
			if err := <-returned; !errors.Is(err, context.Canceled) {
				t.Errorf(scheme+": %s: got %v, want %v", ln.Addr(), name, err, context.Canceled)
			}
			ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf(scheme+": %s: got %v, want %v", ln.Addr(), name, err, context.DeadlineExceeded)
			}
			cancel()
		}
		store.Close()
	}
	leaks.None(t, before, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1")) // asks for the slots after a sleep
}

// A server that is silent for a second, as one is that a script keeps busy, keeps its connections. No script can be told
// to last so long: where time stands still in it (Redis from 7.2, Valkey), it would never end.
func TestSilentSecond(t *testing.T) {
	own := testredis.Start(t)
	store := openURL(t, own.URL(), redisstore.Options{DenialCache: -1})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 1000))
	for range 8 {
		take(t, store, "k", policy, 1) // over all connections
	}
	accepted := func() string { return must.Get(own.Info("stats"))(t)["total_connections_received"] }
	first := accepted()
	must.Get(own.Do("CLIENT", "PAUSE", 1000, "ALL"))(t)
	for range 20 {
		take(t, store, "k", policy, 1)
	}
	// That of the pause and this look's.
	var from, to int
	if _, err := fmt.Sscan(first+" "+accepted(), &from, &to); err != nil || to != from+2 {
		t.Errorf("%d connections were made, want 2 (%v)", to-from, err)
	}
}
