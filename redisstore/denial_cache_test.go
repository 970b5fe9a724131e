package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// hearing is a connection that tells what happens to the channel of announcements.
type hearing struct {
	hooked
	listens chan struct{}      // a subscription begins
	ready   chan struct{}      // it stands
	heard   chan string        // messages that have been taken in
	hold    chan struct{}      // what a subscription waits for; nil for nothing
	cut     context.CancelFunc // ends the subscription that stands
}

func newHearing(t testing.TB) *hearing {
	return &hearing{
		hooked: hooked{Conn: newConn(t)}, heard: make(chan string, 1000),
		listens: make(chan struct{}, 10), ready: make(chan struct{}, 10),
	}
}

func (e *hearing) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	ctx, e.cut = context.WithCancel(ctx)
	defer e.cut()
	e.listens <- struct{}{}
	if e.hold != nil {
		<-e.hold
	}
	return e.Conn.Subscribe(ctx, channel, func() {
		ready()
		e.ready <- struct{}{}
	}, func(text string) {
		message(text)
		e.heard <- text
	})
}

// hears waits for a message that names a client or a policy.
func (e *hearing) hears(name string) {
	for !strings.Contains(<-e.heard, name) {
	}
}

// listening makes a store that remembers denials and hears announcements, and another
// on the same keys that stands for another process.
func listening(t *testing.T, options redisstore.Options) (own *hearing, store, elsewhere *redisstore.Store) {
	t.Helper()
	own = newHearing(t)
	store, prefix := storeOn(t, own, options)
	// The client that stands behind the ear is closed by its test.
	t.Cleanup(store.Close)
	store.Patient()
	options.KeyPrefix = prefix
	elsewhere = another(t, newConn(t), options)
	// The first call starts the listening; its denial may come too early to be remembered.
	policy := policyOf(t, "warm-up", aLimit(stint.AlgorithmFixedWindow, 1))
	take(t, store, "k", policy, 1)
	if d := take(t, store, "k", policy, 1); d.Allowed || d.Source != stint.SourceStore {
		t.Fatalf("%+v, want a denial by the store", d)
	}
	<-own.ready
	return own, store, elsewhere
}

// deny takes all and is denied once, which is remembered.
func deny(t *testing.T, store stint.Store, key string, policy *stint.Policy) stint.Decision {
	t.Helper()
	take(t, store, key, policy, policy.Limit(0).Capacity)
	d := take(t, store, key, policy, 1)
	if d.Allowed || d.Source != stint.SourceStore {
		t.Fatalf("%+v, want a denial by the store", d)
	}
	return d
}

// denied fails the test when a take is not denied by the source.
func denied(t *testing.T, store stint.Store, key string, policy *stint.Policy, permits int64, by stint.Source) stint.Decision {
	t.Helper()
	d := take(t, store, key, policy, permits)
	if d.Allowed || d.Source != by {
		t.Errorf("%d of %q: %+v, want a denial by the %s", permits, key, d, by)
	}
	return d
}

// admitted fails the test when a take is not admitted by the source.
func admitted(t testing.TB, store stint.Store, key string, policy *stint.Policy, permits int64, by stint.Source) {
	t.Helper()
	if d := take(t, store, key, policy, permits); !d.Allowed || d.Source != by {
		t.Errorf("%d of %q: %+v, want it admitted by the %s", permits, key, d, by)
	}
}

