package reload_test

import (
	"flag"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/internal/testseed"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

var (
	length  = flag.Duration("for", 0, "how `long` the full size goes on; 0 is a small size, bounded by its decisions")
	seed    = flag.Uint64("seed", 0, "what is drawn by; 0 is SEED of the environment, or draws a `number`")
	inRedis = flag.Bool("redis", false, "keep the state of the full size in a real Redis")
)

// The sizes: what `make reload` takes, what `make test` does, and what is enough to find a fault.
var (
	full  = size{rules: 1000, clients: 100_000, callers: 32, shared: 300}
	short = size{rules: 300, clients: 2000, callers: 8, shared: 30, decisions: 15_000, reloads: 25}
	small = size{rules: 120, clients: 200, callers: 4, shared: 8, decisions: 3000, reloads: 10}
)

func TestMain(m *testing.M) { leaks.Main(m) }

func seedOf(t *testing.T) uint64 {
	t.Helper()
	n := *seed
	if n == 0 {
		n = testseed.Seed()
	}
	t.Logf("again with -seed %d", n)
	return n
}

// Whatever is put in force meanwhile, every decision is what the model says, and admissions of what all share
// are exactly as many as the limits say.
func TestReload(t *testing.T) {
	n := seedOf(t)
	if *length > 0 {
		theFull(t, n, *inRedis)
		return
	}
	theShort(t, newRun(t, short, n, memstore.New(memstore.Config{}), nil), short)
}

// The same with the state in Redis, where a decision takes as long as a reload.
func TestReloadInRedis(t *testing.T) {
	theShort(t, newRun(t, small, seedOf(t), openRedis(t), nil), small)
}

// openRedis opens a store on a server of its own. What a store answers from memory has no outcomes, so it must
// not.
func openRedis(t *testing.T) *redisstore.Store {
	t.Helper()
	conn := must.Get(rueidis.Dial(rueidis.Config{URL: testredis.Start(t).URL()}))(t)
	store := must.Get(redisstore.New(conn, redisstore.Options{DenialCache: -1}))(t)
	t.Cleanup(store.Close)
	must.Do(t, testredis.Answered(t.Context(), store.Ping))
	return store
}

// theShort makes a run by number.
func theShort(t *testing.T, r *run, of size) {
	t.Helper()
	must.Do(t, r.byNumber(of.decisions, of.reloads))
	admitted, spent := r.settle(t)
	if err := r.faults.err(); err != nil {
		t.Error(err)
	}
	n := r.figures()
	if n.decided != of.decisions || int64(len(r.reloads)) != of.reloads {
		t.Errorf("%d decisions and %d reloads, want %d and %d", n.decided, len(r.reloads), of.decisions, of.reloads)
	}
	if some := n.decided / 50; n.admitted < some || n.denied < some || n.unasked == 0 || n.shadowed == 0 || admitted == 0 {
		t.Errorf("there is not enough of everything: %+v, %d admitted by shared rules", n, admitted)
	}
	t.Log(r.describe(admitted, spent))
}

// theFull makes a run of the full size, and looks at what it leaves in memory.
func theFull(t *testing.T, n uint64, inRedis bool) {
	t.Helper()
	clock := new(clock)
	memory := memstore.New(memstore.Config{Now: clock.now})
	store := stint.Store(memory)
	if inRedis {
		store = openRedis(t)
	}
	empty, goroutines := heap(), runtime.NumGoroutine()
	r := newRun(t, full, n, store, nil)
	must.Do(t, r.byTime(*length, time.Second))
	admitted, spent := r.settle(t)
	if err := r.faults.err(); err != nil {
		t.Error(err)
	}
	t.Log(r.describe(admitted, spent))
	r.forget()
	stats := memory.Stats()
	clock.expire(t, memory)
	tables := memory.Stats().Bytes // which shrink as the store is used
	rest := heap() - tables
	t.Logf("%d states in memory in %d KiB, tables of %d KiB in the end; heap without tables and rules: %d KiB at the start, %d KiB in the end; %d goroutines, then %d",
		stats.Clients, stats.Bytes>>10, tables>>10, empty>>10, rest>>10, goroutines, runtime.NumGoroutine())
	room := int64(1 << 20) // for what the store knows of every limit that it met
	if inRedis {
		room = 4 << 20 // for the buffers of connections, which come with the first calls
	}
	if rest > empty+room {
		t.Errorf("%d bytes are held without states and rules, and were %d", rest, empty)
	}
	if stats.Evictions > 0 {
		t.Errorf("%d states were dropped", stats.Evictions)
	}
	runtime.KeepAlive(r)
	runtime.KeepAlive(memory)
}

// A clock goes as the process's does, and can be put forward.
type clock struct {
	ahead atomic.Int64 // nanoseconds
}

func (c *clock) now() time.Time {
	return time.Now().Add(time.Duration(c.ahead.Load()))
}

// expire lets all states of the store become worthless, and decisions on one client find that out.
func (c *clock) expire(t *testing.T, memory *memstore.Store) {
	t.Helper()
	limiter := must.Get(stint.New(memory, "test", stint.FixedWindow(1, time.Second)))(t)
	c.ahead.Add(int64(5 * bounds.MaxPeriod))
	const batch, most = 10_000, 1000
	for range most {
		for range batch {
			c.ahead.Add(int64(200 * time.Microsecond))
			must.Get(limiter.Allow(t.Context(), "busy"))(t)
		}
		if memory.Stats().Clients <= 1 {
			return
		}
	}
	t.Errorf("%d states are still there", memory.Stats().Clients)
}

// forget lets go of the rules, and of all that only the check needs.
func (r *run) forget() {
	r.limiter.Swap(nil)
	r.callers, r.set, r.version, r.reloads, r.plan, r.tallies = nil, nil, nil, nil, nil, nil
	r.versions.Clear()
}
