package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

func resetPolicy(t testing.TB, store stint.Store, name string) {
	t.Helper()
	if err := store.ResetAll(t.Context(), stint.Scope{Policy: name}); err != nil {
		t.Fatalf("resetting %q: %v", name, err)
	}
}

// What is leased of a policy goes with it, in every process: nothing of a share is
// spent or given back afterwards.
func TestResetLeases(t *testing.T) {
	for name, limit := range leaseLimits(1000) {
		t.Run(name, func(t *testing.T) {
			own, store, elsewhere := listening(t, redisstore.Options{LeaseTime: redisstore.MaxLeaseTime, Now: storetest.NewClock(dawn).Now, DenialCache: 1000})
			gone, kept := policyOf(t, "rule/a", limit.WithLease(100)), policyOf(t, "rule/b", limit.WithLease(100))
			for _, policy := range []*stint.Policy{gone, kept} {
				take(t, store, "k", policy, 1)
				admitted(t, store, "k", policy, 1, stint.SourceLease)
			}
			for _, resetter := range []*redisstore.Store{elsewhere, store} {
				resetPolicy(t, resetter, "rule/a")
				<-own.heard
				checkLeft(t, elsewhere, "k", gone, 1000, "after the reset")
				admitted(t, store, "k", gone, 1, stint.SourceStore)
			}
			admitted(t, store, "k", kept, 1, stint.SourceLease)
			before := left(t, elsewhere, "k", gone)
			resetPolicy(t, store, "rule/a")
			store.Sweep()
			store.Close() // gives back what it has
			if n := left(t, elsewhere, "k", gone); n != 1000 || before >= 1000 {
				t.Errorf("%d of 1000 remain, %d did before", n, before)
			}
		})
	}
}

// A process that hears no announcements drops its own leases, of a policy or of a client that it resets.
func TestResetOwnLeases(t *testing.T) {
	store, _ := storeOn(t, newConn(t), redisstore.Options{DenialCache: -1, LeaseTime: redisstore.MaxLeaseTime})
	policy := policyOf(t, "rule/a", aLimit(stint.AlgorithmTokenBucket, 1000).WithLease(100))
	for name, reset := range map[string]func(){
		"policy": func() { resetPolicy(t, store, "rule/a") },
		"client": func() { decide(t, store, op(stint.VerbReset, "k", policy, 0)) },
	} {
		take(t, store, "k", policy, 1)
		reset()
		if d := take(t, store, "k", policy, 1); d.Source != stint.SourceStore || d.Remaining != 999 {
			t.Errorf("%s: %+v, want a share asked for anew", name, d)
		}
		reset()
	}
}

// A share that is on its way while the policy is reset is not spent.
func TestResetOvertakesLease(t *testing.T) {
	own, store, elsewhere := listening(t, redisstore.Options{LeaseTime: redisstore.MaxLeaseTime, Now: storetest.NewClock(dawn).Now, DenialCache: 1000})
	policy := policyOf(t, "rule/a", aLimit(stint.AlgorithmFixedWindow, 1000).WithLease(100))
	own.after = func() {
		own.after = nil
		resetPolicy(t, elsewhere, "rule/a")
		<-own.heard
	}
	for range 2 {
		admitted(t, store, "k", policy, 1, stint.SourceStore)
	}
	checkLeft(t, elsewhere, "k", policy, 1000-101, "with the second share gone")
}

