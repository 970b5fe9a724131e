//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// A log that is full, or whose reader is gone, holds up neither the service nor its
// end.
func TestLogThatNobodyReads(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, reader, writer *os.File){
		"full":   func(t *testing.T, _, writer *os.File) { fill(t, writer) },
		"closed": func(t *testing.T, reader, _ *os.File) { _ = reader.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			reader, writer := must.Two(os.Pipe())(t)
			defer func() { _, _ = reader.Close(), writer.Close() }()
			// Each further connection makes the one before go, and the log say so.
			command := exec.CommandContext(ctx, os.Args[0], "serve", "--listen=127.0.0.1:0", "--admin-listen=off", "--http-max-connections=1")
			command.Env, command.Stderr = append(os.Environ(), asProgram+"=1"), writer
			must.Do(t, command.Start())
			defer func() { _ = command.Process.Kill() }()
			addr := ""
			for scanner := bufio.NewScanner(reader); addr == "" && scanner.Scan(); {
				if match := addrPattern.FindStringSubmatch(scanner.Text()); match != nil {
					addr = match[1]
				}
			}
			if name == "closed" {
				_ = writer.Close() // the service has its own
			}
			spoil(t, reader, writer)
			eventually(t, "a connection made room, which is logged", func() bool { // metrics may be a second old
				client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
				t.Cleanup(client.CloseIdleConnections)
				made := regexp.MustCompile(`rate_limiter_connections_closed_total{cause="made_room",service="http"} [1-9]`)
				return made.MatchString(asked(t, client, "http://"+addr+"/metrics"))
			})
			must.Do(t, command.Process.Signal(syscall.SIGTERM))
			if err := command.Wait(); err != nil {
				t.Errorf("the service ends with %v", err)
			}
		})
	}
}

// asked asks until there is room for the connection.
func asked(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
		response, err := client.Do(request)
		if err == nil {
			defer func() { _ = response.Body.Close() }()
			body := must.Get(io.ReadAll(response.Body))(t)
			return string(body)
		}
		if time.Now().After(deadline) {
			t.Fatalf("the service does not answer: %v", err)
		}
	}
}

// fill writes to a pipe that others have as well until it takes no more.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	raw := must.Get(pipe.SyscallConn())(t)
	must.Do(t, raw.Control(func(fd uintptr) {
		_ = syscall.SetNonblock(int(fd), true)
		defer func() { _ = syscall.SetNonblock(int(fd), false) }()
		for _, size := range []int{4096, 1} {
			var err error
			for err == nil {
				_, err = syscall.Write(int(fd), make([]byte, size))
			}
			if !errors.Is(err, syscall.EAGAIN) {
				t.Error(err)
			}
		}
	}))
}
