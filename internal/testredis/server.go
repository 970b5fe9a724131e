package testredis

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/testport"
)

// ErrMissing says that the machine has neither redis-server nor valkey-server.
var ErrMissing = errors.New("redis-server is missing: `make test` installs Debian's package redis-server")

// A Server is one running redis-server. Its methods are safe for concurrent use.
type Server struct {
	dir      string
	port     int
	held     *testport.Port // which is port, as long as the server may be started again
	password string
	args     []string // the program's arguments, without the port
	env      []string // NAME=VALUE, on top of the test's own environment
	bus      bool     // whether the port 10000 above is needed as well
	tls      *Authority

	replicas         int    // of each primary of a cluster
	sentinelPassword string // of the sentinels themselves
	goneAfter        time.Duration

	mu      sync.Mutex // guards process
	process *process   // nil while stopped
}

// An Option changes how a server is started.
type Option func(*Server)

// Config sets a directive of redis.conf, such as Config("maxmemory", "1mb"). It
// beats what this package sets itself.
func Config(directive string, values ...string) Option {
	return func(s *Server) {
		s.args = append(s.args, "--"+directive)
		s.args = append(s.args, values...)
	}
}

// Password makes the server ask for a password, and give it to the server that it
// is a replica of. [Server.Do] and [Server.URL] give it. Default: none.
func Password(password string) Option {
	return func(s *Server) {
		s.password = password
		Config("requirepass", password)(s)
		Config("masterauth", password)(s)
	}
}

// User adds a user by the rules of Redis's access control lists, such as
// User("limiter", ">secret", "~*", "+@all").
func User(name string, rules ...string) Option {
	return Config("user", append([]string{name, "on"}, rules...)...)
}

// stands is how long a server of a cluster, or one that sentinels watch, may stand still and keep its place: a busy
// machine stops a process for seconds.
const stands = time.Minute

// GoneAfter is how long a server is silent until a replica takes its place, by Sentinel or in a cluster. It
// is for tests that stop one, and holds from when all know each other. Default: a minute.
func GoneAfter(silence time.Duration) Option {
	return func(s *Server) { s.goneAfter = silence }
}

// Env adds NAME=VALUE to the environment of the server.
func Env(variables ...string) Option {
	return func(s *Server) { s.env = append(s.env, variables...) }
}

// Start starts a server that ends with the test, and fails the test where that
// can't be done.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := New(t.TempDir(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Run starts a server, sets *shared to it, runs the tests of a package, stops the
// server and returns the code to exit with. It is for TestMain.
func Run(m *testing.M, shared **Server, opts ...Option) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "testredis:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "testredis")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := New(dir, opts...)
	if err != nil {
		return fail(err)
	}
	*shared = s
	code := m.Run()
	if err := s.Stop(); err != nil {
		return fail(err)
	}
	return code
}

// New starts a server whose files are in dir, which must exist, and returns when
// it answers. The caller stops it. It returns [ErrMissing] when the machine has
// no such program.
func New(dir string, opts ...Option) (*Server, error) {
	s := &Server{dir: dir, args: []string{
		"--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
		"--repl-diskless-sync-delay", "0",
	}}
	for _, opt := range opts {
		opt(s)
	}
	return s, s.startSomewhere()
}

// startSomewhere starts on a free port. Between finding and binding it the port
// may go to somebody else; then another one is tried.
func (s *Server) startSomewhere() error {
	var above []int
	if s.bus {
		above = []int{busOffset}
	}
	for range 20 {
		port, err := testport.Take(above...)
		if err != nil {
			return err
		}
		s.held, s.port = port, port.Number
		if err = s.start(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return fmt.Errorf("testredis: no port of 20 could be bound: %w", errPortTaken)
}

// busOffset is how far a cluster's bus is above the port for clients.
const busOffset = 10_000

// start starts the program on the server's port and waits until it answers.
func (s *Server) start() error {
	args := append(slices.Clone(s.args), "--port", strconv.Itoa(s.port))
	if s.tls != nil {
		args = append(slices.Clone(s.args), "--port", "0", "--tls-port", strconv.Itoa(s.port))
	}
	p, err := startProcess(args, s.env, filepath.Join(s.dir, "redis.log"))
	if err != nil {
		return err
	}
	err = eventually(func() error {
		if p.ended() {
			return permanent{p.fault()}
		}
		info, err := s.fields(glance, "INFO", "server")
		if err == nil && info["process_id"] != strconv.Itoa(p.pid()) {
			return errors.New("somebody else answers on " + s.Addr())
		}
		if err == nil {
			_, err = s.within(glance, "PING") // which it does not answer while it loads what it kept
		}
		return err
	})
	if err != nil {
		return errors.Join(err, p.stop())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	return nil
}

// Addr is the server's host:port. It never changes.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the server's redis:// URL, or rediss:// with TLS, with the password if there
// is one.
func (s *Server) URL() string { return listURL(s, "redis", []*Server{s}, "") }

// Dir is the folder with the server's files, its log redis.log among them.
func (s *Server) Dir() string { return s.dir }

// Stop ends the server, gently at first, and returns when it is gone. Stopping it
// twice is no error.
func (s *Server) Stop() error { return s.end((*process).stop) }

// Kill ends the server as a crash does and returns when it is gone.
func (s *Server) Kill() error { return s.end((*process).kill) }

// end ends the process, if there is one, in one of the two ways.
func (s *Server) end(end func(*process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	err := end(s.process)
	s.process = nil
	return err
}

// stopped reports whether the server was stopped or killed.
func (s *Server) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process == nil
}

// Restart stops the server if it runs and starts it on the same port. What it
// held is gone, unless it was configured to keep it; its scripts always are.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	// While the server was away, its port may have become the near end of
	// somebody's connection.
	err := eventually(func() error {
		err := s.start()
		if err != nil && !errors.Is(err, errPortTaken) {
			return permanent{err}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Pause stops the server in its tracks: connections stay open and are still
// accepted by the system, and nothing is answered. It returns when that is so.
func (s *Server) Pause() error {
	return s.signal(syscall.SIGSTOP, func(pid int) error {
		return eventually(func() error { return paused(pid) })
	})
}

// Resume undoes a pause.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT, func(int) error { return nil }) }

// signal sends a signal to the process and waits until it has shown its effect.
func (s *Server) signal(signal os.Signal, then func(pid int) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return errors.New("testredis: the server is stopped")
	}
	if err := s.process.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("testredis: %w", err)
	}
	return then(s.process.pid())
}