// A denial covers the same claims at the same cost; RetryAfter counts down; Remaining is
// the last known. The server is not asked.
func TestDenialRemembered(t *testing.T) {
	own, store, _ := listening(t, redisstore.Options{})
	for _, algorithm := range notation.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			policy, hits := policyOf(t, "", aLimit(algorithm, 10)), store.Stats().DenialHits
			take(t, store, "k", policy, 8)
			first := denied(t, store, "k", policy, 5, stint.SourceStore)
			before := own.calls.Load()
			again := denied(t, store, "k", policy, 5, stint.SourceDenialCache)
			if again.RetryAfter > first.RetryAfter || again.At < first.At || again.At.Add(again.RetryAfter) > first.At.Add(first.RetryAfter) {
				t.Errorf("%+v after %+v: it does not count down", again, first)
			}
			if again.Remaining != 2 || again.Limit != 10 || again.ResetAfter > first.ResetAfter {
				t.Errorf("%+v after %+v", again, first)
			}
			if got := own.calls.Load() - before; got != 0 {
				t.Errorf("the server was asked %d times", got)
			}
			denied(t, store, "k", policy, 6, stint.SourceStore)
			denied(t, store, "k", policy, 6, stint.SourceDenialCache)
			admitted(t, store, "k", policy, 2, stint.SourceStore)
			// It is known to be gone, and with it what was left when others were denied.
			if d := denied(t, store, "k", policy, 5, stint.SourceStore); d.Remaining != 0 {
				t.Errorf("%+v, want nothing left", d)
			}
			if d := decide(t, store, op(stint.VerbPeek, "k", policy, 5)); d.Source != stint.SourceStore {
				t.Errorf("a peek: %+v, want it from the store", d)
			}
			denied(t, store, "k", policyOf(t, "", aLimit(algorithm, 10)), 5, stint.SourceStore)
			if stats := store.Stats(); stats.DenialHits != hits+2 || stats.DenialsKept < 1 || !stats.Announcing {
				t.Errorf("%+v, want 2 hits", stats)
			}
		})
	}
}

// With the time pinned a remembered denial counts down exactly, and ends.
func TestDenialCountsDown(t *testing.T) {
	clock := storetest.NewClock(dawn)
	_, store, _ := listening(t, redisstore.Options{Now: clock.Now, DenialCache: 100})
	policy := policyOf(t, "", stint.TokenBucket(10, stint.Per(1, time.Minute)))
	first := deny(t, store, "k", policy)
	if first.RetryAfter != time.Minute {
		t.Fatalf("%+v, want a minute", first)
	}
	clock.Advance(20 * time.Second)
	if d := denied(t, store, "k", policy, 1, stint.SourceDenialCache); d.RetryAfter != 40*time.Second || d.At != clock.Instant() {
		t.Errorf("%+v, want 40s at %s", d, clock.Instant().Time())
	}
	each := make([]stint.Outcome, 1)
	o := op(stint.VerbTake, "k", policy, 1)
	o.Each = each
	if d := decide(t, store, o); d.Source != stint.SourceStore || each[0].GrowsAfter != 40*time.Second {
		t.Errorf("%+v %+v, want the store to say when it grows", d, each)
	}
	clock.Advance(10 * time.Second)
	if d := decide(t, store, o); d.Source != stint.SourceDenialCache || each[0].GrowsAfter != 30*time.Second || each[0].Allowed {
		t.Errorf("%+v %+v, want 30s from memory", d, each)
	}
	clock.Set(dawn.Add(-time.Second)) // before it was sent
	denied(t, store, "k", policy, 1, stint.SourceStore)
	clock.Set(dawn.Add(time.Minute - 50*time.Millisecond)) // the last thousandth is asked
	denied(t, store, "k", policy, 1, stint.SourceStore)
	clock.Set(dawn.Add(time.Minute))
	admitted(t, store, "k", policy, 1, stint.SourceStore)
}

