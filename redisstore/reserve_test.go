package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// on makes something happen once, before the next call about an algorithm.
func (h *hooked) on(algorithm string, happens func() error) {
	var once sync.Once
	h.before = func(_ context.Context, keys []string) (err error) {
		for _, key := range keys {
			if strings.Contains(key, ":"+algorithm+":") {
				once.Do(func() { err = happens() })
			}
		}
		return err
	}
}

// Partitions of 16, each on a node of its own.
var apart = [3]int{2, 7, 13}

// keysApart are keys whose states are on distinct nodes.
func keysApart(store *redisstore.Store, prefix string) (keys [3]string) {
	for i, partition := range apart {
		for n := 0; keys[i] == ""; n++ {
			if key := fmt.Sprintf("%s%d", prefix, n); store.Partition(key) == partition {
				keys[i] = key
			}
		}
	}
	return keys
}

// spanning is an operation over several claims.
func spanning(verb stint.Verb, claims ...stint.Claim) stint.Op {
	return stint.Op{Verb: verb, Claim: claims[0], And: claims[1:]}
}

// mix is a random sequence over keys on three nodes, the last of which has limits that
// can't give back, and a fourth that shares the first's hash tag.
func mix(t testing.TB, store *redisstore.Store, seed uint64, steps int) storetest.Sequence {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	keys := keysApart(store, fmt.Sprintf("mix%d.", seed))
	size := func() int64 { return 3 + r.Int64N(12) }
	free := []*stint.Policy{
		policyOf(t, "t", stint.TokenBucket(size(), stint.Per(3, 7*time.Second))),
		policyOf(t, "f", stint.FixedWindow(size(), 11*time.Second)),
		policyOf(t, "c", stint.SlidingWindowCounter(size(), 9*time.Second)),
		policyOf(t, "d", stint.CalendarWindow(size(), stint.CalendarMinute, "Europe/Berlin"), stint.TokenBucket(size(), stint.PerSecond(2))),
	}
	bound := []*stint.Policy{
		policyOf(t, "l", stint.LeakyBucket(size(), stint.PerSecond(2))),
		policyOf(t, "g", stint.SlidingWindowLog(size(), 8*time.Second), stint.FixedWindow(size(), 5*time.Second)),
		free[0],
	}
	clients := []string{keys[0], keys[1], keys[2], "{" + keys[0] + "}too"}
	verbs := []stint.Verb{
		stint.VerbTake, stint.VerbTake, stint.VerbTake, stint.VerbTake, stint.VerbTake, stint.VerbTake,
		stint.VerbTry, stint.VerbTry, stint.VerbPeek, stint.VerbPeek, stint.VerbSettle, stint.VerbReset,
	}
	at := dawn
	sequence := storetest.Sequence{Seed: seed}
	batch := 0
	reset := false // whether the step before was a reset: nothing comes back of what was taken at its instant
	for i := range steps {
		if i%4 != 1 || reset { // so that some come together
			at += 1 + stint.Instant(r.Int64N(600_000))
			batch++
		}
		verb := verbs[r.IntN(len(verbs))]
		reset = verb == stint.VerbReset
		var claims []stint.Claim
		for _, c := range r.Perm(len(clients))[:1+r.IntN(len(clients))] {
			policies := free
			if c == 2 {
				policies = bound
			}
			claim := stint.Claim{Key: clients[c], Policy: policies[r.IntN(len(policies))], Permits: 1 + r.Int64N(3)}
			if verb == stint.VerbSettle && r.IntN(2) == 0 && claim.Policy != bound[0] {
				claim.Permits = -claim.Permits
			}
			claims = append(claims, claim)
		}
		sequence.Steps = append(sequence.Steps, storetest.Step{
			At: at, Op: spanning(verb, claims...), Batch: batch, Each: r.IntN(2) == 0,
		})
	}
	return sequence
}

