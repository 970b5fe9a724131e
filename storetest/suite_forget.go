package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// forgotten is the policy that is forgotten, in most of the checks.
const forgotten = "rule/a"

// forgetNames are names that are mistaken for each other where one is taken for a
// pattern, a part of a key or a beginning.
var forgetNames = [...]string{forgotten, "rule/*", "rule/?", "rule/[a]", `rule/\a`, "rule/a:", "rule/a%3A", "", "*", "x"}

// testForget is what [stint.Forgetter] promises, of a store that is one.
func testForget(t *testing.T, newStore NewStore) {
	if _, ok := newStore(t, NewClock(noon)).(stint.Forgetter); !ok {
		return
	}
	t.Run("histories", func(t *testing.T) {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { testForgetHistory(t, newStore, seed) })
		}
	})
	t.Run("progress", func(t *testing.T) { testForgetProgress(t, newStore) })
	t.Run("ended in the middle", func(t *testing.T) { testForgetEnded(t, newStore) })
	t.Run("meanwhile", func(t *testing.T) { testForgetMeanwhile(t, newStore) })
}

// forgetPolicies makes for a name a policy of every algorithm, and what a change made
// of it: some limits are gone, others have other parameters or another name.
func forgetPolicies(t testing.TB, name string) []*stint.Policy {
	t.Helper()
	names := []string{"", "x", forgotten, ":", "cur"}
	var before, after []stint.Limit
	for i, algorithm := range stint.Algorithms() {
		limit := plain(algorithm, 7)
		limit.Name = names[i%len(names)]
		before = append(before, limit)
		switch i % 3 {
		case 0:
			limit.Capacity = 5
			after = append(after, limit)
		case 1:
			after = append(after, limit.Named("*"))
		}
	}
	var policies []*stint.Policy
	for _, limits := range [][]stint.Limit{before, after} {
		policy, err := stint.NewPolicy(name, limits...)
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, policy)
	}
	return policies
}

// testForgetHistory compares every decision with the oracle's while policies are
// forgotten now and then.
func testForgetHistory(t *testing.T, newStore NewStore, seed uint64) {
	const operations, forgetEvery = 300, 20
	rng := rand.New(rand.NewPCG(seed, 4)) // #nosec G404 -- must be repeatable
	b, oracle := newBench(t, newStore), NewOracle()
	policies := map[string][]*stint.Policy{}
	for _, name := range forgetNames {
		policies[name] = forgetPolicies(t, name)
	}
	for i := range operations {
		name := forgetNames[rng.IntN(len(forgetNames))]
		if rng.IntN(forgetEvery) == 0 {
			forget(b, name)
			oracle.Forget(name)
		}
		b.clock.Advance(time.Duration(rng.IntN(1000)) * time.Millisecond)
		op := operation(pick(rng, stint.Take, stint.Take, stint.Try, stint.Peek, stint.Settle, stint.Reset),
			pick(rng, suffixes[0], suffixes[2], "cur", "rule/a:x:cur"), pick(rng, policies[name]...), 1+rng.Int64N(2))
		op.Each = make([]stint.Outcome, op.Limits())
		d := b.decide(op)
		if err := oracle.Check(op, b.clock.Now(), d, op.Each); err != nil {
			t.Fatalf("operation %d, of policy %q: %v", i, name, err)
		}
	}
}

// forget has the bench's store forget a policy and returns how that went on. It checks
// that the progress never goes back and ends at its end.
func forget(b *bench, name string) []stint.ForgetProgress {
	b.t.Helper()
	var steps []stint.ForgetProgress
	err := b.store.(stint.Forgetter).ForgetPolicy(b.ctx, name, func(p stint.ForgetProgress) { steps = append(steps, p) })
	if err != nil {
		b.t.Fatalf("forgetting %q: %v", name, err)
	}
	checkProgress(b.t, steps)
	if last := len(steps) - 1; last < 0 || steps[last].Done != steps[last].Total {
		b.t.Fatalf("forgetting %q: the progress %+v does not end at its end", name, steps)
	}
	return steps
}

func checkProgress(t testing.TB, steps []stint.ForgetProgress) {
	t.Helper()
	for i, p := range steps {
		if p.Total < 1 || p.Done < 0 || p.Done > p.Total || p.States < 0 {
			t.Fatalf("step %d: %+v", i, p)
		}
		if i > 0 && (p.Total != steps[0].Total || p.Done < steps[i-1].Done || p.States < steps[i-1].States) {
			t.Fatalf("step %d: %+v after %+v", i, p, steps[i-1])
		}
		if i < len(steps)-1 && p.Done == p.Total && steps[i+1] != p {
			t.Fatalf("step %d: %+v is the end, and then came %+v", i, p, steps[i+1])
		}
	}
}