// Costs of all sizes on few clients, by policies whose deciding limit changes with the
// cost and alone or together: whoever answers, the wait and the deciding limit are the
// oracle's.
func TestDenialWaits(t *testing.T) {
	for _, algorithm := range notation.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Parallel()
			clock := storetest.NewClock(dawn)
			_, store, _ := listening(t, redisstore.Options{Now: clock.Now, DenialCache: 1000})
			model := oracle.New(0)
			limit := stint.Limit{Algorithm: algorithm, Capacity: 10}
			long := stint.Limit{Algorithm: algorithm, Capacity: 12, Name: "long"}
			if limit.IsBucket() {
				limit.Rate, long.Rate = stint.PerSecond(1), stint.Per(1, time.Minute)
			} else {
				limit.Window, long.Window = 10*time.Second, time.Minute
			}
			policies := []*stint.Policy{policyOf(t, "one", limit), policyOf(t, "two", limit, long)}
			rng := rand.New(rand.NewPCG(1, uint64(algorithm)))
			hits := 0
			for i := range 600 {
				if rng.IntN(3) == 0 {
					clock.Advance(time.Duration(rng.Int64N(700)) * time.Millisecond)
				}
				o := op(stint.VerbTake, [...]string{"a", "b"}[rng.IntN(2)], policies[rng.IntN(2)], [...]int64{1, 3, 10, 11}[rng.IntN(4)])
				if rng.IntN(4) == 0 {
					// A client of each, denied by either.
					o = op(stint.VerbTake, "c", policies[0], o.Permits)
					o.And = []stint.Claim{{Key: "d", Policy: policies[1], Permits: [...]int64{1, 10}[rng.IntN(2)]}}
				}
				if rng.IntN(2) == 0 {
					o.Each = make([]stint.Outcome, o.Limits())
				}
				d := decide(t, store, o)
				want := model.Decide(o, clock.Instant()).Decision
				if d.Source == stint.SourceDenialCache {
					hits++
				}
				if d.Allowed != want.Allowed || d.RetryAfter != want.RetryAfter || d.Index != want.Index {
					t.Fatalf("%d: %+v of %q by %q and %v: %+v, want %+v", i, o.Permits, o.Key, o.Policy.Name(), o.And, d, want)
				}
			}
			if hits < 60 {
				t.Errorf("%d of 600 were answered from memory, want 60 or more", hits)
			}
		})
	}
}

// A state from a time that the server's clock does not have any more denies until then.
// What is remembered of it ends when the limit's longest life does, so a clock that was
// put right is heeded.
func TestDenialEndsWithTheLimit(t *testing.T) {
	clock := storetest.NewClock(dawn)
	_, store, _ := listening(t, redisstore.Options{Now: clock.Now, DenialCache: 100})
	for _, algorithm := range notation.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			limit := stint.Limit{Algorithm: algorithm, Capacity: 5, MaxDebt: stint.NoDebt}
			if limit.IsBucket() {
				limit.Rate = stint.PerSecond(1)
			} else {
				limit.Window = 5 * time.Second
			}
			policy := policyOf(t, "", limit)
			take(t, store, "k", policy, 5)
			clock.Advance(-time.Hour) // a glitch
			if d := denied(t, store, "k", policy, 5, stint.SourceStore); d.RetryAfter < time.Hour {
				t.Fatalf("%+v, want an hour", d)
			}
			clock.Advance(4 * time.Second)
			denied(t, store, "k", policy, 5, stint.SourceDenialCache)
			// The clock of the process does not step, and this one is of both: the denial is
			// sent again an hour from where the clock is put right.
			clock.Advance(6 * time.Second)
			denied(t, store, "k", policy, 5, stint.SourceStore)
			clock.Advance(time.Hour)
			admitted(t, store, "k", policy, 5, stint.SourceStore)
		})
	}
}

// What makes a denial wrong is announced to every process.
func TestDenialForgotten(t *testing.T) {
	own, store, elsewhere := listening(t, redisstore.Options{})
	undo := map[string]func(s stint.Store, key string, p *stint.Policy){
		"reset": func(s stint.Store, key string, p *stint.Policy) {
			decide(t, s, op(stint.VerbReset, key, p, 0))
		},
		"reset of the policy": func(s stint.Store, _ string, p *stint.Policy) { resetPolicy(t, s, p.Name()) },
		"refund": func(s stint.Store, key string, p *stint.Policy) {
			if d := decide(t, s, op(stint.VerbSettle, key, p, -5)); d.Applied != -5 {
				t.Errorf("%+v", d)
			}
		},
		"raise": func(s stint.Store, key string, p *stint.Policy) {
			raised := p.Limit(0)
			if raised.Algorithm == stint.AlgorithmSlidingWindowLog {
				raised.Window /= 2 // of a log only a window of another length makes waits shorter
			} else {
				raised.Capacity *= 2
			}
			decide(t, s, op(stint.VerbSettle, key, policyOf(t, p.Name(), raised), 5))
		},
	}
	all := []string{"reset", "reset of the policy", "refund", "raise"}
	for algorithm, names := range map[stint.Algorithm][]string{
		stint.AlgorithmTokenBucket:      all,
		stint.AlgorithmLeakyBucket:      {"reset", "reset of the policy", "raise"},
		stint.AlgorithmSlidingWindowLog: all,
		// A larger window's count is the same state, and no denial of the smaller ends by it.
		stint.AlgorithmFixedWindow:          all[:3],
		stint.AlgorithmSlidingWindowCounter: all[:3],
	} {
		for _, name := range names {
			key := algorithm.String() + "/" + name
			policy := policyOf(t, key, aLimit(algorithm, 10))
			t.Run(key, func(t *testing.T) {
				own, store, elsewhere := own, store, elsewhere
				if name == "raise" { // it is announced once more by the next take
					own, store, elsewhere = listening(t, redisstore.Options{})
				}
				deny(t, store, key, policy)
				denied(t, store, key, policy, 1, stint.SourceDenialCache)
				undo[name](elsewhere, key, policy)
				own.hears(key)
				if d := take(t, store, key, policy, 1); d.Source != stint.SourceStore {
					t.Errorf("%+v, want the store to decide", d)
				}
			})
			if name == "raise" { // that the script alone knows, and it announces to all
				continue
			}
			t.Run(key+" by itself", func(t *testing.T) {
				key := key + " by itself"
				policy := policyOf(t, key, aLimit(algorithm, 10))
				deny(t, store, key, policy)
				undo[name](store, key, policy)
				admitted(t, store, key, policy, 1, stint.SourceStore)
				own.hears(key)
			})
		}
	}
}