func TestCluster(t *testing.T) {
	cluster := testredis.StartCluster(t, 3, testredis.Config("lazyfree-lazy-expire", "yes"),
		testredis.Config("cluster-require-full-coverage", "no"))
	for name, test := range map[string]func(*testing.T, *testredis.Cluster){
		"agrees": apartAgrees, "under load": apartUnderLoad, "windows turn": givesBackAfterTheWindowTurned,
		"bound last": asksBoundLast, "refused": refusesApart, "cancelled": apartCancelled, "give back fails": failsToGiveBack,
		"full queue": givesBackIntoAFullQueue, "denials": remembersApart, "holds": holdsOnACluster,
		"deployments": deploymentsAgree, "servers": serversHaveNames, "instances": instancesOfCluster, "advice": advisesCluster,
	} {
		t.Run(name, func(t *testing.T) { test(t, cluster) })
	}
	t.Run("without a node", func(t *testing.T) { apartWithoutANode(t, cluster) })
}

// When nothing else runs, a policy across nodes is decided as in memory, in every
// field and of every limit: a denial leaves nothing behind, and what the limits say is
// what they would with nothing taken.
func apartAgrees(t *testing.T, cluster *testredis.Cluster) {
	clock := storetest.NewClock(dawn)
	store := open(t, cluster.URL(), redisstore.Options{Now: clock.Now, KeyPrefix: "apart"})
	single := open(t, cluster.URL(), redisstore.Options{Now: clock.Now, KeyPrefix: "single", MaxBatch: 1})
	stores := []contender{{"memory", memstore.New(memstore.Config{Now: clock.Now})}, {"cluster", store}, {"one by one", single}}
	seeds := uint64(5)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		if err := compare(t, clock, stores, mix(t, store, seed, 400)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// A denial across nodes is remembered, of the same claims alone.
func remembersApart(t *testing.T, cluster *testredis.Cluster) {
	store := open(t, cluster.URL(), redisstore.Options{KeyPrefix: "denials"})
	until(t, "announcements are heard", func() bool { return store.Stats().Announcing })
	short, long := policyOf(t, "short", stint.TokenBucket(10, stint.PerHour(10))), policyOf(t, "long", stint.TokenBucket(10, stint.PerDay(1)))
	keys := keysApart(store, "denials")
	take(t, store, keys[0], short, 10)
	take(t, store, keys[1], long, 10)
	denied(t, store, keys[0], short, 1, stint.SourceStore)
	denied(t, store, keys[0], short, 1, stint.SourceDenialCache)
	both := spanning(stint.VerbTake, stint.Claim{Key: keys[0], Policy: short, Permits: 1}, stint.Claim{Key: keys[1], Policy: long, Permits: 1})
	for _, source := range []stint.Source{stint.SourceStore, stint.SourceDenialCache} {
		if d := decide(t, store, both); d.Allowed || d.Source != source || d.Index != 1 || d.RetryAfter < 23*time.Hour {
			t.Errorf("%+v, want the second limit's denial by the %s", d, source)
		}
	}
	decide(t, store, op(stint.VerbReset, keys[1], long, 0))
	if d := decide(t, store, both); d.Allowed || d.Source != stint.SourceStore || d.Index != 0 {
		t.Errorf("%+v, want the first limit's denial by the store", d)
	}
}

// While many callers reserve and give back, no limit admits more than it may, and when
// all is quiet nothing is held that was not admitted.
func apartUnderLoad(t *testing.T, cluster *testredis.Cluster) {
	stores := []*redisstore.Store{open(t, cluster.URL(), redisstore.Options{}), open(t, cluster.URL(), redisstore.Options{})}
	const callers, calls = 16, 30 // more than all limits have
	type limited struct {
		claim    stint.Claim
		capacity int64
		admitted atomic.Int64
	}
	var all []*limited
	algorithms := []stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowCounter}
	for i, key := range keysApart(stores[0], "load") {
		for j, algorithm := range algorithms {
			capacity := int64(40 + 60*((i+j)%3))
			policy := policyOf(t, algorithm.String(), aLimit(algorithm, capacity))
			all = append(all, &limited{claim: stint.Claim{Key: key, Policy: policy}, capacity: capacity})
		}
	}
	log := &limited{claim: stint.Claim{Key: all[8].claim.Key, Policy: policyOf(t, "", aLimit(stint.AlgorithmSlidingWindowLog, 150))}, capacity: 150}
	all = append(all, log)

	var group sync.WaitGroup
	for caller := range callers {
		r := rand.New(rand.NewPCG(1, uint64(caller)))
		group.Go(func() {
			for range calls {
				var claims []stint.Claim
				chosen := r.Perm(len(all))[:1+r.IntN(4)]
				for _, i := range chosen {
					claim := all[i].claim
					claim.Permits = 1 + r.Int64N(2)
					claims = append(claims, claim)
				}
				d, err := stores[caller%2].Decide(t.Context(), spanning(stint.VerbTake, claims...))
				if err != nil {
					t.Error(err)
					return
				}
				for n, i := range chosen {
					if d.Allowed {
						all[i].admitted.Add(claims[n].Permits)
					}
				}
			}
		})
	}
	group.Wait()
	for _, l := range all {
		admitted := l.admitted.Load()
		if admitted > l.capacity {
			t.Errorf("%s under %q admitted %d of %d", l.claim.Policy.Name(), l.claim.Key, admitted, l.capacity)
		}
		if d := decide(t, stores[0], op(stint.VerbPeek, l.claim.Key, l.claim.Policy, 1)); d.Remaining != l.capacity-admitted {
			t.Errorf("%s under %q has %d left of %d, of which %d were admitted", l.claim.Policy.Name(), l.claim.Key, d.Remaining, l.capacity, admitted)
		}
	}
}

// What is given back when a window has turned since is its own window's, and never the
// new one's: the state is as if the reservation had not been. A token bucket that would
// have been full meanwhile gets its permits back as well (docs/redis.md).
func givesBackAfterTheWindowTurned(t *testing.T, cluster *testredis.Cluster) {
	conn := &hooked{Conn: dial(t, cluster.URL())}
	clock := storetest.NewClock(dawn)
	store, _ := storeOn(t, conn, redisstore.Options{Now: clock.Now})
	memory := memstore.New(memstore.Config{Now: clock.Now})
	for i, limit := range []stint.Limit{
		stint.TokenBucket(10, stint.Per(1, time.Minute)),
		stint.FixedWindow(10, time.Minute),
		stint.CalendarWindow(10, stint.CalendarMinute, "UTC"),
		stint.SlidingWindowCounter(10, time.Minute),
	} {
		for _, turn := range []time.Duration{0, 30 * time.Second, time.Minute, 90 * time.Second, 3 * time.Minute} {
			t.Run(fmt.Sprintf("%s %d by %s", limit.Algorithm, i, turn), func(t *testing.T) {
				clock.Set(dawn)
				keys := keysApart(store, fmt.Sprintf("turn%d.%s.", i, turn))
				policy, full := policyOf(t, "", limit), policyOf(t, "", stint.LeakyBucket(1, stint.Per(1, 24*time.Hour)))
				inBoth := func(n int64) {
					for _, s := range []stint.Store{store, memory} {
						take(t, s, keys[0], policy, n)
					}
				}
				take(t, store, keys[1], full, 1)
				inBoth(2)
				conn.on("leaky_bucket", func() error {
					clock.Set(dawn.Add(turn))
					inBoth(3)
					return nil
				})
				o := spanning(stint.VerbTake, stint.Claim{Key: keys[1], Policy: full, Permits: 1}, stint.Claim{Key: keys[0], Policy: policy, Permits: 4})
				if d := decide(t, store, o); d.Allowed || d.Index != 0 {
					t.Errorf("%+v, want a denial by the first limit", d)
				}
				peek := op(stint.VerbPeek, keys[0], policy, 1)
				got, want := decide(t, store, peek), decide(t, memory, peek)
				if limit.Algorithm == stint.AlgorithmTokenBucket && turn == 3*time.Minute {
					want.Remaining, want.ResetAfter = 8, 2*time.Minute // 7 and 3 minutes without the reservation
				}
				if got != want {
					t.Errorf("left is %+v, want %+v", got, want)
				}
			})
		}
	}
}

// A leaky bucket and a log are asked when all others have admitted, and not at all
// when one has denied. So is a token bucket beside windows: what is taken of it and given back again and
// again while they deny would pile up beside what it refills.
func asksBoundLast(t *testing.T, cluster *testredis.Cluster) {
	conn := &hooked{Conn: dial(t, cluster.URL())}
	clock := storetest.NewClock(dawn)
	store, _ := storeOn(t, conn, redisstore.Options{Now: clock.Now})
	for algorithm, other := range map[stint.Algorithm]stint.Algorithm{
		stint.AlgorithmLeakyBucket: stint.AlgorithmTokenBucket, stint.AlgorithmSlidingWindowLog: stint.AlgorithmTokenBucket,
		stint.AlgorithmTokenBucket: stint.AlgorithmFixedWindow,
	} {
		t.Run(algorithm.String(), func(t *testing.T) {
			keys := keysApart(store, algorithm.String())
			bound, free := policyOf(t, "", aLimit(algorithm, 5)), policyOf(t, "", aLimit(other, 2))
			o := spanning(stint.VerbTake, stint.Claim{Key: keys[0], Policy: bound, Permits: 2},
				stint.Claim{Key: keys[1], Policy: free, Permits: 1}, stint.Claim{Key: keys[2], Policy: free, Permits: 1})
			o.Each = make([]stint.Outcome, o.Limits())
			before := int64(0)
			conn.on(strings.ToLower(algorithm.String()), func() error {
				for _, key := range keys[1:] {
					before += 2 - decide(t, store, op(stint.VerbPeek, key, free, 1)).Remaining
				}
				return nil
			})
			if d := decide(t, store, o); !d.Allowed || before != 2 {
				t.Errorf("%+v with %d of the others' permits taken before, want an admission and 2", d, before)
			}
			take(t, store, keys[1], free, 1)
			var calls atomic.Int64
			conn.before = func(_ context.Context, keys []string) error {
				if strings.Contains(keys[1], ":"+strings.ToLower(algorithm.String())+":") {
					calls.Add(1)
				}
				return nil
			}
			if d := decide(t, store, o); d.Allowed || d.Index != 1 {
				t.Errorf("%+v, want a denial by the second limit", d)
			}
			if store.Withdrawn(); calls.Load() != 1 {
				t.Errorf("it is called %d times for a denial by another, want one look at what is left", calls.Load())
			}
			for i, want := range []int64{3, 0, 1} {
				if got := o.Each[i]; got.Remaining != want || got.Allowed != (i != 1) {
					t.Errorf("limit %d: %+v, want %d remaining", i, got, want)
				}
			}
			checkLeft(t, store, keys[0], bound, 3, "after the denial")
		})
	}
}

// What can't be given back must be in one partition, and says so.
func refusesApart(t *testing.T, cluster *testredis.Cluster) {
	store := open(t, cluster.URL(), redisstore.Options{})
	keys := keysApart(store, "refused")
	policies := map[string]*stint.Policy{
		"leaky": policyOf(t, "leaky", stint.LeakyBucket(5, stint.PerSecond(1))),
		"log":   policyOf(t, "log", stint.SlidingWindowLog(5, time.Minute)),
		"count": policyOf(t, "count", stint.Limit{Algorithm: stint.AlgorithmSlidingWindowLog, Capacity: 5, Window: time.Minute, CountDenied: true}),
		"block": policyOf(t, "block", stint.FixedWindow(5, time.Minute).FromFirst().OfDenials()),
		"free":  policyOf(t, "free", stint.TokenBucket(5, stint.PerSecond(1))),
	}
	const common = "; allowed: on a cluster, keys with a hash tag in common, like {tag}:1 and {tag}:2, since "
	const bound = common + "leaky buckets and sliding window logs can't give back what was taken"
	const counts = common + "a limit that counts denied requests, or denials, must be decided with all others"
	for _, c := range []struct {
		first, second, third string
		named                []int
		why                  string
	}{
		{"leaky", "log", "free", []int{0, 1}, bound},
		{"free", "log", "log", []int{1, 2}, bound},
		{"leaky", "free", "leaky", []int{0, 2}, bound},
		{"count", "free", "free", []int{0, 1, 2}, counts},
		{"free", "block", "free", []int{0, 1, 2}, counts},
	} {
		claims := make([]stint.Claim, 3)
		for i, name := range []string{c.first, c.second, c.third} {
			claims[i] = stint.Claim{Key: keys[i], Policy: policies[name], Permits: 1}
		}
		var named []string
		for _, i := range c.named {
			named = append(named, fmt.Sprintf("%q", keys[i]))
		}
		want := "stint: claims is " + strings.Join(named, ", ") + c.why
		for _, verb := range []stint.Verb{stint.VerbTake, stint.VerbTry} {
			_, err := store.Decide(t.Context(), spanning(verb, claims...))
			if !errors.Is(err, stint.ErrInvalid) || err.Error() != want {
				t.Errorf("%s: got %v\nwant %s", verb, err, want)
			}
		}
		for _, verb := range []stint.Verb{stint.VerbPeek, stint.VerbSettle, stint.VerbReset} {
			decide(t, store, spanning(verb, claims...))
		}
		for i := range claims {
			claims[i].Key = "{" + keys[0] + "}" + claims[i].Key
		}
		if d := decide(t, store, spanning(stint.VerbTake, claims...)); !d.Allowed {
			t.Errorf("%s, %s, %s with a tag: %+v", c.first, c.second, c.third, d)
		}
	}
}

// With one node gone the caller is told, and what was reserved on the others comes
// back.
func apartWithoutANode(t *testing.T, cluster *testredis.Cluster) {
	store := open(t, cluster.URL(), redisstore.Options{})
	keys := keysApart(store, "gone")
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 5))
	o := spanning(stint.VerbTake, stint.Claim{Key: keys[0], Policy: policy, Permits: 1},
		stint.Claim{Key: keys[1], Policy: policy, Permits: 1}, stint.Claim{Key: keys[2], Policy: policy, Permits: 1})
	if d := decide(t, store, o); !d.Allowed {
		t.Fatalf("%+v", d)
	}
	must.Do(t, cluster.Nodes[1].Kill())
	results := make([]stint.Result, 2)
	store.DecideAll(t.Context(), []stint.Op{o, o}, results)
	for i, r := range results {
		if !errors.Is(r.Err, stint.ErrUnavailable) || r.Decision != (stint.Decision{}) {
			t.Errorf("operation %d: %+v, want %v", i, r, stint.ErrUnavailable)
		}
	}
	if err := store.ResetAll(t.Context(), stint.Scope{Policy: "x"}); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("a reset: %v, want %v", err, stint.ErrUnavailable)
	}
	store.Withdrawn()
	for _, key := range []string{keys[0], keys[2]} {
		checkLeft(t, store, key, policy, 4, "on a node that is there")
	}
}

