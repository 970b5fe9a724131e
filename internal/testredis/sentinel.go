package testredis

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// MasterName is the name under which sentinels know the primary.
const MasterName = "stint"

// A Sentinel is a primary with two replicas, watched over by three sentinels of
// which two must agree that the primary is gone.
type Sentinel struct {
	Primary   *Server // the primary at the start, or after [Sentinel.Failover]
	Replicas  []*Server
	Sentinels []*Server
}

// SentinelPassword is what sentinels ask of their own clients. Default: none.
func SentinelPassword(password string) Option {
	return func(s *Server) { s.sentinelPassword = password }
}

// StartSentinel starts a primary, two replicas and three sentinels that end with the
// test, and returns when the replicas follow and the sentinels know each other.
// The options apply to the primary and the replicas; TLS also to the sentinels.
func StartSentinel(t testing.TB, opts ...Option) *Sentinel {
	t.Helper()
	primary := Start(t, opts...)
	follow := Config("replicaof", "127.0.0.1", strconv.Itoa(primary.port))
	s := &Sentinel{Primary: primary}
	for range 2 {
		s.Replicas = append(s.Replicas, Start(t, append([]Option{follow}, opts...)...))
	}
	for _, replica := range s.Replicas {
		if err := eventually(func() error { return follows(replica) }); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, primary))
	}
	if err := eventually(s.watching); err != nil {
		t.Fatal(err)
	}
	if primary.goneAfter > 0 {
		for _, sentinel := range s.Sentinels {
			_, err := sentinel.Do("SENTINEL", "SET", MasterName, "down-after-milliseconds", primary.goneAfter.Milliseconds())
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

// URL is the redis-sentinel:// URL, or rediss-sentinel:// with TLS, as the service
// takes it; a password in it is the primary's and the replicas'.
func (s *Sentinel) URL() string {
	return listURL(s.Primary, "redis-sentinel", s.Sentinels, MasterName)
}

// Servers lists the primary and the replicas.
func (s *Sentinel) Servers() []*Server { return append([]*Server{s.Primary}, s.Replicas...) }

// Failover makes a replica the primary, as sentinels do when the primary is gone, and
// returns when all sentinels name it. The old primary takes some ten seconds to be
// told that it is a replica now.
func (s *Sentinel) Failover(t testing.TB) {
	t.Helper()
	// A sentinel refuses while it has not heard of a replica for a while, and gives up when the replica is slow.
	err := eventually(func() error {
		addr, err := named(s.Sentinels[0])
		if err != nil || addr != s.Primary.Addr() {
			return err
		}
		if _, err = s.Sentinels[0].Do("SENTINEL", "FAILOVER", MasterName); err == nil {
			err = errors.New("testredis: the failover is under way")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Follow(t)
}

// Follow waits until all sentinels name another primary than s.Primary, and that
// accepts writes, and makes it s.Primary.
func (s *Sentinel) Follow(t testing.TB) {
	t.Helper()
	if err := eventually(s.replaced); err != nil {
		t.Fatal(err)
	}
	now, err := s.Current()
	if err != nil {
		t.Fatal(err)
	}
	for i, replica := range s.Replicas {
		if replica == now {
			s.Primary, s.Replicas[i] = s.Replicas[i], s.Primary
		}
	}
}

// Current is the server that accepts writes and that most sentinels name.
func (s *Sentinel) Current() (*Server, error) {
	votes := map[string]int{}
	for _, sentinel := range s.Sentinels {
		if sentinel.stopped() {
			continue
		}
		if addr, err := named(sentinel); err == nil {
			votes[addr]++
		}
	}
	for _, server := range s.Servers() {
		if 2*votes[server.Addr()] <= len(s.Sentinels) || server.stopped() {
			continue
		}
		info, err := server.fields(glance, "INFO", "replication")
		if err != nil {
			return nil, err
		}
		return server, expect(server, info, map[string]string{"role": "master"})
	}
	return nil, fmt.Errorf("testredis: the sentinels name %v", votes)
}

// named is the primary that a sentinel names.
func named(sentinel *Server) (string, error) {
	reply, err := sentinel.within(glance, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
	if err != nil {
		return "", err
	}
	addr, _ := reply.([]any)
	if len(addr) != 2 {
		return "", fmt.Errorf("%s: the primary is %v", sentinel.Addr(), reply)
	}
	return net.JoinHostPort(fmt.Sprint(addr[0]), fmt.Sprint(addr[1])), nil
}

// replaced returns nil when another server is the primary and all sentinels name it.
func (s *Sentinel) replaced() error {
	now, err := s.Current()
	if err != nil {
		return err
	}
	if now == s.Primary {
		return errors.New("testredis: the primary is still the same")
	}
	for _, sentinel := range s.Sentinels {
		if sentinel.stopped() {
			continue
		}
		addr, err := named(sentinel)
		if err != nil {
			return err
		}
		if addr != now.Addr() {
			return fmt.Errorf("%s: the primary is %v, not %v", sentinel.Addr(), addr, now.Addr())
		}
	}
	return nil
}

// startSentinel starts one sentinel. It keeps what it learns in its configuration,
// so it needs a file.
func startSentinel(t testing.TB, primary *Server) *Server {
	t.Helper()
	config := fmt.Sprintf(`sentinel monitor %[1]s 127.0.0.1 %[2]d 2
sentinel down-after-milliseconds %[1]s %[3]d
sentinel failover-timeout %[1]s 5000
`, MasterName, primary.port, stands.Milliseconds())
	if primary.password != "" {
		config += fmt.Sprintf("sentinel auth-pass %s %s\n", MasterName, primary.password)
	}
	path := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return Start(t, func(s *Server) {
		s.args = []string{path, "--sentinel", "--bind", "127.0.0.1", "--dir", s.dir, "--daemonize", "no"}
		if primary.tls != nil {
			TLS(primary.tls)(s)
		}
		if primary.sentinelPassword != "" {
			s.password = primary.sentinelPassword
			Config("requirepass", s.password)(s)
		}
	})
}

// watching returns nil when every sentinel knows the replicas and the two others.
func (s *Sentinel) watching() error {
	for _, sentinel := range s.Sentinels {
		reply, err := sentinel.Do("SENTINEL", "MASTER", MasterName)
		if err != nil {
			return err
		}
		pairs, _ := reply.([]any)
		state := make(map[string]string)
		for i := 0; i+1 < len(pairs); i += 2 {
			state[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
		}
		if err := expect(sentinel, state, map[string]string{
			"flags": "master", "num-slaves": "2", "num-other-sentinels": "2",
		}); err != nil {
			return err
		}
	}
	return nil
}