// A call carries out its operations in order: what gives back comes before a take that was denied.
func TestDenialForgottenWithinACall(t *testing.T) {
	_, store, _ := listening(t, redisstore.Options{})
	policy := policyOf(t, "p", aLimit(stint.AlgorithmFixedWindow, 5))
	for verb, permits := range map[stint.Verb]int64{stint.VerbReset: 0, stint.VerbSettle: -1} {
		key := verb.String()
		deny(t, store, key, policy)
		denied(t, store, key, policy, 1, stint.SourceDenialCache)
		results := make([]stint.Result, 2)
		store.DecideAll(t.Context(), []stint.Op{op(verb, key, policy, permits), op(stint.VerbTake, key, policy, 1)}, results)
		for i, r := range results {
			if r.Err != nil || !r.Decision.Allowed {
				t.Errorf("%s, operation %d: %+v", verb, i, r)
			}
		}
	}
}

// A reset of the client, or of the policy, while the denial is on its way: it is not remembered.
func TestDenialOvertaken(t *testing.T) {
	policy := policyOf(t, "rule/a", aLimit(stint.AlgorithmTokenBucket, 10))
	for name, reset := range map[string]func(elsewhere stint.Store){
		"client": func(elsewhere stint.Store) { decide(t, elsewhere, op(stint.VerbReset, "k", policy, 0)) },
		"policy": func(elsewhere stint.Store) { resetPolicy(t, elsewhere, "rule/a") },
	} {
		t.Run(name, func(t *testing.T) {
			own, store, elsewhere := listening(t, redisstore.Options{})
			take(t, store, "k", policy, 10)
			own.after = func() {
				own.after = nil
				reset(elsewhere)
				<-own.heard
			}
			denied(t, store, "k", policy, 1, stint.SourceStore)
			admitted(t, store, "k", policy, 1, stint.SourceStore)
		})
	}
}

// Without the channel nothing is remembered.
func TestDenialsWithoutChannel(t *testing.T) {
	own, store, _ := listening(t, redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 10))
	deny(t, store, "k", policy)
	denied(t, store, "k", policy, 1, stint.SourceDenialCache)
	<-own.listens
	redis(t, "CLIENT", "KILL", "TYPE", "pubsub")
	<-own.listens // it is lost, what was remembered is forgotten, and it begins anew
	<-own.ready
	denied(t, store, "k", policy, 1, stint.SourceStore)
	denied(t, store, "k", policy, 1, stint.SourceDenialCache)
}

// A policy with a limit that counts denied requests is always asked.
func TestDenialsCounted(t *testing.T) {
	_, store, _ := listening(t, redisstore.Options{})
	policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 1), aLimit(stint.AlgorithmSlidingWindowLog, 5).CountingDenied())
	take(t, store, "k", policy, 1)
	for range 6 {
		denied(t, store, "k", policy, 1, stint.SourceStore)
	}
}

