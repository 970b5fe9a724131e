package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/sleep"
)

// The exit codes of `stint check KEY -- COMMAND` if the command did not run, or was ended by a
// signal. They lie beside those of timeout(1); 126, 127 and 128 are those of a shell (POSIX, Shell
// Command Language, 2.8.2).
const (
	guardDenied      = 122 // denied, and not waited for, or not for that long
	guardUnreachable = 123 // the service or its store did not answer
	guardStopped     = 124 // a signal came while it was waiting
	guardFailed      = 125 // wrong usage, or another failure
	guardNotRunnable = 126 // the command is there and can't be run
	guardNotFound    = 127 // the command is not there
	guardSignal      = 128 // and the number of the signal that ended the command
)

// A status is the exit code of a command, which is passed on as it is.
type status int

func (s status) Error() string { return "" }

// guardCode turns the exit code of a check into the one that it has in front of a command.
func guardCode(code int) int {
	in := map[int]int{
		exitDenied:      guardDenied,
		exitUnreachable: guardUnreachable,
		exitFailed:      guardFailed,
		exitUsage:       guardFailed,
	}
	return cmp.Or(in[code], code)
}

// errStopped is that a signal ended a wait.
var errStopped error = exit{guardStopped, "stopped by a signal; nothing was run"}

// await repeats a denied check until it is allowed. It gives up when no wait will do, and when the
// check can't succeed within most; 0 is no bound. The wait is what the answer says, and up to a
// sixteenth more by chance, so that those that wait for one limit ask apart. A wait that would end
// behind most is not begun.
func await(
	ctx context.Context,
	most time.Duration,
	answer api.CheckResponse,
	check func() (api.CheckResponse, error),
) (api.CheckResponse, error) {
	begun := time.Now()
	for !answer.Allowed && answer.RetryAfterMicros >= 0 {
		wait := time.Duration(answer.RetryAfterMicros) * time.Microsecond
		if most > 0 && time.Since(begun)+wait > most {
			break
		}
		// Those that wait for one limit ask a little apart.
		if sleep.For(ctx, wait+rand.N(wait/16+time.Millisecond)) != nil { //nolint:gosec // it spreads requests
			return answer, errStopped
		}
		var err error
		if answer, err = check(); err != nil {
			return answer, err
		}
	}
	return answer, nil
}

// runCommand runs a command with the program's own input and outputs, hands signals on to it, and
// returns its exit code as an error; nil for 0. SIGTERM and SIGINT end ctx, but the command
// outlives it: it gets the signal, and the program waits for its end.
func runCommand(ctx context.Context, p process, words []string) error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	if ctx.Err() != nil {
		return errStopped
	}
	// The signal that ends the context is for the command, which decides what to make of it.
	//nolint:gosec // the user names the command
	command := exec.CommandContext(context.WithoutCancel(ctx), words[0], words[1:]...)
	command.Stdin, command.Stdout, command.Stderr = p.In, p.Out, p.Err
	if err := command.Start(); err != nil {
		code := guardNotRunnable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = guardNotFound
		}
		return exit{code, fmt.Sprintf("can't run %s: %v", words[0], errors.Unwrap(err))}
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = command.Process.Signal(s) // it may have ended
		case err := <-ended:
			return exitOf(command.ProcessState, err)
		}
	}
}

// exitOf is how a command ended.
func exitOf(state *os.ProcessState, err error) error {
	if ended, ok := state.Sys().(syscall.WaitStatus); ok && ended.Signaled() {
		return status(guardSignal + int(ended.Signal()))
	}
	if code := state.ExitCode(); code != 0 {
		return status(code)
	}
	if err != nil { // its output could not be copied
		return exit{guardFailed, err.Error()}
	}
	return nil
}

// deniedText says for people why a check was denied.
func deniedText(key string, answer *api.CheckResponse) string {
	text := key + " is denied"
	if answer.Limit > 0 {
		text += " by " + limitText(answer.Limit, answer.Policy, answer.Algorithm)
	}
	if answer.Reason != "" {
		text += ", reason " + answer.Reason
	}
	if answer.RetryAfterMicros < 0 {
		return text + "; no wait will do"
	}
	return text + "; try again in " + waitText(answer.RetryAfterMicros)
}
