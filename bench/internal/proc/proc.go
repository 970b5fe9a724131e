// Package proc starts the programs that are measured, ends them, and says what they use.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTimeout bounds how long a program may take until it listens.
const startTimeout = 10 * time.Second

// In a program's arguments these stand for the address at which it is to listen, that
// address's port, and another free port.
const (
	Addr      = "{addr}"
	Port      = "{port}"
	OtherPort = "{other-port}"
)

// A Process is a running program that listens on an address.
type Process struct {
	// Addr is the address it listens on, such as 127.0.0.1:41873.
	Addr string

	command *exec.Cmd
	cancel  context.CancelFunc
	ended   chan struct{}
	said    bytes.Buffer // to be read when it has ended
	dir     string
}

// Start starts a program in a folder of its own with these files, and waits until it
// listens. It ends with the context.
func Start(ctx context.Context, files map[string]string, path string, args ...string) (p *Process, err error) {
	ports, err := FreePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	p = &Process{Addr: net.JoinHostPort("127.0.0.1", ports[0]), ended: make(chan struct{})}
	if path, err = exec.LookPath(path); err != nil {
		return nil, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "stint-bench-"); err != nil {
		return nil, err
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
	}
	placeholders := strings.NewReplacer(Addr, p.Addr, Port, ports[0], OtherPort, ports[1])
	filled := make([]string, len(args))
	for i, arg := range args {
		filled[i] = placeholders.Replace(arg)
	}
	ctx, p.cancel = context.WithCancel(ctx)
	p.command = exec.CommandContext(ctx, path, filled...)
	p.command.Cancel = func() error { return p.command.Process.Signal(syscall.SIGTERM) }
	p.command.WaitDelay = 5 * time.Second
	p.command.Dir, p.command.Stdout, p.command.Stderr = p.dir, &p.said, &p.said
	// Servers here must not meet on the admin listener's default port.
	p.command.Env = append(os.Environ(), "STINT_ADMIN_LISTEN=127.0.0.1:0")
	if err == nil {
		err = p.command.Start()
	}
	if err != nil {
		p.cancel()
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	go func() {
		_ = p.command.Wait() // how it ends is not what is measured
		close(p.ended)
	}()
	if err := p.listens(ctx); err != nil {
		return nil, errors.Join(err, p.Stop(), fmt.Errorf("%s said: %s", path, p.said.String()))
	}
	return p, nil
}

// listens waits until somebody can connect.
func (p *Process) listens(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("it did not listen within %v", startTimeout))
	defer cancel()
	for dialer := (net.Dialer{}); ; {
		conn, err := dialer.DialContext(ctx, "tcp", p.Addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return errors.New("it ended before it listened")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// StartRedis starts a redis-server that keeps nothing on disk, with more arguments of its
// own. It is kept on one processor, unless cpu is negative.
func StartRedis(ctx context.Context, cpu int, more ...string) (*Process, error) {
	args := append(
		[]string{"redis-server", "--bind", "127.0.0.1", "--port", Port, "--save", "", "--appendonly", "no"},
		more...)
	if cpu >= 0 {
		args = append([]string{"taskset", "-c", strconv.Itoa(cpu)}, args...)
	}
	return Start(ctx, nil, args[0], args[1:]...)
}

// ID is the process's number.
func (p *Process) ID() int { return p.command.Process.Pid }

// Stop asks the program to end, and kills it when it does not.
func (p *Process) Stop() error {
	p.cancel()
	<-p.ended
	return os.RemoveAll(p.dir)
}

// FreePorts are ports of which nobody makes use, all different.
func FreePorts(ctx context.Context, n int) (ports []string, err error) {
	for range n {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }()
		ports = append(ports, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
