package chaos_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/internal/testseed"
)

// shortSoak is as long as the soak lasts beside all other tests. What those keep a call waiting for says nothing about the
// store, so that only a longer soak holds times to docs/reference/failures.md.
const shortSoak = 5 * time.Second

func timed() bool { return *soakFor > shortSoak }

var (
	soakFor  = flag.Duration("soak", shortSoak, "how `long` the soak lasts; above 5s, how long calls take is checked")
	soakSeed = flag.Uint64("seed", 0, "what the soak draws its faults and its load by; 0 is SEED of the environment, or draws a `number`")
)

// What may grow between the first rounds and any later one.
const (
	firstRounds    = 3
	heapRoom       = 4 << 20
	goroutinesRoom = 25
)

// soakFaults are the faults of the table after which one server behind a proxy has all
// its states, and which can be made again and again.
var soakFaults = []string{
	"connection refused", "accepted but silent", "server stopped in its tracks", "slow by 50 ms", "slow by 500 ms",
	"cut in mid-reply", "every tenth packet lost", "killed and restarted with its append-only file", "READONLY",
	"BUSY with a script", "OOM", "wrong password", "NOPERM", "SCRIPT FLUSH", "CLIENT KILL",
}

// A mixed load goes on for long, while one fault after another is made: every decision
// of the store stays within the limits, every fault passes, and nothing grows.
func TestSoak(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = testseed.Seed()
	}
	t.Logf("a soak of %v; again with -soak %v -seed %d", *soakFor, *soakFor, seed)
	s := soakSite(t)
	before := goleak.IgnoreCurrent()
	var outages atomic.Int64
	changed := func(c failover.Change) {
		if !c.Up {
			outages.Add(1)
		}
	}
	open, closeOpen := s.store(failover.Open, changed)
	local, closeLocal := s.store(failover.Local, changed)
	k := &soak{
		site: s, load: startMixed(t, seed, open, local), made: map[string]int{},
		draw: rand.New(rand.NewPCG(seed, mixedCallers)),
	}
	until(t, "the store decides for every client", func() bool { return k.load.allExactSince(0) })
	for k.load.now() < *soakFor && !t.Failed() {
		k.round()
	}
	k.load.end()
	k.rest()
	k.restored()
	if n := &k.load.n; timed() && n.dawdled*1000 > n.calls {
		t.Errorf("%d of %d calls took longer than told, want 0.1 %%", n.dawdled, n.calls)
	}
	closeOpen()
	closeLocal()
	leaks.None(t, append(ofServers(), before)...)
	t.Logf("%s\n%d outages", k, outages.Load())
}

// soakSite starts a server that keeps all it holds, and that every one of the faults
// can strike.
func soakSite(t testing.TB) *site {
	server := testredis.Start(t, append(durable[:2:2], testredis.User("limiter", ">right", "~*", "&*", "+@all"),
		testredis.Config("lua-time-limit", "10"), testredis.Config("maxmemory-policy", "noeviction"),
		testredis.Config("auto-aof-rewrite-min-size", "4mb"))...)
	s := &site{TB: t, servers: &servers{single: server}, proxy: startProxy(t, server.Addr())}
	s.url = "redis://limiter:right@" + s.proxy.addr()
	return s
}

// soak is the experiment.
type soak struct {
	*site
	load *mixed
	draw *rand.Rand
	deck []fault // what is made next
	made map[string]int

	rounds     int
	returned   time.Duration // the longest way back
	heap       flat[uint64]
	goroutines flat[int]
}

// flat is a measure that is not to grow.
type flat[T uint64 | int] struct{ first, last, most T }

// note takes a measurement in, and reports whether it is within the room of what there
// was at most in the first rounds.
func (f *flat[T]) note(round int, now, room T) bool {
	f.last, f.most = now, max(f.most, now)
	if round <= firstRounds {
		f.first = f.most
	}
	return now <= f.first+room
}