// What is leased when the channel is lost, or while it is, may be of a policy that is
// reset unheard: it is spent no more, and nothing of it is given back.
func TestResetUnheard(t *testing.T) {
	clock := storetest.NewClock(dawn)
	own, store, elsewhere := listening(t, redisstore.Options{LeaseTime: redisstore.MaxLeaseTime, Now: clock.Now, DenialCache: 1000})
	policy := policyOf(t, "rule/a", aLimit(stint.AlgorithmFixedWindow, 1000).WithLease(100))
	taken := func(sources ...stint.Source) {
		t.Helper()
		for _, source := range sources {
			admitted(t, store, "k", policy, 1, source)
		}
	}
	taken(stint.SourceStore, stint.SourceLease)
	<-own.listens
	own.hold = make(chan struct{})
	own.cut()
	<-own.listens
	taken(stint.SourceStore, stint.SourceLease)
	resetPolicy(t, elsewhere, "rule/a")
	close(own.hold)
	<-own.ready
	clock.Advance(time.Millisecond)
	store.Sweep()
	checkLeft(t, elsewhere, "k", policy, 1000, "when the channel is back")
	taken(stint.SourceStore, stint.SourceLease)
	checkLeft(t, elsewhere, "k", policy, 1000-101, "with one share gone")
}

// mixedPolicy is a policy of two algorithms, one of them a log.
func mixedPolicy(t testing.TB, name string) *stint.Policy {
	t.Helper()
	return policyOf(t, name, aLimit(stint.AlgorithmTokenBucket, 10).Named("b"), aLimit(stint.AlgorithmSlidingWindowLog, 10).Named("l"))
}

// A reset is in force at once in a process that hears nothing of it, and for one policy or for all.
func TestResetInForceEverywhere(t *testing.T) {
	conn := newConn(t)
	store, prefix := storeOn(t, conn, redisstore.Options{DenialCache: -1})
	other := another(t, conn, redisstore.Options{KeyPrefix: prefix, DenialCache: -1})
	first, second := mixedPolicy(t, "rule/a"), mixedPolicy(t, "rule/b")
	use := func() {
		for _, policy := range []*stint.Policy{first, second} {
			take(t, store, "k", policy, 3)
			take(t, other, "k", policy, 3)
		}
	}
	check := func(what string, wantFirst, wantSecond int64) {
		t.Helper()
		for _, s := range []*redisstore.Store{other, store} {
			if a, b := left(t, s, "k", first), left(t, s, "k", second); a != wantFirst || b != wantSecond {
				t.Errorf("%s: %d and %d remain, want %d and %d", what, a, b, wantFirst, wantSecond)
			}
		}
	}
	use()
	check("before", 4, 4)
	for range 2 {
		resetPolicy(t, store, "rule/a")
		check("one policy", 10, 4)
	}
	take(t, other, "k", first, 3)
	check("used again", 7, 4)
	must.Do(t, other.ResetAll(t.Context(), stint.Scope{All: true}))
	check("all", 10, 10)
	use()
	resetPolicy(t, other, "rule/b")
	check("one after all", 4, 10)
}

// A reset costs a fixed number of commands. The old hashes are removed by the stores that know them, logs
// stay until their time to live is over.
func TestResetFreesHashes(t *testing.T) {
	clock := storetest.NewClock(dawn)
	store, prefix := storeOn(t, newConn(t), redisstore.Options{Now: clock.Now})
	policy := mixedPolicy(t, "p")
	for i := range 50 {
		take(t, store, fmt.Sprint("k", i), policy, 1)
	}
	resetPolicy(t, store, "p")
	take(t, store, "k1", policy, 1)
	count := func(algorithm string) int {
		return strings.Count(strings.Join(keysOf(t, prefix), " "), algorithm)
	}
	until(t, "the old hash is gone", func() bool { return count("token_bucket") <= 1 })
	if hashes, logs := count("token_bucket"), count("sliding_window_log"); hashes != 1 || logs != 51 {
		t.Errorf("%d hashes and %d logs are left, want 1 and 51: %q", hashes, logs, keysOf(t, prefix))
	}
}

