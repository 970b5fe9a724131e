package attack_test

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
	"syscall"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

var binary string

// token is the administrator's, which no attacker knows.
const token = "nobody-here-knows-this-token"

// TestMain builds the service, which runs as a process of its own: it is not to share the
// attackers' scheduler.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "attack")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "stint")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", binary, "../../service/cmd/stint")
	if text, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, text)
		return 1
	}
	return m.Run()
}

// The service trusts its own address as a proxy, for the attackers on forward-auth. Attackers and the
// innocent client have limits of their own, by different algorithms.
const configuration = `
listen: 127.0.0.1:0
admin_listen: 127.0.0.1:0
store: {url: %q, timeout: %s}
trusted_proxies: [127.0.0.1]
identity: {attributes: {team: X-Team}}
log: {level: info}
api: {tokens_file: %q}
admin: {tokens_file: %q}
defaults:
  token_bucket: {capacity: 10, refill: 1/24h}
  leaky_bucket: {capacity: 10, leak: 1/24h}
  fixed_window: {limit: 1000000, window: 24h}
policies:
  places: [{algorithm: concurrency, capacity: 10}]
  recorded: [{algorithm: sliding_window_log, limit: 10, window: 24h, count_denied: true}]
  innocent: [{algorithm: fixed_window, limit: 1000000, window: 24h}]
rules:
  - {id: all, match: {path: "/**", except: [/teams]}, scope: per_ip, limits: [{algorithm: fixed_window, limit: 10, window: 24h}]}
  - {id: organisation, match: {path: /teams}, scope: global, limits: [{algorithm: token_bucket, capacity: 20, refill: 1/24h}]}
  - {id: team, match: {path: /teams}, within: organisation, scope: "custom:team", missing: skip, guaranteed: {search: {capacity: 11, refill: 1/48h}}, borrow: true}
  - {id: login, match: {path: "/login"}, scope: per_ip, limits: [{algorithm: fixed_window, limit: 5, window: 24h}]}
`

// A service is a stint that runs on a Redis of its own.
type service struct {
	addr    string
	admin   string // its admin listener
	grpc    string // its gRPC listener
	resp    string // its listener of the Redis protocol
	process *os.Process

	mu    sync.Mutex
	lines strings.Builder
}

func (s *service) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.String()
}

var listening = regexp.MustCompile(`msg=listening service=(http|admin|grpc|resp) addr=(\S+)`)

// startService starts a service that ends with the test, with more arguments.
func startService(t *testing.T, more ...string) *service {
	t.Helper()
	redis := testredis.Start(t)
	dir := t.TempDir()
	config, tokens := filepath.Join(dir, "stint.yaml"), filepath.Join(dir, "tokens")
	must.Do(t, os.WriteFile(tokens, []byte(token+"\n"), 0o600))
	must.Do(t, os.WriteFile(config, fmt.Appendf(nil, configuration, redis.URL(), *storeTimeout, tokens, tokens), 0o600))
	arguments := append([]string{"serve", "--config", config, "--grpc-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0", "--envoy-config", writeDomain(t, dir)}, more...)
	command := exec.CommandContext(context.Background(), binary, arguments...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output := must.Get(command.StderrPipe())(t)
	must.Do(t, command.Start())
	s := &service{process: command.Process}
	found := map[string]chan string{}
	for _, listener := range []string{"http", "admin", "grpc", "resp"} {
		found[listener] = make(chan string, 1)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			s.mu.Lock()
			s.lines.WriteString(scanner.Text() + "\n")
			s.mu.Unlock()
			if match := listening.FindStringSubmatch(scanner.Text()); match != nil {
				found[match[1]] <- match[2]
			}
		}
		for _, addr := range found {
			close(addr)
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-read
		_ = command.Wait()
	})
	s.addr, s.admin, s.grpc, s.resp = <-found["http"], <-found["admin"], <-found["grpc"], <-found["resp"]
	if s.addr == "" || s.admin == "" || s.resp == "" {
		t.Fatalf("the service does not start:\n%s", s.log())
	}
	return s
}
