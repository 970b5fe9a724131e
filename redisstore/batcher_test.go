package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
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

// hanging is a store whose connection is held, under one batch of one operation.
type hanging struct {
	*redisstore.Store
	t      *testing.T
	conn   *held
	policy *stint.Policy
	first  chan error    // of the operation under way
	before goleak.Option // the goroutines before there was a store
}

const hangingLimit = 100

func newHanging(t *testing.T, options redisstore.Options) *hanging {
	t.Helper()
	before := goleak.IgnoreCurrent()
	conn := &held{Conn: newConn(t)}
	store, _ := storeOn(t, conn, options)
	patient(store)
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, hangingLimit))
	h := &hanging{Store: store, t: t, conn: conn, policy: policy, first: make(chan error, 1), before: before}
	take(t, store, "warm", h.policy, 1)
	h.quiet()
	conn.mu.Lock()
	go func() {
		_, err := store.Decide(t.Context(), op(stint.VerbTake, "first", h.policy, 1))
		h.first <- err
	}()
	until(t, "the first operation is under way", func() bool { return h.InFlight() == 1 && h.Waiting() == 0 })
	return h
}

// patient lets a store wait for a call that a test holds, however long the test stands still.
func patient(store *redisstore.Store) { store.Watch(time.Hour, func(int, error) {}) }

// quiet waits until nothing is under way.
func (h *hanging) quiet() {
	h.t.Helper()
	until(h.t, "nothing is under way", func() bool { return h.InFlight() == 0 && h.Waiting() == 0 })
}

// resume lets the connection go on and waits until all that was sent is answered.
func (h *hanging) resume() {
	h.t.Helper()
	h.conn.mu.Unlock()
	if err := <-h.first; err != nil {
		h.t.Errorf("the operation that was under way: %v", err)
	}
	h.quiet()
	h.conn.pending.Wait()
}

// end closes the store, which leaves no goroutine behind.
func (h *hanging) end() {
	h.t.Helper()
	h.Close()
	h.conn.Close()
	leaks.None(h.t, h.before)
}

// spent is how much of a key's limit has been taken.
func (h *hanging) spent(key string) int64 {
	h.t.Helper()
	return hangingLimit - decide(h.t, h.Store, op(stint.VerbPeek, key, h.policy, 1)).Remaining
}

// caller makes operations under a context of its own.
type caller struct {
	ops     []stint.Op
	results []stint.Result
	cancel  context.CancelFunc
	gone    chan struct{} // closed when the call has returned
}

