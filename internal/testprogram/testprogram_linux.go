// Package testprogram builds and starts programs, which tests run as processes of their own.
package testprogram

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
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

// Build runs go build in a folder with more arguments, by the tags that the program is released with.
func Build(folder string, arguments ...string) error {
	arguments = append([]string{"build", "-tags", "grpcnotrace"}, arguments...)
	command := exec.CommandContext(context.Background(), "go", arguments...)
	command.Dir = folder
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, text)
	}
	return nil
}

// Main builds programs by their folders into a new folder, runs the tests of a package, and removes that folder. It
// returns the tests' exit code.
func Main(tests func() int, programs *string, folders ...string) (code int) {
	dir, err := os.MkdirTemp("", "programs")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		*programs = dir
		err = Build(".", append([]string{"-o", dir + "/"}, folders...)...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return tests()
}

// Listeners are patterns of the lines in which stint logs the addresses of its listeners.
func Listeners(names ...string) []string {
	patterns := make([]string, len(names))
	for i, name := range names {
		patterns[i] = `msg=listening service=` + name + ` addr=(\S+)`
	}
	return patterns
}

// A Process is a program that runs until its test ends, at the latest.
type Process struct {
	*os.Process

	wait func() error

	mu  sync.Mutex
	log strings.Builder
}

// Start starts a command, and waits until its standard error has a line for each pattern. It returns the first group of
// each. If the test fails, its log has what the program logged.
func Start(t testing.TB, command *exec.Cmd, patterns ...string) (p *Process, found []string) {
	t.Helper()
	p = &Process{}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output := must.Get(command.StderrPipe())(t)
	if err := command.Start(); err != nil {
		t.Fatalf("%v (`make test` installs it)", err)
	}
	p.Process = command.Process
	found = make([]string, len(patterns))
	all, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		missing := len(patterns)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.note(lines.Text())
			for i, pattern := range patterns {
				match := regexp.MustCompile(pattern).FindStringSubmatch(lines.Text())
				if match == nil || found[i] != "" {
					continue
				}
				if found[i], missing = match[1], missing-1; missing == 0 {
					close(all)
				}
			}
		}
		_, _ = io.Copy(io.Discard, output) // behind a line that is too long
	}()
	p.wait = sync.OnceValue(func() error {
		<-ended
		return command.Wait()
	})
	t.Cleanup(func() {
		_ = p.Kill()
		_ = p.wait() // how it ended is in its log
		if t.Failed() {
			t.Logf("the log of %s:\n%s", command, p.Log())
		}
	})
	if len(patterns) == 0 {
		return p, nil
	}
	select {
	case <-all:
	case <-ended:
		select {
		case <-all: // and then it ended
		default:
			t.Fatalf("%s does not start", command)
		}
	}
	return p, found
}

func (p *Process) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.WriteString(line + "\n")
}

// Log is its standard error so far.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Stop ends the process as an operator does, and returns how it ended.
func (p *Process) Stop() error {
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	return p.wait()
}
