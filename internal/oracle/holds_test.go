package oracle_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testconn"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

var (
	operations = flag.Int("operations", 2000, "random operations, for each store")
	firstSeed  = flag.Uint64("seed", 0, "the seed of the first episode; of a failure: the one that it names")
	noWays     = flag.Bool("noways", false, "draw no claims that are alternatives")
	server     *testredis.Server
)

func TestMain(m *testing.M) { os.Exit(testredis.Run(m, &server)) }

// dawn is where the clocks start: 2026-01-01T00:00:00Z.
const dawn = stint.Instant(1_767_225_600_000_000)

// episodeLength is how many operations one fresh store gets.
const episodeLength = 250

// mostWorlds is with how many an episode goes on: beyond that each operation would take as many times as long.
const mostWorlds = 16

// A newStore makes an empty store that allows so many holds of one client under one limit.
type newStore func(clock *storetest.Clock, maxHolds int, seed uint64) stint.Store

func memory(clock *storetest.Clock, maxHolds int, _ uint64) stint.Store {
	return memstore.New(memstore.Config{Now: clock.Now, MaxHolds: maxHolds})
}

// inRedis makes stores on the test's server, one after another. Seeds share out the encodings of logs.
func inRedis(t *testing.T) newStore {
	conn := must.Get(testconn.Open(server.URL()))(t)
	var last *redisstore.Store
	t.Cleanup(func() {
		if last != nil {
			last.Close()
		}
		conn.Close()
	})
	encodings := []redisstore.LogEncoding{redisstore.LogPacked, redisstore.LogZSet, redisstore.LogStream}
	return func(clock *storetest.Clock, maxHolds int, seed uint64) stint.Store {
		if last != nil {
			last.Close()
		}
		must.Get(server.Do("FLUSHALL"))(t)
		last = must.Get(redisstore.New(lent{conn}, redisstore.Options{
			KeyPrefix: fmt.Sprint("holds", seed), LogEncoding: encodings[seed%3], Now: clock.Now, MaxHolds: maxHolds,
		}))(t)
		return last
	}
}

// lent is a connection that a store does not close, since others use it.
type lent struct{ redisconn.Conn }

func (lent) Close() {}

func TestMemoryStore(t *testing.T) { drive(t, memory) }

func TestRedisStore(t *testing.T) { drive(t, inRedis(t)) }

// drive runs random episodes, until enough operations were compared.
func drive(t *testing.T, open newStore) {
	begun := time.Now()
	total, checked := tally{}, 0
	done, seed := 0, *firstSeed
	for ; done < *operations; seed++ {
		g := newGenerator(t, seed)
		r := newRun(t, open, g.maxHolds, seed)
		fault := g.episode(r)
		if fault != "" {
			steps := shrink(t, open, g.maxHolds, seed, r.steps)
			again := newRun(t, open, g.maxHolds, seed)
			fault, _ = again.all(steps)
			t.Fatalf("%sat most %d holds; seed %d (again: -seed %d -operations 1), step %d of the episode, %d steps after shrinking\n%s",
				again, g.maxHolds, seed, seed, len(r.steps), len(steps), fault)
		}
		if done += r.operations; seed%500 == 499 {
			t.Logf("seeds up to %d: %d operations", seed, done)
		}
		checked += r.ledger.Checked
		total.add(r.tally)
	}
	t.Logf("%d operations in %v, seeds %d to %d; %d limits held to the ledger\n%s",
		done, time.Since(begun).Round(time.Millisecond), *firstSeed, seed-1, checked, total)
}

// A step is what a run does at one instant: a call with one operation or more, or a reset of policies.
type step struct {
	at    stint.Instant
	ops   []stint.Op
	reset *stint.Scope
}

// A line is an operation of a run with what the model says, for people to read.
type line struct {
	at    stint.Instant
	op    stint.Op
	reset *stint.Scope
	want  oracle.Answer
}