// Denials that a limit on denials counts reach the server, until it denies: then, while it does, they are remembered,
// though another limit denies for longer. A Try is not counted.
func TestDenialsThatBlock(t *testing.T) {
	_, store, _ := listening(t, redisstore.Options{})
	day := policyOf(t, "day", stint.FixedWindow(1, 24*time.Hour).FromFirst(),
		stint.FixedWindow(3, time.Hour).FromFirst().OfDenials().Named("block"))
	minutes := policyOf(t, "minutes", stint.FixedWindow(1, 10*time.Minute).FromFirst(),
		stint.FixedWindow(3, time.Hour).FromFirst().OfDenials().Named("block"))
	for _, policy := range []*stint.Policy{day, minutes} {
		take(t, store, "k", policy, 1)
		for range 2 {
			if d := decide(t, store, op(stint.VerbTry, "k", policy, 1)); d.Allowed || d.Source != stint.SourceStore {
				t.Fatalf("a try: %+v, want it denied by the server", d)
			}
		}
		for range 3 {
			denied(t, store, "k", policy, 1, stint.SourceStore)
		}
		d := decide(t, store, op(stint.VerbTake, "k", policy, 1))
		if blocks := policy == minutes; d.Allowed || d.Source != stint.SourceDenialCache || (d.Index == 1) != blocks {
			t.Errorf("%s, then: %+v, want it denied by memory", policy.Name(), d)
		}
	}
}

// Of an operation over several clients the denial is of all of them together.
func TestDenialOfOneClaim(t *testing.T) {
	own, store, elsewhere := listening(t, redisstore.Options{})
	global := policyOf(t, "global", aLimit(stint.AlgorithmTokenBucket, 1000))
	user := policyOf(t, "user", aLimit(stint.AlgorithmTokenBucket, 10), aLimit(stint.AlgorithmFixedWindow, 1000).Named("day"))
	both := func(key string) stint.Op {
		o := op(stint.VerbTake, "all", global, 1)
		o.And = []stint.Claim{{Key: key, Policy: user, Permits: 1}}
		return o
	}
	take(t, store, "a", user, 10)
	denied(t, store, "a", user, 1, stint.SourceStore)
	denied(t, store, "a", user, 1, stint.SourceDenialCache)
	first := decide(t, store, both("a"))
	if first.Source != stint.SourceStore {
		t.Errorf("%+v, want other claims to be decided by the store", first)
	}
	again := decide(t, store, both("a"))
	if first.Allowed || again.Allowed || again.Source != stint.SourceDenialCache || again.Index != first.Index || first.Index != 1 {
		t.Errorf("%+v and then %+v, want the second from memory", first, again)
	}
	if d := decide(t, store, both("b")); !d.Allowed {
		t.Errorf("another client: %+v", d)
	}
	decide(t, elsewhere, op(stint.VerbReset, "a", user, 0))
	<-own.heard
	if d := decide(t, store, both("a")); !d.Allowed {
		t.Errorf("after a reset: %+v", d)
	}
}

// However many clients are denied, no more than so many are remembered.
func TestDenialsBounded(t *testing.T) {
	const most = 128
	_, store, _ := listening(t, redisstore.Options{DenialCache: most})
	policy := policyOf(t, "", aLimit(stint.AlgorithmFixedWindow, 1))
	ops := make([]stint.Op, 4000)
	results := make([]stint.Result, len(ops))
	for i := range ops {
		ops[i] = op(stint.VerbTake, fmt.Sprint("k", i/2), policy, 1)
	}
	store.DecideAll(t.Context(), ops, results)
	if kept := store.Stats().DenialsKept; kept > most || kept < most/2 {
		t.Errorf("%d are remembered, want at most %d and about as many", kept, most)
	}
}

// Without a cache, and with a pinned time unless it is asked for, all are asked.
func TestDenialsOff(t *testing.T) {
	for _, options := range []redisstore.Options{{DenialCache: -1}, {Now: storetest.NewClock(dawn).Now}} {
		store := newStore(t, options)
		policy := policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 10))
		deny(t, store, "k", policy)
		denied(t, store, "k", policy, 1, stint.SourceStore)
	}
}

