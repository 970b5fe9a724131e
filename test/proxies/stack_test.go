//go:build linux

// On Linux every address of 127.0.0.0/8 is the machine's own.

package proxies

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
)

// patience is how long a test waits for what should come at once.
const patience = 5 * time.Minute

var programs string // the folder of stint and of the application, which are built once

func TestMain(m *testing.M) {
	os.Exit(testprogram.Main(m.Run, &programs, "../../service/cmd/stint", "../../examples/app"))
}

// A stack is one run of an example's command: an application, stint, and a proxy before both.
type stack struct {
	t         testing.TB
	host      string
	processes map[string]int // by name
	command   *exec.Cmd
	gone      <-chan struct{} // closed when the command has ended
	own       int             // how many requests served has made
}

// configurations are the files in which the examples have the proxy's configuration.
var configurations = map[string]string{"nginx": "nginx.conf", "caddy": "Caddyfile"}

// asItStands is the file with an example's configuration of the proxy.
func asItStands(example string) string {
	return filepath.Join("../../examples", example, configurations[example])
}

// patient is a configuration of a proxy that waits for stint while the machine stands still. The examples admit what is
// not answered within 3 s.
func patient(configuration string) string {
	return strings.NewReplacer(
		"proxy_connect_timeout 1s;", "proxy_connect_timeout 60s;", "proxy_read_timeout 3s;", "proxy_read_timeout 300s;",
		"dial_timeout 1s", "dial_timeout 60s", "response_header_timeout 3s", "response_header_timeout 300s",
	).Replace(configuration)
}

// patiently is a file with an example's configuration, but for the time that stint has.
func patiently(t testing.TB, example string) (file string) {
	t.Helper()
	text := read(t, asItStands(example))
	if patient(text) == text {
		t.Fatalf("%s does not bound how long stint may take", configurations[example])
	}
	return write(t, configurations[example], patient(text))
}

func read(t testing.TB, name string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(name))(t))
}

// write writes a file into a folder of its own.
func write(t testing.TB, name, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// bin is where the programs are, in the environment of an example's command.
func bin() string { return "BIN=" + programs }

// start runs the command of an example until the test ends, with the programs that are built
// already, and with another configuration of the proxy if there is one. Windows of a minute last for an hour, so that they
// do not end while a test runs.
func start(t testing.TB, example string, args ...string) *stack {
	t.Helper()
	if len(args) == 0 {
		args = []string{patiently(t, example)}
	}
	rules := read(t, filepath.Join("../../examples", example, "rules.yaml"))
	file := write(t, "rules.yaml", strings.ReplaceAll(rules, "window: 1m", "window: 1h"))
	return startWith(t, []string{bin(), "STINT_RULES_FROM=" + file}, example, args...)
}

// startWith is start with an environment.
func startWith(t testing.TB, env []string, example string, args ...string) *stack {
	t.Helper()
	s := &stack{
		t: t, processes: make(map[string]int),
		host: fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)),
	}
	s.command = exec.CommandContext(context.Background(), filepath.Join("../../examples", example, "run"), args...)
	s.command.Env = append(append(os.Environ(), "HOST="+s.host), env...)
	out, writer := io.Pipe()
	s.command.Stdout, s.command.Stderr = writer, writer
	s.command.WaitDelay = patience
	s.gone = must.Get(launch(s.command))(t)
	go func() {
		<-s.gone
		_ = writer.Close()
	}()
	t.Cleanup(s.end)
	s.await(out)
	return s
}

// launch starts a command, which a test that dies takes with it. The channel is closed when it has ended.
func launch(command *exec.Cmd) (gone <-chan struct{}, err error) {
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel takes the thread that starts a process for its parent. This one lives as
		// long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait() // how it ended is in its state
			close(ended)
		}
	}()
	return ended, <-started
}

var listens = regexp.MustCompile(`^(app|stint|nginx|caddy) listens on \S+, process (\d+)$`)

// await reads what the command says until all is up, and goes on reading in the background.
func (s *stack) await(out io.Reader) {
	s.t.Helper()
	up := make(chan string, 1)
	go func() {
		var all strings.Builder
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fmt.Fprintln(&all, lines.Text())
			if match := listens.FindStringSubmatch(lines.Text()); match != nil {
				s.processes[match[1]], _ = strconv.Atoi(match[2])
			}
			if strings.HasPrefix(lines.Text(), "try: ") {
				up <- ""
			}
		}
		up <- all.String()
	}()
	select {
	case fault := <-up:
		if fault != "" {
			s.t.Fatalf("the command ended:\n%s", fault)
		}
	case <-time.After(patience):
		s.t.Fatal("the command does not say that all is up")
	}
}

// end asks the command to end, and expects that nothing remains of it.
func (s *stack) end() { s.stop(syscall.SIGTERM) }

func (s *stack) stop(signal syscall.Signal) {
	s.t.Helper()
	_ = s.command.Process.Signal(signal) // it may have ended
	select {
	case <-s.gone:
	case <-time.After(patience):
		s.t.Error("the command does not end")
		_ = syscall.Kill(-s.command.Process.Pid, syscall.SIGKILL)
		<-s.gone
	}
	if code := s.command.ProcessState.ExitCode(); code != 0 {
		s.t.Errorf("the command ended with %v", s.command.ProcessState)
	}
	for name, process := range s.processes {
		if err := syscall.Kill(process, 0); !errors.Is(err, syscall.ESRCH) {
			s.t.Errorf("%s outlives the command: %v", name, err)
			_ = syscall.Kill(process, syscall.SIGKILL)
		}
	}
}

// pause stops a program for a while, as if it were silent.
func (s *stack) pause(name string) {
	s.t.Helper()
	s.signal(name, syscall.SIGSTOP, "T")
}

// resume lets a paused program go on.
func (s *stack) resume(name string) {
	s.t.Helper()
	s.signal(name, syscall.SIGCONT, "S")
}

// kill ends a program without a word.
func (s *stack) kill(name string) {
	s.t.Helper()
	s.signal(name, syscall.SIGKILL, "Z")
}

// signal sends a signal to one of the programs and waits until it is in a state, as the kernel
// names it, or gone.
func (s *stack) signal(name string, signal syscall.Signal, state string) {
	s.t.Helper()
	process := s.processes[name]
	if process == 0 {
		s.t.Fatalf("no process of %s is known: %v", name, s.processes)
	}
	must.Do(s.t, syscall.Kill(process, signal))
	s.until(name+" is in state "+state, func() bool {
		// The state follows the program's name in parentheses.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
		return err != nil || strings.Contains(string(stat), ") "+state+" ")
	})
}

// until waits until a condition holds.
func (s *stack) until(what string, holds func() bool) {
	s.t.Helper()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for deadline := time.After(patience); !holds(); {
		select {
		case <-poll.C:
		case <-deadline:
			s.t.Fatalf("waited %v until %s", patience, what)
		}
	}
}
