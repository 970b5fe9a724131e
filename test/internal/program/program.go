// Package program builds and starts programs of the repository, which tests run as processes of their own.
package program

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
	"time"

	"github.com/stint-go/stint/internal/must"
)

// Patience is how long what should come soon may take.
const Patience = 5 * time.Minute

// Until waits until something is so.
func Until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// Build builds a package of a folder into a file, with more arguments of go build.
func Build(folder, target, file string, arguments ...string) error {
	command := exec.CommandContext(context.Background(), "go", append(append([]string{"build"}, arguments...), "-o", file, target)...)
	command.Dir = folder
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", target, err, text)
	}
	return nil
}

// Main runs tests that need stint, which it builds into a file before, and returns their exit code.
func Main(root string, file *string, tests func() int) (code int) {
	dir, err := os.MkdirTemp("", "stint")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		*file = filepath.Join(dir, "stint")
		err = Build(root, "./service/cmd/stint", *file, "-tags", "grpcnotrace")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests()
}

// A Process is a program that runs until its test ends, at the latest.
type Process struct {
	PID int
	// Wait waits until the process has ended, and returns how.
	Wait func() error

	mu    sync.Mutex
	log   strings.Builder
	addrs map[string]string // of listeners by their names
}

var listening = regexp.MustCompile(`msg=listening service=(\S+) addr=(\S+)`)

// Start starts a program that logs to its standard error, and returns when listeners of some names have their addresses.
// If the test fails, its log has that of the program.
func Start(t testing.TB, command *exec.Cmd, listeners ...string) *Process {
	t.Helper()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr := must.Get(command.StderrPipe())(t)
	must.Do(t, command.Start())
	p := &Process{PID: command.Process.Pid, addrs: map[string]string{}}
	up, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if p.note(lines.Text()); p.has(listeners) {
				select {
				case up <- struct{}{}:
				default:
				}
			}
		}
	}()
	p.Wait = sync.OnceValue(func() error {
		<-ended
		return command.Wait()
	})
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = p.Wait() // how it ended is in its log
		if t.Failed() {
			t.Logf("the log of %s:\n%s", command, p.Log())
		}
	})
	if len(listeners) == 0 {
		return p
	}
	select {
	case <-up:
	case <-ended:
		t.Fatalf("%s does not start", command)
	}
	return p
}

func (p *Process) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.WriteString(line + "\n")
	if match := listening.FindStringSubmatch(line); match != nil {
		p.addrs[match[1]] = match[2]
	}
}

func (p *Process) has(listeners []string) bool {
	for _, listener := range listeners {
		if p.Addr(listener) == "" {
			return false
		}
	}
	return true
}

// Addr is the address, HOST:PORT, of a listener.
func (p *Process) Addr(listener string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addrs[listener]
}

// Log is what the process has logged so far.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Signal sends a signal to the process.
func (p *Process) Signal(s syscall.Signal) error { return syscall.Kill(p.PID, s) }

// Stop ends the process as an operator does, and returns how it ended.
func (p *Process) Stop() error {
	_ = p.Signal(syscall.SIGTERM)
	return p.Wait()
}
