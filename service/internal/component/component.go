// Package component starts the parts of a program in order, and stops them in reverse.
//
// A program is a [List] of parts. A [Part] has a name, the names of the parts that it needs, and what starts and stops
// it; nothing else. Parts hand each other what they made through variables of the program: a part that needs another
// starts after it, and is stopped before it.
package component

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// A Part is one part of a program.
type Part struct {
	// Name is what the log, the health and errors call the part.
	Name string
	// Needs are the names of the parts that have to run before this one starts. They stand before it in the list.
	Needs []string
	// Start readies the part, and returns when those that need it may start. What it leaves running ends with Stop, not
	// with the context, which is for the start alone. A start that fails leaves nothing running. nil does nothing.
	Start func(ctx context.Context) error
	// Stop ends the part; the context bounds how long that may take. It is called once, after a start that succeeded. nil
	// does nothing.
	Stop func(ctx context.Context) error
}

// Made is a part whose start returns its end, which can't fail; nil is none.
func Made(name string, start func(ctx context.Context) (stop func(), err error), needs ...string) Part {
	var stop func()
	return Part{
		Name: name, Needs: needs,
		Start: func(ctx context.Context) (err error) {
			stop, err = start(ctx)
			return err
		},
		Stop: func(context.Context) error {
			if stop != nil {
				stop()
			}
			return nil
		},
	}
}

// Background is a part that runs a function until it is stopped. Stop waits for its end.
func Background(name string, run func(context.Context), needs ...string) Part {
	return Made(name, func(ctx context.Context) (func(), error) { return Run(ctx, run), nil }, needs...)
}

// Run runs functions until the one that it returns is called, which waits for their end. They outlive ctx, of which
// they have the values alone. A second call does nothing.
func Run(ctx context.Context, runs ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, run := range runs {
		running.Go(func() { run(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// A State is how far a part is.
type State string

// The states of a part, in order; a part that does not start is Failed.
const (
	Waiting  State = "waiting"
	Starting State = "starting"
	Running  State = "running"
	Stopping State = "stopping"
	Stopped  State = "stopped"
	Failed   State = "failed"
)

// A StartError says which part did not start, and why.
type StartError struct {
	Part string
	Err  error
}

// Error implements error.
func (e *StartError) Error() string { return e.Part + " did not start: " + e.Err.Error() }

// Unwrap returns why the part did not start.
func (e *StartError) Unwrap() error { return e.Err }

// A List is the parts of a program in the order of their start. Make it with [New]. Start and Stop are for one
// goroutine, States for all.
type List struct {
	logger *slog.Logger
	parts  []Part

	mu     sync.Mutex
	states []State // of parts, by index
}

// New makes a list of parts. It reports a name that is given twice, and a need that no part before meets.
func New(logger *slog.Logger, parts ...Part) (*List, error) {
	l := &List{logger: logger, parts: parts, states: slices.Repeat([]State{Waiting}, len(parts))}
	known := map[string]bool{}
	for _, part := range parts {
		if known[part.Name] {
			return nil, fmt.Errorf("stint: the part %q is given twice", part.Name)
		}
		for _, need := range part.Needs {
			if !known[need] {
				return nil, fmt.Errorf("stint: the part %q needs %q; allowed: parts before it", part.Name, need)
			}
		}
		known[part.Name] = true
	}
	return l, nil
}

// Start starts the parts. If one fails, those before it are stopped in reverse, and the error is a [*StartError],
// joined with what failed when they stopped.
func (l *List) Start(ctx context.Context) error {
	for i, part := range l.parts {
		l.set(i, Starting)
		begin := time.Now()
		if part.Start != nil {
			if err := part.Start(ctx); err != nil {
				l.set(i, Failed)
				return errors.Join(&StartError{part.Name, err}, l.Stop(context.WithoutCancel(ctx)))
			}
		}
		l.set(i, Running)
		l.logger.Debug("a part is running", "part", part.Name, "after", time.Since(begin))
	}
	return nil
}

// Stop stops the parts that run, in reverse. One that fails keeps no other from being stopped; the error joins the
// failures.
func (l *List) Stop(ctx context.Context) (failed error) {
	for i := len(l.parts) - 1; i >= 0; i-- {
		if l.state(i) != Running {
			continue
		}
		l.set(i, Stopping)
		if stop := l.parts[i].Stop; stop != nil {
			failed = errors.Join(failed, stop(ctx))
		}
		l.set(i, Stopped)
		l.logger.Debug("a part is stopped", "part", l.parts[i].Name)
	}
	return failed
}

// States are the states of the parts by name, for the health.
func (l *List) States() map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	states := map[string]any{}
	for i, part := range l.parts {
		states[part.Name] = string(l.states[i])
	}
	return states
}

func (l *List) state(i int) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.states[i]
}

func (l *List) set(i int, state State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states[i] = state
}