// call makes n takes of one permit of a key.
func (h *hanging) call(key string, n int) *caller {
	ctx, cancel := context.WithCancel(h.t.Context())
	c := &caller{ops: make([]stint.Op, n), results: make([]stint.Result, n), cancel: cancel, gone: make(chan struct{})}
	for i := range c.ops {
		c.ops[i] = op(stint.VerbTake, key, h.policy, 1)
		c.ops[i].Each = make([]stint.Outcome, 1)
	}
	go func() {
		defer close(c.gone)
		if n == 1 {
			c.results[0].Decision, c.results[0].Err = h.Decide(ctx, c.ops[0])
		} else {
			h.DecideAll(ctx, c.ops, c.results)
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
// are not.
func TestCallersLeave(t *testing.T) {
	for _, single := range []bool{true, false} {
		h := newHanging(t, redisstore.Options{InFlight: 2, MaxBatch: 3})
		operations := 1
		if !single {
			operations = 5
		}
		// The second batch takes three operations: of single callers three, of a
		// batch the first three.
		var callers []*caller
		for i := range 6 {
			c := h.call(fmt.Sprint("k", i), operations)
			callers = append(callers, c)
			if i == 0 {
				until(t, "a second batch is under way", func() bool { return h.InFlight() == 2 && h.Waiting() == max(0, operations-3) })
			}
		}
		until(t, "all wait", func() bool { return h.Waiting() == 6*operations-min(3, operations) })
		for _, c := range callers {
			c.leave(t)
		}
		if n := h.Waiting(); n != 0 {
			t.Errorf("%d operations of callers that have left wait", n)
		}
		h.resume()
		for i, c := range callers {
			c.untouched(t)
			want := int64(0)
			if i == 0 {
				want = int64(min(3, operations))
			}
			if got := h.spent(fmt.Sprint("k", i)); got != want {
				t.Errorf("%d permits of caller %d were taken, want %d", got, i, want)
			}
		}
		h.end()
		for _, c := range callers {
			c.untouched(t)
		}
	}
}

// One caller leaves, and those on the same batch and behind it are answered.
func TestOneOfManyLeaves(t *testing.T) {
	h := newHanging(t, redisstore.Options{InFlight: 2, MaxBatch: 4})
	callers := []*caller{h.call("a", 2)}
	until(t, "a second batch is under way", func() bool { return h.InFlight() == 2 && h.Waiting() == 0 })
	for _, n := range []int{1, 6, 1, 3} {
		callers = append(callers, h.call("a", n))
	}
	until(t, "all wait", func() bool { return h.Waiting() == 11 })
	callers[0].leave(t)
	callers[2].leave(t)
	h.resume()
	for i, c := range callers {
		if i == 0 || i == 2 {
			c.untouched(t)
			continue
		}
		<-c.gone
		for j, r := range c.results {
			if r.Err != nil || !r.Decision.Allowed || c.ops[j].Each[0].Remaining != r.Decision.Remaining {
				t.Errorf("caller %d, operation %d: %+v, %+v", i, j, r, c.ops[j].Each)
			}
			if j > 0 && r.Decision.Remaining >= c.results[j-1].Decision.Remaining {
				t.Errorf("caller %d: operation %d left %d, the one before %d", i, j, r.Decision.Remaining, c.results[j-1].Decision.Remaining)
			}
		}
		c.cancel()
	}
	if got := h.spent("a"); got != 2+1+1+3 {
		t.Errorf("%d permits were taken, want 7: those that were sent", got)
	}
	h.end()
}

// What comes when the queue is full is refused at once, however long the server
// hangs, and is not carried out; all that waits is answered when it goes on.
func TestQueueIsBounded(t *testing.T) {
	const most = 4
	h := newHanging(t, redisstore.Options{InFlight: 1, MaxBatch: 2, MaxQueue: most})
	callers := []*caller{h.call("k", 1), h.call("k", 3)}
	until(t, "the queue is full", func() bool { return h.Waiting() == most })
	o := op(stint.VerbTake, "k", h.policy, 1)
	if _, err := h.Decide(t.Context(), o); !errors.Is(err, stint.ErrOverloaded) || errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("one more: %v, want %v", err, stint.ErrOverloaded)
	}
	results := make([]stint.Result, 3)
	h.DecideAll(t.Context(), []stint.Op{o, o, o}, results)
	for i, r := range results {
		if !errors.Is(r.Err, stint.ErrOverloaded) {
			t.Errorf("operation %d of three more: %v, want %v", i, r.Err, stint.ErrOverloaded)
		}
	}
	// A caller that leaves makes room.
	callers[1].leave(t)
	callers[1] = h.call("k", 2)
	until(t, "the next is queued", func() bool { return h.Waiting() == 3 })
	h.resume()
	for _, c := range callers {
		<-c.gone
		for i, r := range c.results {
			if r.Err != nil || !r.Decision.Allowed {
				t.Errorf("operation %d, which waited: %+v", i, r)
			}
		}
		c.cancel()
	}
	if got := h.spent("k"); got != 3 {
		t.Errorf("%d permits were taken, want 3", got)
	}
	// A batch larger than the queue is carried out when nothing waits.
	many := make([]stint.Op, 3*most)
	for i := range many {
		many[i] = o
	}
	results = make([]stint.Result, len(many))
	h.DecideAll(t.Context(), many, results)
	for i, r := range results {
		if r.Err != nil || r.Decision.Remaining != int64(hangingLimit-3-1-i) {
			t.Errorf("operation %d of a large batch: %+v", i, r)
		}
	}
	h.end()
}

// A caller's deadline passes while the server hangs: the call fails with that, and says that
// the server is to blame.
func TestDeadlineWhileOthersWait(t *testing.T) {
	h := newHanging(t, redisstore.Options{InFlight: 1})
	patient := h.call("k", 1)
	until(t, "it waits", func() bool { return h.Waiting() == 1 })
	late := op(stint.VerbTake, "k", h.policy, 1)
	late.Timeout = 10 * time.Millisecond
	_, err := h.Decide(t.Context(), late)
	timeout, is := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	if !is || !timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("got %v, want %v by a timeout that is no context's", err, stint.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // the caller's own
	defer cancel()
	if _, err := h.Decide(ctx, op(stint.VerbTake, "k", h.policy, 1)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("got %v, want %v alone", err, context.DeadlineExceeded)
	}
	h.resume()
	<-patient.gone
	patient.cancel()
	if r := patient.results[0]; r.Err != nil || !r.Decision.Allowed || h.spent("k") != 1 {
		t.Errorf("the caller without a deadline: %+v, want the only one admitted", r)
	}
	h.end()
}

// Many callers, singly and in batches, of many keys, of each algorithm and of
// policies, through one store: of every key exactly as much as its limit is admitted.
func TestManyCallersAreExact(t *testing.T) {
	const keys, callers, calls, limit = 12, 24, 40, 60
	var all []stint.Limit
	policies := []*stint.Policy{}
	for _, algorithm := range notation.Algorithms() {
		all = append(all, aLimit(algorithm, limit))
		policies = append(policies, policyOf(t, algorithm.String(), aLimit(algorithm, limit)))
	}
	policies = append(policies, policyOf(t, "all", all...))
	for _, c := range []struct{ batch, inFlight int }{{1, 1}, {1, 4}, {2, 2}, {50, 4}, {1000, 1}, {1000, 64}} {
		t.Run(fmt.Sprintf("batch=%d/inFlight=%d", c.batch, c.inFlight), func(t *testing.T) {
			store := newStore(t, redisstore.Options{MaxBatch: c.batch, InFlight: c.inFlight, Partitions: 4})
			var mu sync.Mutex
			remaining := map[string][]int64{} // what the admitted were told, by policy and key
			asked := map[string]int{}
			var group sync.WaitGroup
			for worker := range callers {
				group.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(worker), 8))
					for range calls {
						ops := make([]stint.Op, 1+rng.IntN(6))
						results := make([]stint.Result, len(ops))
						for i := range ops {
							// Few keys are hot, so that limits are reached.
							key := strconv.Itoa(min(rng.IntN(keys), rng.IntN(keys)))
							ops[i] = op(stint.VerbTake, key, policies[rng.IntN(len(policies))], 1)
						}
						if len(ops) == 1 {
							results[0].Decision, results[0].Err = store.Decide(t.Context(), ops[0])
						} else {
							store.DecideAll(t.Context(), ops, results)
						}
						mu.Lock()
						for i, r := range results {
							if r.Err != nil {
								t.Error(r.Err)
							}
							id := ops[i].Policy.Name() + " " + ops[i].Key
							asked[id]++
							if r.Decision.Allowed {
								remaining[id] = append(remaining[id], r.Decision.Remaining)
							}
						}
						mu.Unlock()
					}
				})
			}
			group.Wait()
			full := 0
			for id, n := range asked {
				told := remaining[id]
				if want := min(n, limit); len(told) != want {
					t.Errorf("%s: %d of %d requests were admitted, want %d", id, len(told), n, want)
					continue
				}
				if n >= limit {
					full++
				}
				slices.Sort(told)
				for i := range told {
					if told[i] != int64(limit-len(told)+i) {
						t.Errorf("%s: the admitted were told that %v remain", id, told)
						break
					}
				}
			}
			if full == 0 {
				t.Error("no limit was reached")
			}
		})
	}
}

// Processes that disagree about the number of partitions would keep states apart, so
// all but those that agree with the first are refused.
func TestPartitionsAgree(t *testing.T) {
	conn := newConn(t)
	first, prefix := storeOn(t, conn, redisstore.Options{Partitions: 4})
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 5))
	take(t, first, "k", policy, 1)
	for partitions, left := range map[int]int64{4: 3, 2: 0, 16: 0} {
		store := another(t, conn, redisstore.Options{KeyPrefix: prefix, Partitions: partitions})
		d, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1))
		if left > 0 && (err != nil || d.Remaining != left) || left == 0 && (!errors.Is(err, stint.ErrInvalid) || d != (stint.Decision{})) {
			t.Errorf("%d partitions where 4 were agreed: %+v, %v", partitions, d, err)
		}
	}
}
