package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/config"
)

// asProgram makes the test's binary behave as the program itself.
const asProgram = "TEST_AS_STINT"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	// Most tests wait for servers.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// patience is how long a test waits for what should come at once.
const patience = 5 * time.Minute

var addrPattern = regexp.MustCompile(`level=INFO msg=listening service=http addr=(\S+)`)

// readAddr reads a log until it says where the service listens, and goes on reading
// in the background.
func readAddr(t testing.TB, log io.Reader) (addr string, all *lines) {
	t.Helper()
	all = new(lines)
	found := make(chan string, 1)
	go func() {
		defer close(found)
		for scanner := bufio.NewScanner(log); scanner.Scan(); {
			all.add(scanner.Text())
			if match := addrPattern.FindStringSubmatch(scanner.Text()); match != nil {
				found <- match[1]
			}
		}
	}()
	select {
	case addr, ok := <-found:
		if !ok {
			t.Fatalf("the service ended:\n%s", all)
		}
		return addr, all
	case <-time.After(patience):
		t.Fatalf("the service does not say where it listens:\n%s", all)
	}
	return "", all
}

type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(line + "\n")
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start runs `stint serve` on a free port until the test ends, and returns its URL
// and its log.
func start(t testing.TB, args ...string) (url string, log *lines) {
	t.Helper()
	url, log, stop := startIn(t, nil, args...)
	t.Cleanup(stop)
	return url, log
}

// startWith is start with environment variables, for a test that stops the service itself.
func startWith(t testing.TB, variables map[string]string, args ...string) (url string, stop func()) {
	t.Helper()
	url, _, stop = startIn(t, variables, args...)
	return url, stop
}

// patient are flags of a service whose clients, on a busy machine, may stand still for seconds; hasty is one of a service
// whose end nobody watches.
var patient = []string{"--http-read-header-timeout=5m", "--http-body-timeout=5m", "--http-write-timeout=10m"}

const hasty = "--drain-keep-alive=0s"

func startIn(t testing.TB, variables map[string]string, args ...string) (url string, log *lines, stop func()) {
	t.Helper()
	serve := []string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "off", hasty}
	return launch(t, process{Env: environment(variables)}, slices.Concat(serve, patient, args)...)
}

// launch runs a command line that serves until it is stopped.
func launch(t testing.TB, p process, args ...string) (url string, log *lines, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stderr, writer := io.Pipe()
	var stdout bytes.Buffer
	p.Out, p.Err = &stdout, writer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, args, p)
		_ = writer.Close()
	}()
	addr, log := readAddr(t, stderr)
	return "http://" + addr, log, sync.OnceFunc(func() {
		cancel()
		select {
		case got := <-code:
			if got != exitOK || stdout.Len() > 0 {
				t.Errorf("%q: exit code %d, output %q\n%s", args, got, &stdout, log)
			}
		case <-time.After(patience):
			t.Error("the service does not stop")
		}
	})
}

// environment is that of a program. Unless it says otherwise its store has 10 seconds, as the machine may be busy.
func environment(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		text, found := variables[name]
		if !found && name == "STINT_STORE_TIMEOUT" {
			return "10s", true
		}
		return text, found
	}
}

// do runs one command line to its end.
func do(t testing.TB, variables map[string]string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience) // for whole simulations
	defer cancel()
	code = run(ctx, args, process{Out: &out, Err: &log, Env: environment(variables)})
	return code, out.String(), log.String()
}

// Who mistypes a command is told so: a check of rules that never took place must not pass for one.
func TestUsage(t *testing.T) { transcript(t, "usage.txt", nil) }

func TestHelpAndVersion(t *testing.T) {
	code, stdout, stderr := do(t, nil, "serve", "--help")
	if code != exitOK || stderr != "" || !strings.Contains(stdout, "--trusted-proxies") || !strings.Contains(stdout, "[STINT_STORE_TIMEOUT]") {
		t.Errorf("help: exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, s := range config.Settings() {
		line := "[" + s.Env() + "]"
		if s.Secret() {
			if strings.Contains(stdout, line) {
				t.Errorf("the help has the secret %s", s.Name)
			}
			continue
		}
		value := " " + s.Value()
		if s.Value() == "" {
			value = "[=true]" // which may be left out
		}
		_, text, found := strings.Cut(stdout, " --"+s.Flag()+value)
		text, _, _ = strings.Cut(strings.Join(strings.Fields(text), " "), line)
		if !found || !strings.Contains(text, s.Help()) {
			t.Errorf("the help of %s is %q", s.Name, text)
		}
	}
	for _, ask := range []string{"version", "--version"} {
		code, stdout, stderr = do(t, nil, ask)
		if code != exitOK || stderr != "" || !regexp.MustCompile(`^stint version \S+\ncommit \S+\ngo\S+ \S+/\S+\n$`).MatchString(stdout) {
			t.Errorf("%s: exit code %d, %q, %q", ask, code, stdout, stderr)
		}
	}
}

func TestServeFailures(t *testing.T) {
	ln := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer func() { _ = ln.Close() }()
	if !inUse(t.Context(), ln.Addr().String()) || inUse(t.Context(), "127.0.0.1:0") {
		t.Error("an address in use is not told from a free one")
	}
	redis := testredis.Start(t)
	must.Get(redis.Do("HSET", "rate_limiter:settings", "layout", "4 packed"))(t)
	env := map[string]string{"STINT_LISTEN": "127.0.0.1:0", "STINT_ADMIN_LISTEN": "off", "STINT_LOG_LEVEL": "debug"}
	transcript(t, "serve.txt", env, "TAKEN", ln.Addr().String(), "REDIS", redis.URL())
}

// The service starts while its Redis is unreachable and answers by its policy; when Redis comes, Redis decides, and
// what is unwise about it is told.
func TestServeBeforeStore(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, testredis.Password("hunter2"),
		testredis.Config("maxmemory", "100mb"), testredis.Config("maxmemory-policy", "allkeys-lru"))
	must.Do(t, redis.Stop())
	url, log := start(t, "--store", redis.URL(), "--store-timeout=2s")
	awaitLog(t, log, "the store is unreachable")
	check := func() string {
		t.Helper()
		status, body := get(t, url+"/api/v1/rate-limit/check?key=k")
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		return body
	}
	if body := check(); !strings.Contains(body, `"degraded":true`) {
		t.Errorf("Redis is away: %s", body)
	}
	if strings.Contains(log.String(), "maxmemory-policy") {
		t.Error("the service knows a server that is not there")
	}
	redis.Restart(t)
	eventually(t, "Redis decides", func() bool { return !strings.Contains(check(), `"degraded":true`) })
	awaitLog(t, log, "maxmemory-policy is allkeys-lru")
	awaitLog(t, log, "the store can be reached again")
	if text := log.String(); strings.Contains(text, "hunter2") || strings.Count(text, `msg="the store `) != 2 {
		t.Errorf("the log, want a line for each change, without a password:\n%s", text)
	}
}
