package testmongo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A Server is one running server. Its methods are safe for concurrent use.
type Server struct {
	cmd   *exec.Cmd
	input io.Closer // the server ends with its input
	url   string    // with a slash at the end
}

// Run starts a server, sets *shared to it, runs the tests of a package, stops the server
// and returns the code to exit with. It is for TestMain.
func Run(m *testing.M, shared **Server) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "testmongo")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := New(dir)
	if err != nil {
		return fail(err)
	}
	*shared = s
	code := m.Run()
	if err := s.Stop(); err != nil {
		return fail(err)
	}
	return code
}

// Start starts a server that ends with the test, and fails the test where that can't be done.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// New starts a server with its data in dir, which must exist, and returns when it listens. The
// caller stops it. The program writes its URL as its first line when it listens, and ends with its
// standard input, which the kernel closes when this process dies.
func New(dir string) (*Server, error) {
	program, err := folder()
	if err != nil {
		return nil, err
	}
	// What is built is kept by go, so that this takes its time only once.
	cmd := exec.CommandContext(context.Background(), "go", "run", ".", dir)
	cmd.Env = append(os.Environ(), "GOWORK=off") // the module is not in the workspace
	cmd.Dir = program
	var log strings.Builder
	cmd.Stderr = &log
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("testmongo: %w", err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("testmongo: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("testmongo: %w", err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("testmongo: the server does not start: %w\n%s", cmd.Wait(), log.String())
	}
	return &Server{cmd: cmd, input: input, url: strings.TrimSpace(line)}, nil
}

// folder is where the program's module is. The module's folder is asked of go, since tests of other
// modules use this package too.
func folder() (string, error) {
	out, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/stint-go/stint/service").Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%w\n%s", err, failed.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("testmongo: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "internal", "testmongo", "server"), nil
}

// URL is that of a database.
func (s *Server) URL(database string) string { return s.url + database }

// Stop ends the server. It is an error that it ended before, or not well.
func (s *Server) Stop() error {
	if err := s.input.Close(); err != nil {
		return fmt.Errorf("testmongo: %w", err)
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("testmongo: %w", err)
	}
	return nil
}