// A caller that leaves between the calls gives back what it had reserved.
func apartCancelled(t *testing.T, cluster *testredis.Cluster) {
	conn := &hooked{Conn: dial(t, cluster.URL())}
	store, _ := storeOn(t, conn, redisstore.Options{})
	keys := keysApart(store, "cancelled")
	free, bound := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 5)), policyOf(t, "", aLimit(stint.AlgorithmLeakyBucket, 5))
	o := spanning(stint.VerbTake, stint.Claim{Key: keys[0], Policy: free, Permits: 1}, stint.Claim{Key: keys[1], Policy: bound, Permits: 1})
	for name, during := range map[string]string{"its first call": "fixed_window", "its last call": "leaky_bucket"} {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		conn.on(during, func() error {
			cancel()
			<-left
			return nil
		})
		if _, err := store.Decide(ctx, o); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled in %s: got %v, want %v", name, err, context.Canceled)
		}
		close(left)
		until(t, "the call is answered that was under way", func() bool { return store.InFlight() == 0 })
		store.Withdrawn()
	}
	// What flew when its caller left was taken: once of each.
	left := func() {
		t.Helper()
		for i, policy := range []*stint.Policy{free, bound} {
			checkLeft(t, store, keys[i], policy, 4, "when its caller has left")
		}
	}
	left()

	// Between the calls, nothing more is asked.
	gone := &leaving{Context: t.Context()}
	conn.after = func() { gone.left.Store(true) }
	if _, err := store.Decide(gone, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled between its calls: got %v, want %v", err, context.Canceled)
	}
	store.Withdrawn()
	conn.after = nil
	left()

	// While it is given back, the caller need not wait.
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan struct{})
	conn.on("leaky_bucket", func() error {
		conn.on("fixed_window", func() error {
			cancel()
			<-answered
			return nil
		})
		return nil
	})
	o.And[0].Permits = 5
	if _, err := store.Decide(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while it is given back: got %v, want %v", err, context.Canceled)
	}
	close(answered)
	store.Withdrawn()
	left()
}

