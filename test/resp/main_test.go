package resp_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
	"github.com/stint-go/stint/internal/testredis"
)

// patience is how long a test waits for what should come soon.
const patience = 5 * time.Minute

var programs string // the folder of the service

// TestMain builds the service.
func TestMain(m *testing.M) {
	os.Exit(testprogram.Main(func() int { return testredis.Run(m, &shared) }, &programs, "../../service/cmd/stint"))
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
	*testprogram.Process
	http, addr string // addr is that of the Redis protocol
}

// port is that of the Redis protocol.
func (s *service) port() string { return s.addr[strings.LastIndexByte(s.addr, ':')+1:] }

// startService starts a service that ends with the test, by what its configuration says of the store, and by more.
func startService(t *testing.T, store, configuration string) *service {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stint.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\nadmin_listen: off\nresp_listen: 127.0.0.1:0\nstore: {%s}\n%s", store, configuration)
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	command := exec.CommandContext(context.Background(), filepath.Join(programs, "stint"), "serve", "--config", file)
	p, at := testprogram.Start(t, command, testprogram.Listeners("http", "resp")...)
	return &service{p, at[0], at[1]}
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

// output runs a program on some input, and returns what it prints.
func output(t *testing.T, input, name string, args ...string) string {
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
