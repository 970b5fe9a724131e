package attack_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
	"github.com/stint-go/stint/internal/testredis"
)

var programs string

// token is the administrator's, which no attacker knows.
const token = "nobody-here-knows-this-token"

// TestMain builds the service, which runs as a process of its own: it is not to share the
// attackers' scheduler.
func TestMain(m *testing.M) { os.Exit(testprogram.Main(m.Run, &programs, "../../service/cmd/stint")) }

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
	*testprogram.Process
	addr  string
	admin string // its admin listener
	grpc  string // its gRPC listener
	resp  string // its listener of the Redis protocol
}

// expectReachable expects that the service did not call its store unreachable.
func (s *service) expectReachable(t *testing.T) {
	t.Helper()
	if log := s.Log(); strings.Contains(log, "unreachable") {
		t.Errorf("the store was called unreachable:\n%s", log)
	}
}

// startService starts a service that ends with the test, with more arguments.
func startService(t *testing.T, more ...string) *service {
	t.Helper()
	redis := testredis.Start(t)
	dir := t.TempDir()
	config, tokens := filepath.Join(dir, "stint.yaml"), filepath.Join(dir, "tokens")
	must.Do(t, os.WriteFile(tokens, []byte(token+"\n"), 0o600))
	must.Do(t, os.WriteFile(config, fmt.Appendf(nil, configuration, redis.URL(), *storeTimeout, tokens, tokens), 0o600))
	arguments := append([]string{"serve", "--config", config, "--grpc-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0", "--envoy-config", writeDomain(t, dir)}, more...)
	command := exec.CommandContext(context.Background(), filepath.Join(programs, "stint"), arguments...)
	p, at := testprogram.Start(t, command, testprogram.Listeners("http", "admin", "grpc", "resp")...)
	return &service{p, at[0], at[1], at[2], at[3]}
}