// An epoch that the server has lost is written again by the process that knows it, and a later reset is later than all
// that came before, even if nobody knows of that any more.
func TestResetSurvivesLostSettings(t *testing.T) {
	clock := storetest.NewClock(dawn)
	conn := newConn(t)
	store, prefix := storeOn(t, conn, redisstore.Options{Now: clock.Now})
	policy := mixedPolicy(t, "p")
	take(t, store, "k", policy, 3)
	resetPolicy(t, store, "p")
	take(t, store, "k", policy, 1)
	redis(t, "DEL", prefix+":settings")
	checkLeft(t, store, "k", policy, 9, "without the settings")
	fresh := another(t, conn, redisstore.Options{KeyPrefix: prefix, Now: clock.Now})
	checkLeft(t, fresh, "k", policy, 9, "for a new process")
	redis(t, "DEL", prefix+":settings")
	clock.Advance(time.Second)
	fresh = another(t, conn, redisstore.Options{KeyPrefix: prefix, Now: clock.Now})
	resetPolicy(t, fresh, "p")
	for _, s := range []*redisstore.Store{store, fresh} {
		checkLeft(t, s, "k", policy, 10, "after the reset")
	}
}

// What is given back of before a reset does not come into what is new.
func TestResetDropsReturns(t *testing.T) {
	clock := storetest.NewClock(dawn)
	store, _ := storeOn(t, newConn(t), redisstore.Options{Now: clock.Now})
	policy := policyOf(t, "p", stint.FixedWindow(100, time.Hour))
	taken := take(t, store, "k", policy, 50)
	resetPolicy(t, store, "p")
	take(t, store, "k", policy, 60)
	store.DecideInOneBatch(t, redisstore.InternalOp{Op: op(redisstore.ReturnLease, "k", policy, 50), TakenAt: taken.At})
	checkLeft(t, store, "k", policy, 40, "after the reset")
}

// What the servers remember of the layout.
func layoutOf(t testing.TB, prefix string) string {
	t.Helper()
	text, _ := redis(t, "HGET", prefix+":settings", "layout").(string)
	return text
}

// agreed waits until a store has read the layout again, of a key's partition.
func agreed(t testing.TB, s *redisstore.Store, key string) {
	t.Helper()
	policy := policyOf(t, "agreed", aLimit(stint.AlgorithmFixedWindow, 1))
	until(t, "the layout is read again", func() bool {
		_, err := s.Decide(t.Context(), op(stint.VerbPeek, key, policy, 1))
		if err != nil && !errors.Is(err, stint.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// checkConflict fails the test unless a store decides nothing, and says which parameter conflicts and what mends it.
func checkConflict(t testing.TB, s *redisstore.Store, prefix, param string) {
	t.Helper()
	policy := policyOf(t, "conflict", aLimit(stint.AlgorithmFixedWindow, 1))
	var err error
	until(t, "the conflict is found", func() bool {
		var d stint.Decision
		if d, err = s.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1)); err == nil || d != (stint.Decision{}) {
			t.Fatalf("it decides %+v", d)
		}
		return errors.Is(err, stint.ErrInvalid)
	})
	for _, want := range []string{param, "redis-cli -c DEL " + prefix + ":settings"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

// Who says no layout takes over what the servers remember, at first and once they have lost it.
func TestLayoutIsAdopted(t *testing.T) {
	conn := newConn(t)
	first, prefix := storeOn(t, conn, redisstore.Options{Partitions: 4, LogEncoding: redisstore.LogStream})
	policy := mixedPolicy(t, "")
	for i := range 20 {
		take(t, first, fmt.Sprint(i), policy, 3)
	}
	if got := layoutOf(t, prefix); got != "4 stream" {
		t.Fatalf("the layout is %q", got)
	}
	second := another(t, conn, redisstore.Options{KeyPrefix: prefix})
	check := func(want int64) {
		t.Helper()
		for i := range 20 {
			checkLeft(t, second, fmt.Sprint(i), policy, want, "in the layout that the servers remember")
		}
	}
	check(7)

	// All is lost, and a process with another layout comes first.
	for _, key := range append(keysOf(t, prefix), prefix+":settings") {
		redis(t, "DEL", key)
	}
	third := another(t, conn, redisstore.Options{KeyPrefix: prefix, Partitions: 8})
	for i := range 20 {
		take(t, third, fmt.Sprint(i), policy, 5)
	}
	agreed(t, second, "0")
	check(5)
	checkConflict(t, first, prefix, "partitions")

	// The command that it names mends it, once the others have stopped.
	second.Close()
	third.Close()
	redis(t, "DEL", prefix+":settings")
	until(t, "it decides again", func() bool {
		_, err := first.Decide(t.Context(), op(stint.VerbPeek, "k", policy, 1))
		return err == nil
	})
	if got := layoutOf(t, prefix); got != "4 stream" {
		t.Errorf("the layout is %q", got)
	}
}

// Processes that say different layouts never decide on different states, even if the servers forget the
// layout and nothing else.
func TestLayoutIsNeverTwo(t *testing.T) {
	conn := newConn(t)
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 10))
	one, prefix := storeOn(t, conn, redisstore.Options{Partitions: 2, DenialCache: -1})
	take(t, one, "k", policy, 1)
	redis(t, "DEL", prefix+":settings")
	two := another(t, conn, redisstore.Options{KeyPrefix: prefix, Partitions: 16, DenialCache: -1})
	take(t, two, "k", policy, 1)
	for range 20 {
		if d, err := one.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1)); err == nil {
			t.Errorf("%+v of the layout of before", d)
		}
	}
	checkConflict(t, one, prefix, "partitions")
	if got := layoutOf(t, prefix); got != "16 packed" {
		t.Errorf("the layout is %q", got)
	}
}