// What denies an operation of several claims is remembered with what each limit says: rules ask for that, so without it a
// client that two rules match, or one with a floor, would cost a call for each denial.
func TestDenialsOfSeveralClaims(t *testing.T) {
	clock := storetest.NewClock(dawn)
	bucket := stint.TokenBucket(10, stint.Per(1, time.Minute))
	for name, ofWays := range map[string]bool{"two rules": false, "a floor": true} {
		t.Run(name, func(t *testing.T) {
			own, store, _ := listening(t, redisstore.Options{Now: clock.Now, DenialCache: 1000})
			mine, all := policyOf(t, "mine", bucket), policyOf(t, "all", bucket)
			claims := []stint.Claim{{Key: "ann", Policy: mine, Permits: 1}, {Key: "all", Policy: all, Permits: 1}}
			op := stint.Op{Claim: claims[0], And: claims[1:]}
			if ofWays {
				op = stint.Op{Extra: &stint.Extra{Groups: [][]stint.Way{
					{claims, {{Key: "all", Policy: all, Permits: 1, Keep: 5}}},
				}}}
			}
			each := make([]stint.Outcome, op.Limits())
			op.Each = each
			ask := func() stint.Decision {
				clear(each)
				return decide(t, store, op)
			}
			take(t, store, "ann", mine, 10)
			take(t, store, "all", all, 5)
			if d := ask(); d.Allowed || d.Source != stint.SourceStore {
				t.Fatalf("%+v, want a denial by the store", d)
			}
			before := own.calls.Load()
			clock.Advance(20 * time.Second)
			d := ask()
			if d.Allowed || d.Source != stint.SourceDenialCache || d.RetryAfter != 40*time.Second || own.calls.Load() != before {
				t.Errorf("%+v after %d calls: want it from memory", d, own.calls.Load()-before)
			}
			if each[0].Allowed || each[0].RetryAfter != 40*time.Second || !each[1].Allowed || each[1].Remaining != 5 {
				t.Errorf("%+v: want what each limit says", each)
			}
			decide(t, store, stint.Op{Verb: stint.VerbSettle, Claim: stint.Claim{Key: "ann", Policy: mine, Permits: -1}})
			if d := ask(); !d.Allowed {
				t.Errorf("%+v after a refund, want it admitted", d)
			}
		})
	}
}

// A denial of claims that all have to admit says nothing of the same claims as alternatives.
func TestDenialsOfOtherWays(t *testing.T) {
	bucket := stint.TokenBucket(10, stint.Per(1, time.Minute))
	clock := storetest.NewClock(dawn)
	_, store, _ := listening(t, redisstore.Options{Now: clock.Now, DenialCache: 1000})
	claims := []stint.Claim{
		{Key: "k", Policy: policyOf(t, "a", bucket), Permits: 1}, {Key: "k", Policy: policyOf(t, "b", bucket), Permits: 1},
	}
	take(t, store, "k", claims[1].Policy, 10)
	for _, source := range []stint.Source{stint.SourceStore, stint.SourceDenialCache} {
		if d := decide(t, store, stint.Op{Claim: claims[0], And: claims[1:]}); d.Allowed || d.Source != source {
			t.Errorf("a and b: %+v, want a denial by %v", d, source)
		}
	}
	for name, test := range map[string]struct {
		op  stint.Op
		via uint8
	}{
		"a, else b":             {stint.Op{Extra: &stint.Extra{Groups: [][]stint.Way{{claims[:1], claims[1:]}}}}, 0},
		"b, else a":             {stint.Op{Extra: &stint.Extra{Groups: [][]stint.Way{{claims[1:], claims[:1]}}}}, 1},
		"a and b, else nothing": {stint.Op{Extra: &stint.Extra{Groups: [][]stint.Way{{claims, nil}}}}, 1},
		"a, and b if it fits": {
			stint.Op{Claim: claims[0], Extra: &stint.Extra{Groups: [][]stint.Way{{claims[1:], nil}}}}, 1,
		},
	} {
		if d := decide(t, store, test.op); !d.Allowed || d.Via != test.via {
			t.Errorf("%s: %+v, want it admitted via %d", name, d, test.via)
		}
	}
}
