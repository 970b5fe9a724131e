//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// A program is `stint serve` as a process of its own.
type program struct {
	cmd    *exec.Cmd
	addr   string
	log    *lines
	exited chan error
}

func startProgram(t *testing.T, flags ...string) *program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	p := &program{exited: make(chan error, 1)}
	flags = slices.Concat([]string{"serve", "--listen=127.0.0.1:0", "--admin-listen=off", "--drain-timeout=10m"}, patient, flags)
	p.cmd = exec.CommandContext(ctx, os.Args[0], flags...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	stderr, writer := must.Two(os.Pipe())(t)
	p.cmd.Stderr = writer
	must.Do(t, p.cmd.Start())
	_ = writer.Close()
	go func() { p.exited <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	p.addr, p.log = readAddr(t, stderr)
	return p
}

// begin sends half a request, of which the service has read the head and awaits the body.
func (p *program) begin(t *testing.T) {
	t.Helper()
	conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", p.addr))(t)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	must.Get(io.WriteString(conn, "POST /api/v1/rate-limit/check HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Type: application/json\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"))(t)
	if line := must.Get(bufio.NewReader(conn).ReadString('\n'))(t); !strings.Contains(line, "100 Continue") {
		t.Fatal(line)
	}
}

// signal sends SIGTERM and returns when the service no longer accepts connections.
func (p *program) signal(t *testing.T) {
	t.Helper()
	must.Do(t, p.cmd.Process.Signal(syscall.SIGTERM))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			_ = conn.Close()
		}
	}
	t.Fatalf("the service goes on accepting connections:\n%s", p.log)
}

// SIGHUP does not end the service.
func TestSIGHUPEndsNothing(t *testing.T) {
	p := startProgram(t)
	must.Do(t, p.cmd.Process.Signal(syscall.SIGHUP))
	awaitLog(t, p.log, "SIGHUP changes nothing")
	if status, _ := get(t, "http://"+p.addr+"/actuator/health"); status != http.StatusOK {
		t.Errorf("health is %d", status)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := startProgram(t)
	p.begin(t) // and never ends it
	p.signal(t)
	ticker := time.NewTicker(5 * time.Millisecond) // until the first signal is dealt with, a second is the same one
	defer ticker.Stop()
	for {
		select {
		case err := <-p.exited:
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
				t.Errorf("exit: %v\n%s", err, p.log)
			}
			return
		case <-ticker.C:
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
		}
	}
}
