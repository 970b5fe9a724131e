package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/redisstore"
)

// until waits for a condition to come true.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.Done():
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// A held connection keeps what is sent while it is held. A call that its caller gives up is
// sent all the same, as by a connection that had written it. A server that is stopped would
// do too, but only for as long as the connection believes in it.
type held struct {
	redisconn.Conn
	mu      sync.RWMutex // locked while it is held
	pending sync.WaitGroup
}

func (h *held) Eval(ctx context.Context, script *redisconn.Script, keys, args []string) (string, error) {
	keys, args = slices.Clone(keys), slices.Clone(args)
	type answer struct {
		reply string
		err   error
	}
	answered := make(chan answer, 1)
	h.pending.Go(func() {
		h.mu.RLock()
		defer h.mu.RUnlock()
		reply, err := h.Conn.Eval(context.WithoutCancel(ctx), script, keys, args)
		answered <- answer{reply, err}
	})
	select {
	case a := <-answered:
		return a.reply, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// patient lets a store wait for a call that a test holds, however long the test stands still.
func patient(store *redisstore.Store) { store.Watch(time.Hour, func(int, error) {}) }

// caller makes operations under a context of its own.
type caller struct {
	ops     []stint.Op
	results []stint.Result
	cancel  context.CancelFunc
	gone    chan struct{} // closed when the call has returned
}

// call makes n takes of one permit of a key.
func call(t *testing.T, store stint.Store, key string, policy *stint.Policy, n int) *caller {
	ctx, cancel := context.WithCancel(t.Context())
	c := &caller{ops: make([]stint.Op, n), results: make([]stint.Result, n), cancel: cancel, gone: make(chan struct{})}
	for i := range c.ops {
		c.ops[i] = op(stint.VerbTake, key, policy, 1)
		c.ops[i].Each = make([]stint.Outcome, 1)
	}
	go func() {
		defer close(c.gone)
		if n == 1 {
			c.results[0].Decision, c.results[0].Err = store.Decide(ctx, c.ops[0])
		} else {
			store.DecideAll(ctx, c.ops, c.results)
		}
	}()
	return c
}

// leave cancels the call and, once it has returned, fills all that is the caller's
// with what nobody else may write.
func (c *caller) leave(t *testing.T) {
	t.Helper()
	c.cancel()
	<-c.gone
	for i := range c.results {
		if err := c.results[i].Err; !errors.Is(err, context.Canceled) || errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("operation %d: %v, want %v alone", i, err, context.Canceled)
		}
		c.results[i] = stint.Result{Decision: stint.Decision{Limit: -7}}
		c.ops[i].Each[0] = stint.Outcome{Limit: -7}
		c.ops[i].Claim, c.ops[i].Verb = stint.Claim{}, stint.VerbReset
	}
}

// untouched fails the test when anybody wrote to what is the caller's.
func (c *caller) untouched(t *testing.T) {
	t.Helper()
	for i, r := range c.results {
		if r.Err != nil || r.Decision != (stint.Decision{Limit: -7}) || c.ops[i].Each[0] != (stint.Outcome{Limit: -7}) || c.ops[i].Verb != stint.VerbReset {
			t.Errorf("operation %d was touched after its caller had left: %+v, %+v", i, r, c.ops[i])
		}
	}
}

// Callers that are cancelled while their operations are under way, or wait, or are
// under way in part, return although the server hangs, with their context's error;
// what they own is not touched any more. Operations that had been sent are spent, the others
// are not. A closed store leaves no goroutine behind.
func TestCallersLeave(t *testing.T) {
	for _, operations := range []int{1, 5} { // of which 3 fit into a call
		before := goleak.IgnoreCurrent()
		conn := &held{Conn: newConn(t)}
		store, _ := storeOn(t, conn, redisstore.Options{InFlight: 1, MaxBatch: 3})
		patient(store)
		policy, sent := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 100)), min(3, operations)
		take(t, store, "warm", policy, 1)
		quiet := func() bool { return store.InFlight() == 0 && store.Waiting() == 0 }
		until(t, "nothing is under way", quiet)
		conn.mu.Lock()
		var callers []*caller
		for i := range 6 {
			callers = append(callers, call(t, store, fmt.Sprint("k", i), policy, operations))
			until(t, "one call is under way, and the others wait", func() bool {
				return store.InFlight() == 1 && store.Waiting() == (i+1)*operations-sent
			})
		}
		for _, c := range callers {
			c.leave(t)
		}
		if n := store.Waiting(); n != 0 {
			t.Errorf("%d operations of callers that have left wait", n)
		}
		conn.mu.Unlock()
		until(t, "nothing is under way", quiet)
		conn.pending.Wait()
		for i, c := range callers {
			c.untouched(t)
			spent := 0
			if i == 0 {
				spent = sent
			}
			checkLeft(t, store, fmt.Sprint("k", i), policy, int64(100-spent), "when its caller has left")
		}
		store.Close()
		conn.Close()
		leaks.None(t, before)
		for _, c := range callers {
			c.untouched(t)
		}
	}
}

// Many callers, singly and in batches, of one client, under a policy of all algorithms, however many go in one call and
// however many calls at once: exactly as much as the limit is admitted, and each is told another Remaining.
func TestManyCallersAreExact(t *testing.T) {
	const callers, calls, limit = 24, 20, 300
	var limits []stint.Limit
	for _, algorithm := range notation.Algorithms() {
		limits = append(limits, aLimit(algorithm, limit))
	}
	for _, c := range [][2]int{{1, 1}, {1, 64}, {2, 2}, {50, 4}, {1000, 1}} {
		store, policy := newStore(t, redisstore.Options{MaxBatch: c[0], InFlight: c[1]}), policyOf(t, "all", limits...)
		var told [limit]atomic.Int64
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				for i := range calls {
					ops, results := make([]stint.Op, 1+i%3), make([]stint.Result, 1+i%3)
					for j := range ops {
						ops[j] = op(stint.VerbTake, "k", policy, 1)
					}
					if len(ops) == 1 {
						results[0].Decision, results[0].Err = store.Decide(t.Context(), ops[0])
					} else {
						store.DecideAll(t.Context(), ops, results)
					}
					for _, r := range results {
						if r.Err != nil {
							t.Error(r.Err)
						} else if r.Decision.Allowed {
							told[r.Decision.Remaining].Add(1)
						}
					}
				}
			})
		}
		group.Wait()
		for left := range told {
			if n := told[left].Load(); n != 1 {
				t.Errorf("batches of %d, %d at once: %d were told that %d remain, want 1", c[0], c[1], n, left)
			}
		}
	}
}
