package testredis

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"testing"
)

// MasterName is the name under which sentinels know the primary.
const MasterName = "stint"

// A Sentinel is a primary with one replica, watched over by three sentinels of
// which two must agree that the primary is gone.
type Sentinel struct {
	Primary   *Server // the primary at the start
	Replica   *Server
	Sentinels []*Server
}

// StartSentinel starts a primary, a replica and three sentinels that end with the
// test, and returns when the replica follows and the sentinels know each other.
// The options apply to the primary and the replica.
func StartSentinel(t testing.TB, opts ...Option) *Sentinel {
	t.Helper()
	primary := Start(t, opts...)
	follow := Config("replicaof", "127.0.0.1", strconv.Itoa(primary.port))
	s := &Sentinel{Primary: primary, Replica: Start(t, append([]Option{follow}, opts...)...)}
	if err := eventually(s.following); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(t, primary))
	}
	if err := eventually(s.watching); err != nil {
		t.Fatal(err)
	}
	return s
}

// URL is the redis-sentinel:// URL, as the service takes it; a password in it is
// the primary's and the replica's.
func (s *Sentinel) URL() string {
	return listURL("redis-sentinel", s.Sentinels, s.Primary.password, MasterName)
}

// Failover makes the replica the primary, as sentinels do when the primary is
// gone, and returns when all sentinels name it. The old primary takes some ten
// seconds to be told that it is the replica now.
func (s *Sentinel) Failover(t testing.TB) {
	t.Helper()
	if _, err := s.Sentinels[0].Do("SENTINEL", "FAILOVER", MasterName); err != nil {
		t.Fatal(err)
	}
	if err := eventually(s.replaced); err != nil {
		t.Fatal(err)
	}
	s.Primary, s.Replica = s.Replica, s.Primary
}

// replaced returns nil when the replica is a primary and all sentinels name it.
func (s *Sentinel) replaced() error {
	info, err := s.Replica.Info("replication")
	if err != nil {
		return err
	}
	if err := expect(s.Replica, info, map[string]string{"role": "master"}); err != nil {
		return err
	}
	for _, sentinel := range s.Sentinels {
		addr, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
		if err != nil {
			return err
		}
		if want := []any{"127.0.0.1", strconv.Itoa(s.Replica.port)}; !reflect.DeepEqual(addr, want) {
			return fmt.Errorf("%s: the primary is %v, not %v", sentinel.Addr(), addr, want)
		}
	}
	return nil
}

// startSentinel starts one sentinel. It keeps what it learns in its configuration,
// so it needs a file.
func startSentinel(t testing.TB, primary *Server) *Server {
	t.Helper()
	config := fmt.Sprintf(`sentinel monitor %[1]s 127.0.0.1 %[2]d 2
sentinel down-after-milliseconds %[1]s 1000
sentinel failover-timeout %[1]s 5000
`, MasterName, primary.port)
	if primary.password != "" {
		config += fmt.Sprintf("sentinel auth-pass %s %s\n", MasterName, primary.password)
	}
	path := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return Start(t, func(s *Server) {
		s.args = []string{path, "--sentinel", "--bind", "127.0.0.1", "--dir", s.dir, "--daemonize", "no"}
	})
}

func (s *Sentinel) following() error {
	info, err := s.Replica.Info("replication")
	if err != nil {
		return err
	}
	return expect(s.Replica, info, map[string]string{"master_link_status": "up"})
}

// watching returns nil when every sentinel knows the replica and the two others.
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
			"flags": "master", "num-slaves": "1", "num-other-sentinels": "2",
		}); err != nil {
			return err
		}
	}
	return nil
}
