package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// procAddr stands for the address at which a program is to listen, in its arguments.
const procAddr = "{addr}"

// patience bounds how long a program may take until it listens, and until it has ended. After that it
// is killed.
const patience = time.Minute

// A process is a program that listens at an address.
type process struct {
	addr    string // host:port
	command *exec.Cmd
	cancel  context.CancelFunc // asks it to end
	ended   chan struct{}      // closed when it has
	dir     string             // its working folder, with its files
}

// start starts a program in a folder of its own with these files, and waits until it listens. It ends
// with the context. In its arguments {addr} and {port} stand for an address that was free just before.
func start(ctx context.Context, files map[string]string, program string, args ...string) (p *process, err error) {
	p = &process{ended: make(chan struct{})}
	if p.addr, err = freeAddr(ctx); err != nil {
		return nil, err
	}
	if program, err = exec.LookPath(program); err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "stint-gate-"); err != nil {
		return nil, err
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
	}
	_, port, _ := net.SplitHostPort(p.addr)
	filled := make([]string, len(args))
	for i, arg := range args {
		filled[i] = strings.NewReplacer(procAddr, p.addr, "{port}", port).Replace(arg)
	}
	ctx, p.cancel = context.WithCancel(ctx)
	var said bytes.Buffer // to be read when it has ended
	p.command = exec.CommandContext(ctx, program, filled...)
	p.command.Cancel = func() error { return p.command.Process.Signal(syscall.SIGTERM) }
	p.command.WaitDelay = patience
	p.command.Dir, p.command.Stdout, p.command.Stderr = p.dir, &said, &said
	p.command.Env = append(os.Environ(), "STINT_ADMIN_LISTEN=127.0.0.1:0") // where two services do not meet
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
		p.stop()
		return nil, fmt.Errorf("%s: %w: %s", program, err, said.String())
	}
	return p, nil
}

// listens waits until somebody can connect.
func (p *process) listens(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it did not listen within %s", patience))
	defer cancel()
	for dialer := (net.Dialer{}); ; {
		conn, err := dialer.DialContext(ctx, "tcp", p.addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return errors.New("it ended before it listened")
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// id is the process's number.
func (p *process) id() int { return p.command.Process.Pid }

// stop asks the program to end, kills it when it does not, and removes its folder.
func (p *process) stop() {
	p.cancel()
	<-p.ended
	_ = os.RemoveAll(p.dir) // in the folder for what is temporary
}

// startRedis starts a redis-server that keeps nothing on disk.
func startRedis(ctx context.Context) (*process, error) {
	return start(ctx, nil, "redis-server", "--bind", "127.0.0.1", "--port", "{port}", "--save", "", "--appendonly", "no")
}

// freeAddr is an address that nobody uses now. Nothing keeps it until the program listens there.
func freeAddr(ctx context.Context) (string, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
