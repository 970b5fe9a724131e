// Package proc starts the programs that are measured and ends them.
package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

// startTimeout bounds how long a program may take until it listens.
const startTimeout = 10 * time.Second

// A Process is a running program that listens on an address.
type Process struct {
	// Addr is the address it listens on, such as 127.0.0.1:41873.
	Addr string

	command *exec.Cmd
	dir     string // removed when it stops; "" for none
}

// listening is the line by which a server says where it listens.
var listening = regexp.MustCompile(`msg=listening service=http addr=(\S+)`)

// StartServer starts a program that prints the line "msg=listening service=http
// addr=ADDRESS" to either output, and waits for it. It ends with the context.
func StartServer(ctx context.Context, path string, args ...string) (*Process, error) {
	command := prepare(ctx, path, args)
	// Servers here must not meet on the admin listener's default port.
	command.Env = append(os.Environ(), "STINT_ADMIN_LISTEN=127.0.0.1:0")
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr = writer, writer
	err = command.Start()
	_ = writer.Close() // the program has its own
	if err != nil {
		_ = reader.Close()
		return nil, err
	}
	found := make(chan string, 1)
	go func() {
		defer func() { _ = reader.Close() }()
		said := ""
		lines := bufio.NewScanner(reader)
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
				_, _ = io.Copy(io.Discard, reader)
				return
			}
			said += lines.Text() + "\n"
		}
		fmt.Fprintf(os.Stderr, "%s said:\n%s", path, said)
		close(found)
	}()
	p := &Process{command: command}
	select {
	case p.Addr = <-found:
		if p.Addr != "" {
			return p, nil
		}
		return nil, errors.Join(fmt.Errorf("%s ended before it listened", path), p.Stop())
	case <-time.After(startTimeout):
		return nil, errors.Join(fmt.Errorf("%s did not listen within %v", path, startTimeout), p.Stop())
	}
}

// StartRedis starts a redis-server that keeps nothing on disk, and waits until it
// answers. It ends with the context.
func StartRedis(ctx context.Context) (*Process, error) {
	return startRedis(ctx, "redis-server")
}

// StartRedisOn is [StartRedis] with the server kept on one processor.
func StartRedisOn(ctx context.Context, cpu int) (*Process, error) {
	return startRedis(ctx, "taskset", "-c", strconv.Itoa(cpu), "redis-server")
}

// startRedis starts it by a command, to which its arguments are added.
func startRedis(ctx context.Context, command string, before ...string) (*Process, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "stint-bench-redis-")
	if err != nil {
		return nil, err
	}
	server := prepare(ctx, command, append(before,
		"--bind", "127.0.0.1", "--port", strconv.Itoa(port),
		"--save", "", "--appendonly", "no", "--dir", dir,
	))
	p := &Process{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), command: server, dir: dir}
	if err := server.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	deadline := time.Now().Add(startTimeout)
	for {
		err := ping(ctx, p.Addr)
		if err == nil {
			return p, nil
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("redis-server did not answer: %w", err), p.Stop())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ID is the process's number.
func (p *Process) ID() int { return p.command.Process.Pid }

// Stop asks the program to end, and kills it when it does not.
func (p *Process) Stop() error {
	err := p.command.Cancel()
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	killer := time.AfterFunc(p.command.WaitDelay, func() { _ = p.command.Process.Kill() })
	defer killer.Stop()
	err = p.command.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) || errors.Is(err, context.Canceled) {
		err = nil // how it ends is not what is measured
	}
	if p.dir != "" {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return err
}

func prepare(ctx context.Context, path string, args []string) *exec.Cmd {
	command := exec.CommandContext(ctx, path, args...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 5 * time.Second
	return command
}

func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}

func ping(ctx context.Context, addr string) error {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return err
	}
	answer := make([]byte, len("+PONG"))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if string(answer) != "+PONG" {
		return fmt.Errorf("redis-server answered %q", answer)
	}
	return nil
}