// crowd takes from many clients of two policies, which are forgotten and kept.
func crowd(b *bench) (gone, kept *stint.Policy, clients []string) {
	b.t.Helper()
	const many = 400
	gone, kept = forgetPolicies(b.t, forgotten)[0], forgetPolicies(b.t, "rule/b")[0]
	for i := range many {
		client := fmt.Sprint("client", i)
		clients = append(clients, client)
		b.take(client, gone, 3)
		b.take(client, kept, 2)
	}
	return gone, kept, clients
}

// remain counts the clients of which so much remains.
func remain(b *bench, policy *stint.Policy, clients []string, want int64) (n int) {
	b.t.Helper()
	for _, client := range clients {
		if b.remaining(client, policy) == want {
			n++
		}
	}
	return n
}

func testForgetProgress(t *testing.T, newStore NewStore) {
	b := newBench(t, newStore)
	gone, kept, clients := crowd(b)
	steps := forget(b, forgotten)
	least := int64(len(clients) * gone.Len())
	if n := steps[len(steps)-1].States; n < least || n > 2*least {
		t.Errorf("%d states were removed, expected %d to %d", n, least, 2*least)
	}
	if n := remain(b, gone, clients, 7); n != len(clients) {
		t.Errorf("%d clients of %d are as new", n, len(clients))
	}
	if n := remain(b, kept, clients, 5); n != len(clients) {
		t.Errorf("%d clients of %d of the other policy are as they were", n, len(clients))
	}
	if err := b.store.(stint.Forgetter).ForgetPolicy(b.ctx, forgotten, nil); err != nil {
		t.Errorf("without a progress: %v", err)
	}
	if steps := forget(b, forgotten); steps[len(steps)-1].States != 0 {
		t.Errorf("%d states were removed where there were none", steps[len(steps)-1].States)
	}
}

// testForgetEnded ends a context in the middle, at each step in turn, and then does it
// to the end.
func testForgetEnded(t *testing.T, newStore NewStore) {
	b := newBench(t, newStore)
	gone, kept, clients := crowd(b)
	forgetter := b.store.(stint.Forgetter)
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if err := forgetter.ForgetPolicy(ctx, forgotten, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v, expected %v", err, context.Canceled)
	}
	if n := remain(b, gone, clients, 4); n != len(clients) {
		t.Errorf("%d clients of %d are as they were, expected all", n, len(clients))
	}
	for after := 1; after < 200; after += 1 + after/2 {
		ctx, cancel := context.WithCancel(b.ctx)
		var steps []stint.ForgetProgress
		err := forgetter.ForgetPolicy(ctx, forgotten, func(p stint.ForgetProgress) {
			if steps = append(steps, p); len(steps) == after {
				cancel()
			}
		})
		cancel()
		checkProgress(t, steps)
		last := stint.ForgetProgress{Total: 1}
		if len(steps) > 0 {
			last = steps[len(steps)-1]
		}
		if !errors.Is(err, context.Canceled) && (err != nil || last.Done != last.Total) {
			t.Errorf("ended after step %d of %d, at %+v: %v", after, len(steps), last, err)
		}
	}
	forget(b, forgotten)
	if n := remain(b, gone, clients, 7); n != len(clients) {
		t.Errorf("%d clients of %d are as new", n, len(clients))
	}
	if n := remain(b, kept, clients, 5); n != len(clients) {
		t.Errorf("%d clients of %d of the other policy are as they were", n, len(clients))
	}
}

// testForgetMeanwhile decides while a policy is forgotten: in between its steps, and
// from other goroutines. The other policy admits as much as ever, and nothing of what
// was before is seen afterwards.
func testForgetMeanwhile(t *testing.T, newStore NewStore) {
	b := newBench(t, newStore)
	gone, _, clients := crowd(b)
	busy := policyOf(t, plain(stint.AlgorithmTokenBucket, quota))
	begun := make(chan struct{})
	var work sync.WaitGroup
	admitted := make([]int, 4)
	for worker := range admitted {
		work.Go(func() {
			<-begun
			for i := range quota {
				d, err := b.store.Decide(b.ctx, operation(stint.Take, "busy", busy, 1))
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					admitted[worker]++
				}
				if _, err := b.store.Decide(b.ctx, operation(stint.Take, fmt.Sprint("new", worker, i), gone, 1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	first := true
	err := b.store.(stint.Forgetter).ForgetPolicy(b.ctx, forgotten, func(stint.ForgetProgress) {
		if first {
			close(begun)
			first = false
		}
		if d, err := b.store.Decide(b.ctx, operation(stint.Take, "meanwhile", gone, 7)); err != nil || d.Limit == 0 {
			t.Errorf("in between: %+v, %v", d, err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := remain(b, gone, clients, 7); n != len(clients) {
		t.Errorf("%d clients of %d are as new", n, len(clients))
	}
	work.Wait()
	sum := 0
	for _, n := range admitted {
		sum += n
	}
	if sum != quota {
		t.Errorf("%d were admitted of the other policy, expected %d", sum, quota)
	}
}