// round lets the store be for a while, makes a fault for a while, waits until it has
// passed, and looks at what is left of it.
func (k *soak) round() {
	lull := func(d time.Duration) { <-time.After(d) } // a length of the experiment
	length := func(least, most time.Duration) time.Duration {
		return least + time.Duration(k.draw.Int64N(int64(most-least)))
	}
	f := k.next()
	before, during := length(50*time.Millisecond, 500*time.Millisecond), length(50*time.Millisecond, 1500*time.Millisecond)
	lull(before)
	f.strike(k.site)
	if f.heal != nil {
		lull(during)
		f.heal(k.site)
	}
	healed := k.load.now()
	for _, undo := range k.undo {
		undo()
	}
	k.undo = nil
	until(k, "the store decides for every client again after: "+f.name, func() bool { return k.load.allExactSince(healed) })
	k.rounds++
	k.made[f.name]++
	k.load.gate.Lock()
	defer k.load.gate.Unlock()
	k.returns(f, healed)
	k.rest()
	if k.Failed() {
		k.Logf("in round %d, after: %s", k.rounds, f.name)
	}
}

// next draws the next fault: each comes once before one comes again.
func (k *soak) next() fault {
	if len(k.deck) == 0 {
		for _, f := range faults() {
			if slices.Contains(soakFaults, f.name) {
				k.deck = append(k.deck, f)
			}
		}
		k.draw.Shuffle(len(k.deck), func(i, j int) { k.deck[i], k.deck[j] = k.deck[j], k.deck[i] })
	}
	f := k.deck[0]
	k.deck = k.deck[1:]
	return f
}

// returns checks that nothing was asked long after the fault that the mode answered.
func (k *soak) returns(f fault, healed time.Duration) {
	k.load.lateness(k)
	k.load.mu.Lock()
	defer k.load.mu.Unlock()
	took := max(0, k.load.lastByMode-healed)
	k.returned = max(k.returned, took)
	if most := allowed(f.returns) + slices.Max(k.load.late); timed() && took > most {
		k.Errorf("the mode still answered %v after the fault, want %v: %s", took, most, f.name)
	}
}

// rest looks at everything while no call is under way: what was decided, what is held
// in memory, and, every few rounds, whether all permits have come back.
func (k *soak) rest() {
	k.Helper()
	k.load.settle(k)
	if k.rounds%5 == 0 {
		k.restored()
	}
	until(k, "the goroutines that a fault brought are gone", func() bool {
		return k.goroutines.note(k.rounds, goroutines(), goroutinesRoom)
	})
	until(k, fmt.Sprintf("no more is held than %d bytes, as in the first rounds, and %d", k.heap.first, heapRoom), func() bool {
		// The first collection leaves what pools hold.
		runtime.GC()
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		return k.heap.note(k.rounds, memory.HeapAlloc, heapRoom)
	})
}

// restored waits until whatever was taken, charged or lost has come back to everybody.
func (k *soak) restored() {
	k.Helper()
	until(k, "every client has all its permits back", func() bool { return k.load.untouched(k.Context()) })
}

// goroutines counts those that are not the proxy's.
func goroutines() (n int) {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if !bytes.Contains(stack, []byte("github.com/Shopify/toxiproxy")) {
			n++
		}
	}
	return n
}

// String is what it came to.
func (k *soak) String() string {
	var text strings.Builder
	m, n := k.load, &k.load.n
	_, _ = fmt.Fprintf(&text, "%d faults in %v, the store back after %v at most\n", k.rounds, m.now().Round(time.Second), k.returned)
	for _, name := range slices.Sorted(maps.Keys(k.made)) {
		_, _ = fmt.Fprintf(&text, "%6d  %s\n", k.made[name], name)
	}
	_, _ = fmt.Fprintf(&text, "%d calls, the longest %v, %d beyond %v and what the scheduler was late by\n", n.calls, m.longest, n.dawdled, deadline+scheduling)
	_, _ = fmt.Fprintf(&text, "%d decided by the store, %d by the mode, %d unavailable, %d ended by the caller\n", n.byStore, n.byMode, n.refused, n.ended)
	_, _ = fmt.Fprintf(&text, "heap %d KiB in the first rounds, %d KiB in the last, %d KiB at most\n", k.heap.first>>10, k.heap.last>>10, k.heap.most>>10)
	_, _ = fmt.Fprintf(&text, "%d goroutines in the first rounds, %d in the last, %d at most", k.goroutines.first, k.goroutines.last, k.goroutines.most)
	return text.String()
}
