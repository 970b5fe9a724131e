package resp_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// patience is how long a test waits for what should come soon.
const patience = 5 * time.Minute

var binary string // the service

// TestMain builds the service.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "resp")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "stint")
	build := exec.CommandContext(context.Background(), "go", "build", "-tags", "grpcnotrace", "-o", binary, "../../service/cmd/stint")
	if text, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, text)
		return 1
	}
	return testredis.Run(m, &shared)
}

// shared is a Redis whose keys tests keep apart by their prefixes.
var shared *testredis.Server

const memory = "url: memory://"

var prefixes atomic.Int64

// inRedis is a place of its own on the shared Redis.
func inRedis() string {
	return fmt.Sprintf("url: %q, timeout: 10s, key_prefix: t%d", shared.URL(), prefixes.Add(1))
}

// stores runs a test on both stores.
func stores(t *testing.T, do func(t *testing.T, store string)) {
	for name, store := range map[string]string{"memory": memory, "redis": inRedis()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do(t, store)
		})
	}
}

// A service is a stint that serves the Redis protocol.
type service struct {
	addr string // of the Redis protocol
	stop func() error

	mu    sync.Mutex
	lines strings.Builder
}

func (s *service) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.String()
}

// port is that of the Redis protocol.
func (s *service) port() string { return s.addr[strings.LastIndexByte(s.addr, ':')+1:] }

var listening = regexp.MustCompile(`msg=listening service=resp addr=(\S+)`)

// startService starts a service that ends with the test, by what its configuration says of the store, and by more.
func startService(t *testing.T, store, configuration string) *service {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stint.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin_listen: off\nresp_listen: 127.0.0.1:0\nstore: {%s}\n%s", store, configuration)
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	command := exec.CommandContext(context.Background(), binary, "serve", "--config", file)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output := must.Get(command.StderrPipe())(t)
	must.Do(t, command.Start())
	s := &service{}
	found, read := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(read)
		defer close(found)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			s.mu.Lock()
			s.lines.WriteString(scanner.Text() + "\n")
			s.mu.Unlock()
			if match := listening.FindStringSubmatch(scanner.Text()); match != nil {
				found <- match[1]
			}
		}
	}()
	// stop ends the service as an operator does, and returns how it ended.
	s.stop = sync.OnceValue(func() error {
		_ = command.Process.Signal(syscall.SIGTERM)
		<-read
		return command.Wait()
	})
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = s.stop()
		if t.Failed() {
			t.Logf("the service's log:\n%s", s.log())
		}
	})
	if s.addr = <-found; s.addr == "" {
		t.Fatalf("the service does not start:\n%s", s.log())
	}
	return s
}

// startInMemory starts a service whose state is in the process, without tokens.
func startInMemory(t *testing.T) *service {
	t.Helper()
	return startService(t, memory, "")
}

// token is one of the service's, where it needs one.
const token = "a-token-of-the-service"

// tokens is the configuration of a service that needs a token.
func tokens(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens")
	must.Do(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	return fmt.Sprintf("api: {tokens_file: %q}\n", file)
}

// program runs a program on some input, and returns what it prints.
func program(t *testing.T, input, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, name, args...)
	command.Stdin = strings.NewReader(input)
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, text)
	}
	return string(text)
}