// Processes that begin at the same moment, find no layout and would choose different ones agree before anything is
// decided.
func TestNewProcessesAgree(t *testing.T) {
	conn := newConn(t)
	policy := policyOf(t, "p", stint.FixedWindow(10, bounds.MaxPeriod))
	for i := range 5 {
		prefix := fmt.Sprint("agree", i)
		var others sync.WaitGroup
		others.Add(2)
		var stores []*redisstore.Store
		for _, cluster := range []bool{false, true} { // 1 and 16 partitions, if nobody says
			asked := sync.OnceFunc(others.Done)
			meeting := func(ctx context.Context, ask asking) (string, error) {
				reply, err := ask(ctx)
				asked()
				others.Wait() // until the other one has asked, too
				return reply, err
			}
			process := &hooked{Conn: conn, cluster: cluster, layout: meeting}
			stores = append(stores, another(t, process, redisstore.Options{KeyPrefix: prefix, DenialCache: -1}))
		}
		var work sync.WaitGroup
		for range 8 {
			for _, s := range stores {
				work.Go(func() {
					if _, err := s.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		work.Wait()
		for _, s := range stores {
			checkLeft(t, s, "k", policy, 0, layoutOf(t, prefix))
		}
	}
}

// A server that loses all it has while processes decide, and agree, costs no decision.
func TestFlushInMidFlight(t *testing.T) {
	own := testredis.Start(t)
	policy := policyOf(t, "p", stint.FixedWindow(1000, bounds.MaxPeriod))
	var stores []*redisstore.Store
	for _, partitions := range []int{4, 0} {
		s := open(t, own.URL(), redisstore.Options{Partitions: partitions, DenialCache: -1})
		must.Do(t, s.Ready(t.Context()))
		stores = append(stores, s)
	}
	const callers, flushes = 4, 20
	var allowed atomic.Int64
	var ended atomic.Bool
	var work sync.WaitGroup
	for _, s := range stores {
		for range callers {
			work.Go(func() {
				for !ended.Load() && !t.Failed() {
					if d, err := s.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1)); err != nil {
						t.Error(err)
					} else if d.Allowed {
						allowed.Add(1)
					}
				}
			})
		}
	}
	for i := range int64(flushes) {
		must.Get(own.Do("FLUSHALL"))(t)
		before := allowed.Load() + 2*callers // as many may be decided before, and not counted yet
		until(t, "more are admitted", func() bool { return t.Failed() || allowed.Load() > max(before, 100*(i+1)) })
	}
	ended.Store(true)
	work.Wait()
	if n := allowed.Load(); n > 1000*(flushes+1) {
		t.Errorf("%d were admitted", n)
	}
	if text, err := own.Do("HGET", "rate_limiter:settings", "layout"); err != nil || text != "4 packed" {
		t.Errorf("the layout is %v, %v", text, err)
	}
}

// What was leased before its client was reset does not come back into what is new, in the same call or in
// a later one; what was leased since does.
func TestResetClientDropsLeases(t *testing.T) {
	for name, limit := range leaseLimits(100) {
		t.Run(name, func(t *testing.T) {
			clock := storetest.NewClock(dawn)
			store, prefix := storeOn(t, newConn(t), redisstore.Options{Now: clock.Now})
			policy := policyOf(t, "p", limit.WithLease(10))
			lapse := func(n int64, taken stint.Instant) redisstore.InternalOp {
				return redisstore.InternalOp{Op: op(redisstore.ReturnLease, "k", policy, n), TakenAt: taken}
			}
			first := store.DecideInOneBatch(t, redisstore.InternalOp{Op: op(stint.VerbTake, "k", policy, 50)})[0].Decision.At
			clock.Advance(time.Microsecond)
			calls := [][]redisstore.InternalOp{{
				{Op: op(stint.VerbReset, "k", policy, 0)}, {Op: op(stint.VerbTake, "k", policy, 60)}, lapse(20, first), {Op: op(stint.VerbPeek, "k", policy, 1)},
			}}
			if limit.Calendar != 0 { // whose reset has a call of its own
				calls = [][]redisstore.InternalOp{calls[0][:1], calls[0][1:]}
			}
			var done []redisstore.InternalResult
			for _, call := range calls {
				done = store.DecideInOneBatch(t, call...)
			}
			if n := done[len(done)-1].Decision.Remaining; n != 40 {
				t.Errorf("%d remain with the reset, want 40", n)
			}
			store.DecideInOneBatch(t, lapse(30, first))
			checkLeft(t, store, "k", policy, 40, "after a later return")
			clock.Advance(time.Microsecond)
			second := store.DecideInOneBatch(t, redisstore.InternalOp{Op: op(stint.VerbTake, "k", policy, 10)})[0].Decision.At
			store.DecideInOneBatch(t, lapse(10, second))
			checkLeft(t, store, "k", policy, 40, "after a return of what was taken since")
			markers := 0
			for _, key := range keysOf(t, prefix) {
				if strings.Contains(key, ":reset.") {
					markers++
					if ttl, _ := redis(t, "PTTL", key).(int64); ttl < 20_000 {
						t.Errorf("the time of the reset is kept for %d ms, want 20 s or more", ttl)
					}
				}
			}
			if markers != 1 {
				t.Errorf("%d times of resets are kept, want 1: %q", markers, keysOf(t, prefix))
			}
		})
	}
}

// Once a store is ready its first decision is one script call that the server knows: nothing is asked, loaded or
// subscribed to in a caller's time.
func TestFirstDecisionIsOneCall(t *testing.T) {
	own := testredis.Start(t)
	do := func(args ...any) string {
		t.Helper()
		reply := must.Get(own.Do(args...))(t)
		return fmt.Sprint(reply)
	}
	for _, algorithm := range notation.Algorithms() {
		store := open(t, own.URL(), redisstore.Options{DenialCache: -1})
		must.Do(t, store.Ready(t.Context()))
		do("CONFIG", "RESETSTAT")
		take(t, store, "k", policyOf(t, "", aLimit(algorithm, 10)), 1)
		stats := do("INFO", "commandstats")
		if !strings.Contains(stats, "cmdstat_evalsha:calls=1,") || strings.Contains(stats, "cmdstat_eval:") || strings.Contains(stats, "cmdstat_hget:") {
			t.Errorf("%s: %s", algorithm, stats)
		}
		do("FLUSHALL")
		do("SCRIPT", "FLUSH")
	}
}
