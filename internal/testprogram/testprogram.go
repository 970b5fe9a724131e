// Package testprogram builds programs for the tests of a package, and starts programs that end with their test.
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
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// Main builds the programs of some folders into a new one, runs the tests of a package, and removes that folder. It
// returns the exit code of the tests' process.
func Main(m interface{ Run() int }, programs *string, folders ...string) int {
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.CommandContext(context.Background(), "go", append([]string{"build", "-o", dir + "/"}, folders...)...)
	if text, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, text)
		return 1
	}
	*programs = dir
	return m.Run()
}

// A Process is a program that runs.
type Process struct {
	*os.Process

	command *exec.Cmd
	read    chan struct{} // closed at the end of its standard error

	mu  sync.Mutex
	log strings.Builder
}

// Start starts a command that ends with the test, and waits until its standard error has a line for each pattern. It
// returns the first group of each pattern.
func Start(t testing.TB, command *exec.Cmd, patterns ...string) (p *Process, found []string) {
	t.Helper()
	p = &Process{command: command, read: make(chan struct{})}
	output := must.Get(command.StderrPipe())(t)
	if err := command.Start(); err != nil {
		t.Fatalf("%v (`make test` installs it)", err)
	}
	p.Process = command.Process
	t.Cleanup(func() { _ = p.Stop(os.Kill) })
	found = make([]string, len(patterns))
	missing, all := len(patterns), make(chan struct{})
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.mu.Lock()
			p.log.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
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
	if len(patterns) == 0 {
		return p, nil
	}
	select {
	case <-all:
	case <-p.read:
		select {
		case <-all: // and then it ended
		default:
			t.Fatalf("%s does not start:\n%s", command.Path, p.Log())
		}
	}
	return p, found
}

// Log is its standard error so far.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// Stop sends a signal, waits until the process has ended, and returns how it did.
func (p *Process) Stop(signal os.Signal) error {
	_ = p.Signal(signal) // it may have ended
	<-p.read
	return p.command.Wait()
}