// leaving is a context that ends when it is told to, without a sound.
type leaving struct {
	context.Context
	left atomic.Bool
}

func (c *leaving) Err() error {
	if c.left.Load() {
		return context.Canceled
	}
	return nil
}

// A queue that is full turns no permits away that are given back.
func givesBackIntoAFullQueue(t *testing.T, cluster *testredis.Cluster) {
	conn := &hooked{Conn: dial(t, cluster.URL())}
	store, _ := storeOn(t, conn, redisstore.Options{MaxQueue: 1, InFlight: 1})
	keys := keysApart(store, "queue")
	free, full := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 5)), policyOf(t, "", aLimit(stint.AlgorithmLeakyBucket, 1))
	other := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 5))
	take(t, store, keys[1], full, 1)

	reached, proceed, held := make(chan struct{}), make(chan struct{}), make(chan struct{})
	inUse := make(chan struct{}, 3)
	conn.before = func(_ context.Context, keys []string) error {
		switch {
		case strings.Contains(keys[1], ":token_bucket:"):
			inUse <- struct{}{}
			<-held
		case strings.Contains(keys[1], ":leaky_bucket:"):
			close(reached)
			<-proceed
		}
		return nil
	}
	answers := make(chan error, 3)
	send := func(o stint.Op) {
		go func() {
			_, err := store.Decide(t.Context(), o)
			answers <- err
		}()
	}
	send(spanning(stint.VerbTake, stint.Claim{Key: keys[0], Policy: free, Permits: 1}, stint.Claim{Key: keys[1], Policy: full, Permits: 1}))
	<-reached
	send(op(stint.VerbTake, keys[0], other, 1))
	<-inUse
	send(op(stint.VerbTake, keys[0], other, 1))
	until(t, "the queue is full", func() bool { return store.Waiting() == 1 })
	if _, err := store.Decide(t.Context(), op(stint.VerbTake, keys[0], other, 1)); !errors.Is(err, stint.ErrOverloaded) {
		t.Errorf("one more take: %v, want %v", err, stint.ErrOverloaded)
	}
	close(proceed)
	until(t, "the give-back waits or was refused", func() bool { return store.Waiting() == 3 || len(answers) > 0 })
	close(held)
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	checkLeft(t, store, keys[0], free, 5, "when all is given back")
}

