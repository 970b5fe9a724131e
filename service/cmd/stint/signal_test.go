//go:build unix

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

// begin sends half a request, of which the service has read the head and awaits
// the body.
func (p *program) begin(t *testing.T, body string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", p.addr))(t)
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err := fmt.Fprintf(conn, "POST /api/v1/rate-limit/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	line, err := reader.ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v", line, err)
	}
	must.Get(reader.ReadString('\n'))(t)
	return conn, reader
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

func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	p := startProgram(t)
	const body = `{"key":"k","permits":3}`
	conn, reader := p.begin(t, body)
	p.signal(t)
	must.Get(io.WriteString(conn, body))(t)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatalf("the request in flight: %v\n%s", err, p.log)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(answer), `"remaining":97`) {
		t.Errorf("the request in flight: %s %s, %v", response.Status, answer, err)
	}
	select {
	case err := <-p.exited:
		if err != nil {
			t.Errorf("exit: %v\n%s", err, p.log)
		}
	case <-time.After(patience):
		t.Errorf("the service does not end:\n%s", p.log)
	}
}

// SIGHUP does not end the service.
func TestSIGHUPEndsNothing(t *testing.T) {
	p := startProgram(t)
	must.Do(t, p.cmd.Process.Signal(syscall.SIGHUP))
	eventually(t, "it is said", func() bool { return strings.Contains(p.log.String(), "SIGHUP changes nothing") })
	if status, _ := get(t, "http://"+p.addr+"/actuator/health"); status != http.StatusOK {
		t.Errorf("health is %d", status)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := startProgram(t)
	p.begin(t, "{}") // and never ends it
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

// Connections that are kept alive have their next request answered after SIGTERM, and are told that it was
// the last one.
func TestSIGTERMLosesNoRequestOfKeptConnections(t *testing.T) {
	const connections = 40
	p := startProgram(t, "--drain-keep-alive="+patience.String()) // all are gone long before
	type client struct {
		net.Conn
		reader *bufio.Reader
	}
	var clients []client
	ask := func(c client) (*http.Response, error) {
		if _, err := io.WriteString(c, "GET /api/v1/rate-limit/check HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return nil, err
		}
		response, err := http.ReadResponse(c.reader, nil)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return response, errors.Join(err, response.Body.Close())
	}
	for range connections {
		conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", p.addr))(t)
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		c := client{conn, bufio.NewReader(conn)}
		if response, err := ask(c); err != nil || response.StatusCode != http.StatusOK || response.Close {
			t.Fatalf("%v, %v", response, err)
		}
		clients = append(clients, c)
	}
	p.signal(t)
	lost := 0
	for _, c := range clients {
		response, err := ask(c)
		if err != nil {
			lost++
			continue
		}
		if response.StatusCode != http.StatusOK || !response.Close {
			t.Errorf("%s, Connection %q", response.Status, response.Header["Connection"])
		}
		if _, err := c.reader.ReadByte(); err != io.EOF {
			t.Errorf("after the last answer: %v", err)
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d requests are lost", lost, connections)
	}
	select {
	case err := <-p.exited:
		if err != nil {
			t.Errorf("exit: %v\n%s", err, p.log)
		}
	case <-time.After(patience):
		t.Errorf("the service does not end:\n%s", p.log)
	}
}
