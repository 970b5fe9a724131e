//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
)

// answers serves answers to checks, the last one again and again.
func answers(t *testing.T, answers ...api.CheckResponse) (url string, asked func() int) {
	t.Helper()
	count := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer := answers[min(count, len(answers)-1)]
		count++
		w.Header().Set("Content-Type", "application/json")
		if !answer.Allowed {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = w.Write(answer.AppendJSON(nil))
	}))
	t.Cleanup(server.Close)
	return server.URL, func() int { return count }
}

var (
	admitted = api.CheckResponse{Allowed: true, Algorithm: "TOKEN_BUCKET", Limit: 5, Source: "store"}
	soon     = api.CheckResponse{RetryAfterMicros: 1000, Algorithm: "TOKEN_BUCKET", Limit: 5, Source: "store", Reason: "limit"}
	late     = api.CheckResponse{RetryAfterMicros: 3600e6, RetryAfterSeconds: 3600, Algorithm: "TOKEN_BUCKET", Limit: 5, Source: "store", Reason: "limit"}
	never    = api.CheckResponse{RetryAfterMicros: -1, RetryAfterSeconds: -1, Algorithm: "TOKEN_BUCKET", Limit: 5, Source: "store", Reason: "never"}
)

// A command runs if the check is allowed, now or later, and its exit code is passed on; else stint's own exit codes say why not.
func TestGuardedCommand(t *testing.T) {
	kinds := map[string]api.CheckResponse{"admitted": admitted, "soon": soon, "late": late, "never": never}
	for _, row := range testtable.Rows[struct {
		Name, Answers  string
		Code, Asked    int
		Ran            bool
		Args           string
		Stdout, Stderr string
	}](t, "testdata/guard.txt") {
		t.Run(row.Name, func(t *testing.T) {
			url, asked := "http://127.0.0.1:1", func() int { return 0 } // where nobody listens
			var list []api.CheckResponse
			for kind := range strings.FieldsSeq(row.Answers) {
				list = append(list, kinds[kind])
			}
			if list != nil {
				url, asked = answers(t, list...)
			}
			ran := filepath.Join(t.TempDir(), "ran")
			line := strings.NewReplacer("RAN", ran, "FILE", writeFile(t, "#!/bin/sh\n")).Replace(row.Args)
			args := []string{"check", "k"}
			for _, each := range word.FindAllString(line, -1) {
				args = append(args, strings.ReplaceAll(each, "'", ""))
			}
			code, stdout, stderr := do(t, map[string]string{"STINT_SERVER": url}, args...)
			_, err := os.Stat(ran)
			if code != row.Code || (err == nil) != row.Ran || asked() != row.Asked || !strings.Contains(stdout, row.Stdout) ||
				!strings.Contains(stderr, row.Stderr) || row.Stderr == "" && stderr != "" {
				t.Errorf("exit code %d, ran %v, asked %d times, output %q, errors %q; want %+v",
					code, err == nil, asked(), stdout, stderr, row)
			}
		})
	}
}

// An admitted request of a leaky bucket is held for its delay before the command runs.
func TestGuardHoldsForTheDelay(t *testing.T) {
	delayed := admitted
	delayed.DelayMicros = 3600e6
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(delayed.AppendJSON(nil))
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			cancel() // so it is held no longer
		}
	}
	server.Start()
	defer server.Close()
	var out, errs strings.Builder
	code := run(ctx, []string{"check", "k", "--server", server.URL, "--timeout", "10s", "--", "echo", "ran"}, process{Out: &out, Err: &errs, Env: environment(nil)})
	if code != guardStopped || out.Len() > 0 {
		t.Errorf("exit code %d, %q, %q", code, &out, &errs)
	}
}

// Signals reach the command, and one that ends it is passed on as 128 and its number.
func TestGuardForwardsSignals(t *testing.T) {
	url, _ := answers(t, admitted)
	for name, test := range map[string]struct {
		script string
		signal syscall.Signal
		code   int
		output string
	}{
		"handled":     {`trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.01; done`, syscall.SIGTERM, 9, "got it\n"},
		"interrupted": {`trap 'echo stopped; exit 4' INT; echo ready; while :; do sleep 0.01; done`, syscall.SIGINT, 4, "stopped\n"},
		"ended":       {`echo ready; while :; do sleep 0.01; done`, syscall.SIGHUP, 128 + 1, ""},
		"user's":      {`echo ready; while :; do sleep 0.01; done`, syscall.SIGUSR1, 128 + int(syscall.SIGUSR1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			command := exec.CommandContext(ctx, os.Args[0], "check", "k", "--", "sh", "-c", test.script)
			command.Env = append(os.Environ(), asProgram+"=1", "STINT_SERVER="+url)
			stdout := must.Get(command.StdoutPipe())(t)
			must.Do(t, command.Start())
			reader := bufio.NewReader(stdout)
			if line, err := reader.ReadString('\n'); line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			must.Do(t, command.Process.Signal(test.signal))
			rest, err := io.ReadAll(reader)
			if err != nil || string(rest) != test.output {
				t.Errorf("output %q, %v", rest, err)
			}
			var ended *exec.ExitError
			if err := command.Wait(); !errors.As(err, &ended) || ended.ExitCode() != test.code {
				t.Errorf("%v, want exit code %d", err, test.code)
			}
		})
	}
}

// A signal ends the wait, and the command does not run.
func TestSignalWhileWaiting(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(late.AppendJSON(nil))
		asked <- struct{}{}
	}))
	defer server.Close()
	command := exec.CommandContext(ctx, os.Args[0], "check", "k", "--wait", "--", "echo", "ran")
	command.Env = append(os.Environ(), asProgram+"=1", "STINT_SERVER="+server.URL)
	var out, errs strings.Builder
	command.Stdout, command.Stderr = &out, &errs
	must.Do(t, command.Start())
	<-asked
	must.Do(t, command.Process.Signal(syscall.SIGTERM))
	var ended *exec.ExitError
	if err := command.Wait(); !errors.As(err, &ended) || ended.ExitCode() != guardStopped || out.Len() > 0 {
		t.Errorf("%v, output %q, errors %q", err, &out, &errs)
	}
}