// A reservation that can't be given back is an error: what is left is not known.
func failsToGiveBack(t *testing.T, cluster *testredis.Cluster) {
	conn := &hooked{Conn: dial(t, cluster.URL())}
	for _, batch := range []int{0, 1} { // the look at what is left comes in the same call, or in one that succeeds
		conn.before = nil
		store, _ := storeOn(t, conn, redisstore.Options{MaxBatch: batch})
		keys := keysApart(store, "fails")
		free, full := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 5)), policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 1))
		take(t, store, keys[1], full, 1)
		take(t, store, keys[0], free, 1)
		lost := errors.New("the connection is lost")
		calls := 0
		conn.before = func(_ context.Context, keys []string) error {
			if strings.Contains(keys[1], ":fixed_window:") {
				if calls++; calls == 2 {
					return lost
				}
			}
			return nil
		}
		o := spanning(stint.VerbTake, stint.Claim{Key: keys[0], Policy: free, Permits: 1}, stint.Claim{Key: keys[1], Policy: full, Permits: 1})
		if _, err := store.Decide(t.Context(), o); !errors.Is(err, stint.ErrUnavailable) || !errors.Is(err, lost) {
			t.Errorf("batches of %d: got %v, want %v", batch, err, stint.ErrUnavailable)
		}
		if d := decide(t, store, o); d.Allowed || d.Index != 1 {
			t.Errorf("batches of %d: %+v, want a denial by the second limit", batch, d)
		}
	}
}

