package testredis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/stint-go/stint/internal/sleep"
)

// errPortTaken says that the program ended because its port was not free.
var errPortTaken = errors.New("testredis: the port is taken")

const (
	// How long a condition may take to come true. A sentinel whose process was held up
	// for 2 seconds does nothing for 30, and then perhaps again.
	patience = 3 * time.Minute
	grace    = 3 * time.Second // how long a server may take to end when asked to
)

// A process is one run of the program.
type process struct {
	cmd  *exec.Cmd
	log  string
	gone chan struct{} // closed when the process has ended
}

// startProcess starts the program, with more in its environment than the test has and
// its output going to the file log.
func startProcess(args, env []string, log string) (*process, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("testredis: %w", err)
	}
	p := &process{log: log, gone: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), program, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		// The kernel takes the thread that starts a process for its parent. This one
		// lives as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		_ = out.Close()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is in its log
			close(p.gone)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("testredis: %w", err)
	}
	return p, nil
}

// find looks for Redis, then for Valkey, on the PATH.
func find() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// ended reports whether the process has ended.
func (p *process) ended() bool {
	select {
	case <-p.gone:
		return true
	default:
		return false
	}
}

// fault says why a process ended on its own: with errPortTaken, or the end of its
// log.
func (p *process) fault() error {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("testredis: the server ended: %w", err)
	}
	if bytes.Contains(text, []byte("ddress already in use")) || bytes.Contains(text, []byte("Failed listening on port")) {
		return errPortTaken
	}
	const tail = 1000
	return fmt.Errorf("testredis: the server ended: %s", text[max(0, len(text)-tail):])
}

// stop asks the process to end, and kills it after the grace.
func (p *process) stop() error {
	if p.ended() {
		return nil
	}
	// A paused process hears SIGTERM when it goes on.
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.gone:
		return nil
	case <-timer.C:
		return p.kill()
	}
}

// kill ends the process at once, as a crash would, and waits until it is gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("testredis: %w", err)
	}
	<-p.gone
	return nil
}

// permanent marks an error that no waiting will mend.
type permanent struct{ error }

// Answered waits until a store has reached its server by a ping: the first attempts to connect fail on a machine that
// stands still.
func Answered(ctx context.Context, ping func(context.Context) error) error {
	return eventually(func() error { return ping(ctx) })
}

// eventually asks again and again, ever less often, until the condition returns
// nil. It gives up when patience runs out, and at once when the error is
// permanent.
func eventually(condition func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := condition()
		var final permanent
		switch {
		case err == nil:
			return nil
		case errors.As(err, &final):
			return final.error
		}
		if sleep.For(ctx, pause) != nil {
			return fmt.Errorf("testredis: waited %v: %w", patience, err)
		}
	}
}
