package watchdog_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/watchdog"
)

const timeout = 100 * time.Millisecond

var errRefused = errors.New("connection refused")

// fixture is a watchdog and what it has reported.
type fixture struct {
	*watchdog.Watchdog
	mu    sync.Mutex
	found []error
	tried int
	try   func(ctx context.Context, w *watchdog.Watchdog, call *watchdog.Call)

	connection progress
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{}
	f.Watchdog = watchdog.New(watchdog.Config{
		Timeout:    timeout,
		Connection: &f.connection,
		Unreachable: func(cause error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.found = append(f.found, cause)
		},
		Try: func(ctx context.Context) {
			f.mu.Lock()
			f.tried++
			f.mu.Unlock()
			var call watchdog.Call
			f.Begin(&call)
			if f.try == nil {
				f.Answered(&call)
				return
			}
			f.try(ctx, f.Watchdog, &call)
		},
	})
	t.Cleanup(f.Close)
	return f
}

// causes are why the server was reported as unreachable.
func (f *fixture) causes() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.found
}

// tries is how often the server was tried.
func (f *fixture) tries() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tried
}

// after waits until all is done that is due after so long.
func after(d time.Duration) {
	<-time.After(d) // of the bubble's time
	synctest.Wait()
}

func (f *fixture) reachable(t *testing.T, when string) {
	t.Helper()
	if len(f.causes()) > 0 {
		t.Fatalf("%s: unreachable: %v", when, f.causes())
	}
}

// reported expects that the server was reported so often by now, at first by a cause; any if that is nil.
func (f *fixture) reported(t *testing.T, when string, times int, cause error) {
	t.Helper()
	if causes := f.causes(); len(causes) != times || cause != nil && !errors.Is(causes[0], cause) {
		t.Fatalf("%s: reported %v, want %d times, by %v", when, causes, times, cause)
	}
}

// bubble runs a test in a bubble with a fixture.
func bubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFixture(t)) })
}

func TestSilence(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var first, second watchdog.Call
		f.Begin(&first)
		after(timeout - time.Millisecond)
		f.reachable(t, "just before the timeout")
		f.Begin(&second)
		after(2 * time.Millisecond)
		if f.reported(t, "after the timeout", 1, watchdog.ErrSilent); !f.Down() {
			t.Error("it is not down")
		}
		after(time.Minute)
		f.reported(t, "a minute later", 1, nil)
		f.Answered(&first)
		if f.Down() {
			t.Error("it has answered")
		}
		after(timeout)
		f.reported(t, "the second call is unanswered as well", 2, nil)
	})
}

// An answer to a later call tells that the earlier one went by a connection that is no more.
func TestLaterCallsAreAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var lost watchdog.Call
		f.Begin(&lost)
		for range 30 {
			var call watchdog.Call
			f.Begin(&call)
			after(timeout / 2)
			f.Answered(&call)
		}
		f.reachable(t, "later calls were answered")
		// One to an earlier call tells nothing.
		var early, late watchdog.Call
		f.Begin(&early)
		f.Begin(&late)
		after(timeout - time.Millisecond)
		f.Answered(&early)
		after(2 * time.Millisecond)
		f.reported(t, "an earlier call was answered", 1, nil)
	})
}

// A process that was stopped, or did not get a processor, blames no server.
func TestStarvation(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var call watchdog.Call
		f.Begin(&call)
		after(timeout / 2)
		before := f.Age(&call)
		f.Stop(10 * time.Second)
		if age := f.Age(&call) - before; age > 2*watchdog.Tick {
			t.Errorf("a stop credits %s, want two ticks at most", age)
		}
		f.Check()
		f.reachable(t, "after a stop")
		after(timeout / 2)
		f.reported(t, "after as much awake", 1, nil)
	})
}

// progress is a connection.
type progress struct {
	reads  atomic.Uint64
	behind atomic.Bool
}

func (p *progress) Reads() uint64 { return p.reads.Load() }
func (p *progress) Behind() bool  { return p.behind.Load() }

// What this process has not written, or not read, is not held against the server.
func TestBehind(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var call watchdog.Call
		connection := &f.connection
		connection.reads.Store(7)
		f.Begin(&call)
		connection.behind.Store(true)
		after(10 * timeout)
		f.reachable(t, "the process is behind")
		connection.behind.Store(false)
		after(timeout - watchdog.Tick)
		connection.reads.Add(1) // what was read has to be handed on
		after(timeout - watchdog.Tick)
		f.reachable(t, "something was read")
		if n := f.Unanswered(); n < timeout/2 || n > timeout {
			t.Errorf("unanswered for %s", n)
		}
		after(2 * watchdog.Tick)
		f.reported(t, "nothing came any more", 1, nil)
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		end := func(how func(*watchdog.Call)) {
			var call watchdog.Call
			f.Begin(&call)
			how(&call)
		}
		refuse := func(c *watchdog.Call) { f.Refused(c, errRefused) }
		for range 5 {
			end(refuse)
			end(refuse)
			end(f.Answered)
		}
		end(refuse)
		end(refuse)
		f.reachable(t, "two in a row")
		end(refuse)
		f.reported(t, "three in a row", 1, errRefused)
		end(refuse)
		f.reported(t, "four in a row", 1, errRefused)
	})
}

// A lost connection is tried again until there is one, or there was none for the timeout.
func TestLost(t *testing.T) {
	for name, comesBack := range map[string]bool{"comes back": true, "stays away": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				f.try = func(_ context.Context, w *watchdog.Watchdog, call *watchdog.Call) {
					if comesBack && f.tries() > 5 {
						w.Answered(call)
						return
					}
					w.Lost(call, errRefused)
				}
				var call watchdog.Call
				f.Begin(&call)
				f.Lost(&call, errRefused)
				after(timeout - watchdog.Tick)
				f.reachable(t, "before the timeout")
				after(10 * timeout)
				if comesBack {
					f.reachable(t, "connected again")
				} else {
					f.reported(t, "not connected", 1, errRefused)
				}
				if most := int(timeout/watchdog.Tick) + 2; f.tries() < 6 || f.tries() > most {
					t.Errorf("%d tries, want 6 to %d", f.tries(), most)
				}
			})
		})
	}
}

// A caller that leaves early proves nothing; the server is tried instead.
func TestAbandoned(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var call watchdog.Call
		f.Begin(&call)
		after(time.Millisecond)
		f.Abandoned(&call)
		after(10 * timeout)
		f.reachable(t, "the try was answered")
		if f.tries() != 1 {
			t.Errorf("%d tries", f.tries())
		}
		f.try = func(ctx context.Context, w *watchdog.Watchdog, call *watchdog.Call) {
			<-ctx.Done()
			w.Abandoned(call)
		}
		f.Begin(&call)
		f.Abandoned(&call)
		after(2 * timeout)
		if f.reported(t, "the try was not answered", 1, nil); f.tries() != 2 {
			t.Errorf("%d tries", f.tries())
		}
		// What waits for its timeout in vain, with nothing answered meanwhile, needs no try.
		f = newFixture(t)
		f.Begin(&call)
		<-time.After(timeout)
		f.Abandoned(&call)
		if f.reported(t, "abandoned at the timeout", 1, nil); f.tries() != 0 {
			t.Errorf("%d tries", f.tries())
		}
	})
}

// Nothing runs while no call is under way: the bubble could not end.
func TestRest(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for range 100 {
			var call watchdog.Call
			f.Begin(&call)
			f.Forget(&call)
		}
		after(time.Minute)
		f.reachable(t, "nothing happened")
	})
}
