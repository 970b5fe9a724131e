package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// released is a folder with what `make release` makes for this platform, and version is its version. Tests know
// nothing else of the program.
var released, version string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests install packages in roots of their own, as root alone can")
		return 1
	}
	folder, err := os.MkdirTemp("", "release")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(folder) }()
	released = folder
	command := exec.CommandContext(context.Background(), "scripts/release", released)
	command.Dir = "../.."
	command.Env = append(os.Environ(), "PLATFORMS=linux/"+runtime.GOARCH, "GOWORK=")
	if output, err := command.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "scripts/release: %v\n%s", err, output)
		return 1
	}
	if packages, err := filepath.Glob(filepath.Join(released, "*.deb")); err == nil && len(packages) == 1 {
		version = strings.Split(filepath.Base(packages[0]), "_")[1]
	}
	return m.Run()
}

// do ends the test at an error of a step that it only stands on.
func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must is do for steps with a value.
func must[V any](value V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		do(t, err)
		return value
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	return string(must(os.ReadFile(name))(t))
}

// write writes a file, and makes its folder.
func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	do(t, os.MkdirAll(filepath.Dir(name), 0o755))
	do(t, os.WriteFile(name, []byte(text), mode))
}

// file is the one of the release for this platform with an ending, such as .deb.
func file(ending string) string {
	return filepath.Join(released, "stint_"+version+"_linux_"+runtime.GOARCH+ending)
}

// output runs a program to its end.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v (`make test-all` installs it)\n%s", name, strings.Join(args, " "), err, text)
	}
	return string(text)
}

// patience is how long a test waits for what should come soon.
const patience = 5 * time.Minute

// A container is a program under a root of its own, as an image, a package or a chart says.
type container struct {
	root    string
	args    []string // the program and its arguments
	env     []string
	user    uint32
	command *exec.Cmd
	log     strings.Builder
	ended   chan struct{}
	service string // the address of the service, and of the admin listener
	admin   string
	grpc    string // of Envoy's rate limit service, if it has one
}

var listening = regexp.MustCompile(`msg=listening service=(http|admin|grpc) addr=(\S+)`)

// start starts it on free ports, instead of those that its arguments say.
func (c *container) start(t *testing.T) {
	t.Helper()
	asks := map[string]bool{}
	args := append(c.args[1:], "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0")
	for _, other := range []string{"--grpc-listen=", "--resp-listen="} {
		if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, other) }) {
			args, asks[other] = append(args, other+"127.0.0.1:0"), true
		}
	}
	c.command = exec.CommandContext(context.Background(), c.args[0], args...)
	c.command.Env, c.command.Dir = append([]string{}, c.env...), "/" // none of the test's own variables
	c.command.SysProcAttr = &syscall.SysProcAttr{
		Chroot: c.root, Credential: &syscall.Credential{Uid: c.user, Gid: c.user}, Pdeathsig: syscall.SIGKILL,
	}
	stderr := must(c.command.StderrPipe())(t)
	do(t, c.command.Start())
	lines := bufio.NewScanner(stderr)
	missing := func() bool { return c.service == "" || c.admin == "" || c.grpc == "" && asks["--grpc-listen="] }
	for missing() && lines.Scan() {
		c.log.WriteString(lines.Text() + "\n")
		if match := listening.FindStringSubmatch(lines.Text()); match != nil {
			*map[string]*string{"http": &c.service, "admin": &c.admin, "grpc": &c.grpc}[match[1]] = match[2]
		}
	}
	c.ended = make(chan struct{})
	go func() {
		defer close(c.ended)
		for lines.Scan() {
			c.log.WriteString(lines.Text() + "\n")
		}
	}()
	t.Cleanup(func() {
		_ = c.command.Process.Kill()
		<-c.ended
		_ = c.command.Wait()
	})
	if missing() {
		<-c.ended
		t.Fatalf("it does not start:\n%s", c.log.String())
	}
}

// stop sends the signal with which it is told to end, and sees that it ends by itself within the grace it is given.
func (c *container) stop(t *testing.T, grace time.Duration) {
	t.Helper()
	do(t, c.command.Process.Signal(syscall.SIGTERM))
	select {
	case <-c.ended:
	case <-time.After(grace):
		t.Fatalf("it does not end within %v:\n%s", grace, c.log.String())
	}
	if err := c.command.Wait(); err != nil || !strings.Contains(c.log.String(), "msg=stopped") {
		t.Errorf("it ends with %v:\n%s", err, c.log.String())
	}
}

// client never waits for long, and keeps a connection for each of its users.
var client = &http.Client{Timeout: patience}

// get asks for a page, with a token if it is not "".
func get(url, token string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), errors.Join(err, response.Body.Close())
}

// expect gets a page that has a status, and a text in it.
func expect(t *testing.T, page, token string, status int, text string) {
	t.Helper()
	if got, body, err := get("http://"+page, token); err != nil || got != status || !strings.Contains(body, text) {
		t.Errorf("%s with token %q answers %d %s, %v; want %d and %s", page, token, got, body, err, status, text)
	}
}

// healthy sees that nothing that it depends on is down.
func (c *container) healthy(t *testing.T) {
	t.Helper()
	if _, body, err := get("http://"+c.service+"/actuator/health", ""); err != nil || strings.Contains(body, "DOWN") {
		t.Errorf("its health: %s, %v", body, err)
	}
}

// answers sees that it decides, by its clients' addresses, and shows the dashboard.
func (c *container) answers(t *testing.T) {
	t.Helper()
	for url, want := range map[string]string{
		c.service + "/api/v1/rate-limit/check": `"allowed":true`,
		c.admin + "/":                          `<script type="module"`,
	} {
		expect(t, url, "", http.StatusOK, want)
	}
}

// freePort is a port on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	listener := must(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// redis starts a Redis on a free port.
func redis(t *testing.T, args ...string) (port string) {
	t.Helper()
	port = freePort(t)
	background(t, port, "redis-server", append([]string{"--bind", "127.0.0.1", "--port", port, "--save", ""}, args...)...)
	return port
}

// background starts a program that ends with the test, and waits until it accepts connections on a port.
func background(t *testing.T, port, name string, args ...string) {
	t.Helper()
	command := exec.CommandContext(context.Background(), name, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var log strings.Builder
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatalf("%v (`make test-all` installs it)", err)
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // its workers, too
		<-ended
	})
	for {
		if connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", "127.0.0.1:"+port); err == nil {
			_ = connection.Close()
			return
		}
		select {
		case <-ended:
			t.Fatalf("%s ended:\n%s", name, log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
