package envoy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
	"github.com/stint-go/stint/internal/testredis"
)

// patience is how long a test waits for what should come soon.
const patience = 5 * time.Minute

// environment is what both sides get, besides their ports and their Redis.
var environment = []string{
	"RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "DISABLE_STATS=true",
	"LOG_LEVEL=error", "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "REDIS_SOCKET_TYPE=tcp",
	"REDIS_TIMEOUT=1m", // a busy machine is no difference
	"EXPIRATION_JITTER_MAX_SECONDS=0", "LIMIT_RESPONSE_HEADERS_ENABLED=true", "RESPONSE_DYNAMIC_METADATA=true",
}

// A side is a running program of the two.
type side struct {
	name   string
	health string // its URL
	target string // of gRPC
	redis  *testredis.Server
	client rls.RateLimitServiceClient
	output *output
	ended  chan struct{} // closed when the process has ended
}

// output keeps the end of what a process prints.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(text []byte) (int, error) {
	const most = 20_000
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, text...)
	o.text = o.text[max(0, len(o.text)-most):]
	return len(text), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

// files puts configuration files into a folder, and returns what RUNTIME_ROOT is to be.
func files(t testing.TB, byName map[string]string) string {
	t.Helper()
	root := t.TempDir()
	folder := filepath.Join(root, "ratelimit", "config")
	must.Do(t, os.MkdirAll(folder, 0o700))
	for name, text := range byName {
		must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	return root
}

// pair starts the reference and the subject on the same files, with more in the environment of both.
func pair(t testing.TB, root string, more ...string) (reference, subject *side) {
	t.Helper()
	ports := freePorts(t, 6)
	reference = start(t, "the reference", programs.reference, ports[:3], root, more)
	subject = start(t, "the subject", programs.subject, ports[3:], root, more)
	untilReady(t, reference, subject)
	return reference, subject
}

// alone starts the subject without the reference.
func alone(t testing.TB, root string, more ...string) *side {
	t.Helper()
	subject := start(t, "the subject", programs.subject, freePorts(t, 3), root, more)
	untilReady(t, subject)
	return subject
}

func untilReady(t testing.TB, sides ...*side) {
	t.Helper()
	for _, s := range sides {
		until(t, s.name+" is ready", s.ready)
	}
}

// freePorts are ports that nobody has: Envoy's service would share one, and nobody would notice.
func freePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range n {
		ports = append(ports, testport.Of(t))
	}
	return ports
}

// start starts a program that ends with the test.
func start(t testing.TB, name string, program []string, ports []int, root string, more []string) *side {
	t.Helper()
	s := &side{
		name: name, health: fmt.Sprintf("http://127.0.0.1:%d/healthcheck", ports[0]), redis: testredis.Start(t),
		output: &output{}, ended: make(chan struct{}), target: fmt.Sprintf("127.0.0.1:%d", ports[1]),
	}
	command := exec.CommandContext(context.Background(), program[0], program[1:]...)
	command.Env = append(append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, environment...), more...)
	command.Env = append(command.Env,
		"RUNTIME_ROOT="+root, "REDIS_URL="+s.redis.Addr(), fmt.Sprint("PORT=", ports[0]),
		fmt.Sprint("GRPC_PORT=", ports[1]), fmt.Sprint("DEBUG_PORT=", ports[2]))
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Stdout, command.Stderr = s.output, s.output
	// The reference ends with its input.
	input, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		_ = command.Wait() // how it ended is in its output
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = input.Close()
		<-s.ended
	})
	connection := must.Get(grpc.NewClient("passthrough:///"+s.target,
		grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	go func() {
		<-s.ended // then nobody waits for it any more
		_ = connection.Close()
	}()
	s.client = rls.NewRateLimitServiceClient(connection)
	return s
}

// ready returns nil when the process answers requests, and a permanent error when it has ended.
func (s *side) ready() error {
	select {
	case <-s.ended:
		return permanent{fmt.Errorf("%s has ended:\n%s", s.name, s.output)}
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.health, nil)
	if err != nil {
		return permanent{err}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s: %s", s.health, response.Status, strings.TrimSpace(string(text)))
	}
	return err
}

// permanent marks an error that no waiting will mend.
type permanent struct{ error }

// until waits for something that will come.
func until(t testing.TB, what string, done func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; <-time.After(5 * time.Millisecond) {
		err := done()
		if err == nil {
			return
		}
		if _, final := err.(permanent); final || time.Now().After(deadline) { //nolint:errorlint // made above
			t.Fatalf("waited in vain until %s: %v", what, err)
		}
	}
}

// An answer is what a side says to a request: a response or an error.
type answer struct {
	response *rls.RateLimitResponse
	err      error
}

// ask asks a side.
func (s *side) ask(ctx context.Context, request *rls.RateLimitRequest) answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	response, err := s.client.ShouldRateLimit(ctx, request, grpc.WaitForReady(true))
	return answer{response, err}
}