// On a cluster a hold takes of one partition, all of it or nothing; over several it is refused, and the error says how
// to have it.
func holdsOnACluster(t *testing.T, cluster *testredis.Cluster) {
	store := open(t, cluster.URL(), redisstore.Options{KeyPrefix: "holds"})
	places, tokens := policyOf(t, "places", stint.Concurrency(2).WithCost(1)), policyOf(t, "tokens", aLimit(stint.AlgorithmFixedWindow, 100))
	claims := func(verb stint.Verb, h *stint.HoldOp, n int64, keys ...string) stint.Op {
		return stint.Op{
			Verb: verb, Extra: &stint.Extra{Hold: h}, Each: make([]stint.Outcome, 2),
			Claim: stint.Claim{Key: keys[0], Policy: places, Permits: n},
			And:   []stint.Claim{{Key: keys[1], Policy: tokens, Permits: n}},
		}
	}
	for i, user := range []string{"{a}", "{b}", "{c}", "{d}"} {
		for j, wantAllowed := range []bool{true, true, false} {
			h := &stint.HoldOp{Hold: stint.Hold{ID: user + string(rune('0'+j))}}
			d, err := store.Decide(t.Context(), claims(stint.VerbReserve, h, 30, user+"user", user+"team"))
			if err != nil || d.Allowed != wantAllowed {
				t.Fatalf("%d, %d: %v %v", i, j, d, err)
			}
		}
		h := &stint.HoldOp{Hold: stint.Hold{ID: user + "0"}}
		op := claims(stint.VerbCommit, h, 10, user+"user", user+"team")
		if d, err := store.Decide(t.Context(), op); err != nil || d.Applied != -20 || op.Each[0].Remaining != 1 || op.Each[1].Remaining != 60 {
			t.Errorf("%v %v %+v", d, err, op.Each)
		}
	}
	h := &stint.HoldOp{Hold: stint.Hold{ID: "apart"}}
	_, err := store.Decide(t.Context(), claims(stint.VerbReserve, h, 1, "user", "team:of:another:partition"))
	if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "hash tag") {
		t.Errorf("over two partitions: %v", err)
	}
}
