package simulate_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/service/internal/record"
	"github.com/stint-go/stint/service/internal/simulate"
)

// recordedPolicies have limits of all algorithms.
func recordedPolicies(t testing.TB) (all []*stint.Policy) {
	t.Helper()
	for i, limits := range [][]stint.Limit{
		{stint.TokenBucket(20, stint.PerSecond(50))},
		{stint.LeakyBucket(20, stint.PerSecond(50))},
		{stint.SlidingWindowLog(15, 300*time.Millisecond).CountingDenied(), stint.CalendarWindow(2000, stint.CalendarDay, "Europe/Berlin")},
		{stint.SlidingWindowCounter(15, 300*time.Millisecond).WithMaxDebt(stint.NoDebt), stint.FixedWindow(9, 100*time.Millisecond).Named("burst")},
		{stint.SlidingWindowLog(15, 300*time.Millisecond).WithMinInterval(time.Millisecond)},
		{stint.FixedWindow(20, 50*time.Millisecond), stint.FixedWindow(9, 300*time.Millisecond).FromFirst().OfDenials().Named("block")},
	} {
		policy := must.Get(stint.NewPolicy(fmt.Sprint("p", i), limits...))(t)
		all = append(all, policy)
	}
	return all
}

// drive has callers take of a store, of a policy all with one cost and keep where the order within an instant is not known.
func drive(t testing.TB, store stint.Store, policies []*stint.Policy, mixed bool) {
	t.Helper()
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for range 400 {
				of := rng.IntN(len(policies))
				keeps := int64(1)
				if policies[of].Limit(policies[of].Len() - 1).Denials { // such a policy keeps nothing
					keeps = 0
				}
				op := stint.Op{Claim: stint.Claim{Key: fmt.Sprint("client ", rng.IntN(3)), Policy: policies[of], Permits: 1, Keep: keeps * int64(of%3)}}
				if n := rng.IntN(20); mixed {
					op.Permits += rng.Int64N(3)
					op.Keep = keeps * max(0, rng.Int64N(12)-4)
					op.Verb = map[int]stint.Verb{0: stint.VerbPeek, 1: stint.VerbSettle, 2: stint.VerbReset, 3: stint.VerbTry}[n]
					if n > 17 {
						results := make([]stint.Result, 2)
						store.DecideAll(t.Context(), []stint.Op{op, op}, results)
						continue
					}
				}
				if _, err := store.Decide(t.Context(), op); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
}

// TestRecordOfMemoryReplays replays what many goroutines decided, line by line.
func TestRecordOfMemoryReplays(t *testing.T) {
	var recorded bytes.Buffer
	r := record.New(memstore.New(memstore.Config{}), &recorded, record.Options{Memory: true})
	policies := recordedPolicies(t)
	drive(t, r, policies, true)
	must.Do(t, r.ResetAll(t.Context(), stint.Scope{Policy: "p0"}))
	drive(t, r, policies, true)
	if strings.Contains(recorded.String(), "client ") {
		t.Error("the record has keys as they are")
	}
	c := replayed(t, recorded.String())
	if c.Decisions < 5000 || c.Different != 0 || c.Unfit != "" {
		t.Errorf("%+v", c)
	}
	// One in which nothing is kept for others, as an older service writes it, can be read, and differs.
	older := strings.ReplaceAll(recorded.String(), `,"keep":`, `,"unknown":`)
	if c := replayed(t, older); older == recorded.String() || c.Different == 0 || c.Unfit != "" {
		t.Errorf("%+v", c)
	}
	// A record that is not what was decided differs.
	if c := replayed(t, strings.Replace(recorded.String(), `"allowed":true,"remaining":`, `"allowed":true,"remaining":1`, 1)); c.Different != 1 || !strings.Contains(c.FirstDifference, "replayed") {
		t.Errorf("%+v", c)
	}
	// One of which lines are missing replays nothing that anybody could claim.
	lines := strings.SplitAfter(recorded.String(), "\n")
	for what, text := range map[string]string{
		"lines are missing":         strings.Join(lines[:50], "") + string(record.DroppedLine(3)) + strings.Join(lines[50:], ""),
		"does not begin":            strings.Join(lines[1:], ""),
		"is malformed":              strings.Join(lines[:50], "") + "{\"at\":1\n",
		"is not defined":            lines[0] + lines[len(lines)-2],
		"but failure-policy":        recorded.String() + strings.Replace(lines[len(lines)-2], "}\n", ",\"source\":\"failure-policy\"}\n", 1),
		"limits of a client of pol": recorded.String() + strings.ReplaceAll(changedPolicy(t, &recorded), `"capacity":20`, `"capacity":21`),
	} {
		if c := replayed(t, text); !strings.Contains(c.Unfit, what) {
			t.Errorf("%q: %+v", what, c)
		}
	}
}

// changedPolicy is the first policy of a record and an operation of it, once more.
func changedPolicy(t testing.TB, recorded *bytes.Buffer) string {
	t.Helper()
	for definition := range strings.Lines(recorded.String()) {
		if strings.Contains(definition, `"name":"p0","limits"`) {
			number, _, _ := strings.Cut(strings.TrimPrefix(definition, `{"policy":`), ",")
			for line := range strings.Lines(recorded.String()) {
				if strings.Contains(line, `"verb":"take","claims":[{"policy":`+number+`,`) {
					return definition + line
				}
			}
		}
	}
	t.Fatal("no policy p0")
	return ""
}

func replayed(t testing.TB, records ...string) *simulate.Comparison {
	t.Helper()
	var in []io.Reader
	for _, text := range records {
		in = append(in, strings.NewReader(text))
	}
	return must.Get(simulate.Replay(in...))(t)
}

// TestRecordsOfRedisReplay replays what two processes decided on one Redis, equal for each client and instant.
func TestRecordsOfRedisReplay(t *testing.T) {
	server := testredis.Start(t)
	var records [2]bytes.Buffer
	var locks [2]sync.Mutex
	var processes sync.WaitGroup
	for i := range records {
		conn := must.Get(rueidis.Dial(rueidis.Config{URL: server.URL()}))(t)
		store := must.Get(redisstore.New(conn, redisstore.Options{}))(t)
		defer store.Close()
		must.Do(t, testredis.Answered(t.Context(), store.Ping))
		r := record.New(store, locked{&locks[i], &records[i]}, record.Options{})
		processes.Go(func() { drive(t, r, recordedPolicies(t), false) })
	}
	processes.Wait()
	c := replayed(t, records[0].String(), records[1].String())
	if c.Decisions != 2*8*400 || c.Different != 0 || c.Unfit != "" {
		t.Errorf("%+v", c)
	}
	if c := replayed(t, records[0].String()); c.Different == 0 {
		t.Error("one record replays without the other: they shared nothing")
	}
}

type locked struct {
	mu  *sync.Mutex
	out io.Writer
}

func (l locked) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(text)
}