// A run holds one store to the model.
type run struct {
	t          *testing.T
	clock      *storetest.Clock
	store      stint.Store
	oracle     *oracle.Oracle
	ledger     *ledger
	told       map[string]promise // what the last Reserve of an id said
	recent     []string           // the ids of the reserves that were admitted
	steps      []step
	lines      []line
	operations int
	tally      tally
}

// A promise is what the holder of a hold knows.
type promise struct {
	op        stint.Op // what it asked for
	ttl       time.Duration
	expiresAt stint.Instant
	via       uint8
}

func newRun(t *testing.T, open newStore, maxHolds int, seed uint64) *run {
	clock := storetest.NewClock(dawn)
	store := open(clock, maxHolds, seed)
	return &run{
		t: t, clock: clock, store: store, oracle: oracle.New(maxHolds), ledger: newLedger(), told: map[string]promise{}, tally: tally{},
	}
}

// all carries out steps until the store differs from the model. It returns the fault, and how many steps it did.
func (r *run) all(steps []step) (fault string, done int) {
	for i, s := range steps {
		fault, goOn := r.do(s)
		if fault != "" {
			return fault, i + 1
		}
		if !goOn {
			return "", i + 1
		}
	}
	return "", len(steps)
}

// do carries out a step on the store and on the model, and compares their answers. goOn is false where nothing
// that follows can be compared.
func (r *run) do(s step) (fault string, goOn bool) {
	r.steps = append(r.steps, s)
	r.clock.Set(s.at)
	if s.reset != nil {
		r.operations++
		r.lines = append(r.lines, line{at: s.at, reset: s.reset})
		r.tally.bump("all", "reset of policies")
		if err := r.store.ResetAll(r.t.Context(), *s.reset); err != nil {
			return "reset of policies: " + err.Error(), false
		}
		r.oracle.ResetAll(*s.reset, s.at)
		r.ledger.ResetAll(*s.reset, s.at)
		return "", r.oracle.Worlds() <= mostWorlds
	}
	carried := make([]stint.Op, len(s.ops))
	for i := range carried {
		carried[i] = oracle.Copy(s.ops[i])
		if err := s.ops[i].Validate(); err != nil {
			r.t.Fatalf("%v: %s", err, oracle.Describe(s.ops[i]))
		}
		carried[i].Each = make([]stint.Outcome, s.ops[i].Limits())
	}
	results := make([]stint.Result, len(s.ops))
	if len(s.ops) == 1 {
		results[0].Decision, results[0].Err = r.store.Decide(r.t.Context(), carried[0])
	} else {
		r.store.DecideAll(r.t.Context(), carried, results)
	}
	for i, op := range s.ops {
		r.operations++
		if fault, goOn := r.compare(op, carried[i], results[i]); fault != "" || !goOn {
			return fault, false
		}
	}
	return "", true
}

// compare holds one answer to what the model says.
func (r *run) compare(op, carried stint.Op, got stint.Result) (fault string, goOn bool) {
	now := r.clock.Instant()
	want, err := r.oracle.Check(op, now, oracle.Got(carried, got))
	r.lines = append(r.lines, line{at: now, op: op, want: want})
	r.tally.count(op, want)
	if err == nil {
		err = r.ledger.Note(op, carried, got, want, now)
	}
	if err != nil {
		return err.Error(), false
	}
	if op.Verb == stint.VerbReserve && want.Err == nil && want.Decision.Allowed {
		id := op.Hold().ID
		r.recent = append(r.recent, id)
		r.told[id] = promise{
			op: op, ttl: op.Hold().TTL, expiresAt: want.Hold.ExpiresAt, via: want.Decision.Via,
		}
	}
	return "", r.oracle.Worlds() <= mostWorlds
}

// String is what was done.
func (r *run) String() string {
	var b strings.Builder
	for i, l := range r.lines {
		fmt.Fprintf(&b, "%4d at %s: ", i, l.at)
		if l.reset != nil {
			fmt.Fprintf(&b, "reset of policies: %v\n", *l.reset)
			continue
		}
		fmt.Fprintf(&b, "%s\n      -> %+v %+v %v\n", oracle.Describe(l.op), l.want.Each, l.want.Hold, l.want.Err)
	}
	return b.String()
}
