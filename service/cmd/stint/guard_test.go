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
	notRunnable := writeFile(t, "#!/bin/sh\n")
	for name, test := range map[string]struct {
		answers        []api.CheckResponse
		args           []string // after the key; RAN is a file that the command makes
		code           int
		ran            bool
		asked          int
		stdout, stderr string
	}{
		"allowed":                 {[]api.CheckResponse{admitted}, []string{"--", "sh", "-c", "touch RAN; echo out; echo err >&2; exit 7"}, 7, true, 1, "out\n", "err\n"},
		"codes are passed on":     {[]api.CheckResponse{admitted}, []string{"--", "sh", "-c", "touch RAN; exit 3"}, 3, true, 1, "", ""},
		"success":                 {[]api.CheckResponse{admitted}, []string{"--", "touch", "RAN"}, 0, true, 1, "", ""},
		"ended by a signal":       {[]api.CheckResponse{admitted}, []string{"--", "sh", "-c", "touch RAN; kill -KILL $$"}, 128 + 9, true, 1, "", ""},
		"flags of the command":    {[]api.CheckResponse{admitted}, []string{"--wait", "--", "sh", "-c", "touch RAN; echo $0 $1", "--wait", "--json"}, 0, true, 1, "--wait --json\n", ""},
		"denied":                  {[]api.CheckResponse{soon}, []string{"--", "touch", "RAN"}, guardDenied, false, 1, "", "stint: k is denied by 5 (TOKEN_BUCKET), reason limit; try again in 1ms\n"},
		"denied, as JSON":         {[]api.CheckResponse{never}, []string{"--json", "--", "touch", "RAN"}, guardDenied, false, 1, `"retryAfterMicros":-1`, ""},
		"waited for":              {[]api.CheckResponse{soon, soon, admitted}, []string{"--wait", "--", "touch", "RAN"}, 0, true, 3, "", ""},
		"waited for in vain":      {[]api.CheckResponse{never}, []string{"--wait", "--", "touch", "RAN"}, guardDenied, false, 1, "", "no wait will do"},
		"too long a wait":         {[]api.CheckResponse{soon, late}, []string{"--wait=10m", "--", "touch", "RAN"}, guardDenied, false, 2, "", "try again in 1h0m0s"},
		"waited without command":  {[]api.CheckResponse{soon, admitted}, []string{"--wait"}, exitOK, false, 2, "allowed      yes", ""},
		"denied without command":  {[]api.CheckResponse{soon, late}, []string{"--wait=1m"}, exitDenied, false, 2, "allowed      no", ""},
		"no such command":         {[]api.CheckResponse{admitted}, []string{"--", "no-such-command"}, guardNotFound, false, 1, "", "stint: can't run no-such-command: "},
		"no such path":            {[]api.CheckResponse{admitted}, []string{"--", notRunnable + ".none"}, guardNotFound, false, 1, "", "stint: can't run "},
		"not a program":           {[]api.CheckResponse{admitted}, []string{"--", notRunnable}, guardNotRunnable, false, 1, "", "permission denied"},
		"unreachable":             {nil, []string{"--", "touch", "RAN"}, guardUnreachable, false, 0, "", "does not answer"},
		"unreachable, no command": {nil, nil, exitUnreachable, false, 0, "", "or name another with --server"},
		"no command":              {[]api.CheckResponse{admitted}, []string{"--"}, guardFailed, false, 0, "", "there is no command after --"},
		"a wrong flag":            {[]api.CheckResponse{admitted}, []string{"--waits", "--", "touch", "RAN"}, guardFailed, false, 0, "", "unknown flag: --waits"},
		"a wrong wait":            {[]api.CheckResponse{admitted}, []string{"--wait=-1s", "--", "touch", "RAN"}, guardFailed, false, 0, "", `--wait is "-1s"; allowed: nothing, or =DURATION above 0`},
		"without dashes":          {[]api.CheckResponse{admitted}, []string{"touch", "RAN"}, exitUsage, false, 0, "", "there are 3 keys; allowed: one, and a command only after --"},
	} {
		t.Run(name, func(t *testing.T) {
			url, asked := "http://127.0.0.1:1", func() int { return 0 } // where nobody listens
			if test.answers != nil {
				url, asked = answers(t, test.answers...)
			}
			ran := filepath.Join(t.TempDir(), "ran")
			args := []string{"check", "k"}
			for _, word := range test.args {
				args = append(args, strings.ReplaceAll(word, "RAN", ran))
			}
			code, stdout, stderr := do(t, map[string]string{"STINT_SERVER": url}, args...)
			_, err := os.Stat(ran)
			if code != test.code || (err == nil) != test.ran || asked() != test.asked || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) ||
				test.stderr == "" && stderr != "" {
				t.Errorf("exit code %d, ran %v, asked %d times, output %q, errors %q; want %+v", code, err == nil, asked(), stdout, stderr, test)
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
