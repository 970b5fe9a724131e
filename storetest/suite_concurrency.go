package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
)

// testConcurrency has many goroutines on one key, and on others by other methods of the store,
// while the clock stands still. Exactly the limit is admitted, and every admission leaves another
// Remaining, as if they came one after another.
func testConcurrency(t *testing.T, newStore newStoreFunc) {
	eachSimplePolicy(t, func(t *testing.T, policy *stint.Policy) {
		b := newFixture(t, newStore)
		var group sync.WaitGroup
		for i, take := range append(takeFuncs(b.store, policy), inAnyOrder(b.store, policy)) {
			group.Go(func() { (&contention{b: b, policy: policy, key: fmt.Sprint("k", i), take: take}).run(nil) })
		}
		group.Wait()
	})
	t.Run("reset", func(t *testing.T) {
		eachSimplePolicy(t, func(t *testing.T, policy *stint.Policy) { testResetMeanwhile(t, newStore, policy) })
	})
}

// testResetMeanwhile resets a policy while many goroutines take of one client. Every take
// that was admitted counts against what was before, or against what is new, which is full at
// first and ends empty: each leaves another Remaining, from the highest on. One that ended
// before the reset began is of what was; one that began after the reset had returned is of what
// is new. What remains at the end tells how many are new. Another policy knows nothing of it.
func testResetMeanwhile(t *testing.T, newStore newStoreFunc, policy *stint.Policy) {
	rounds := 8 // of each takeFunc
	if testing.Short() {
		rounds = 3
	}
	b, kept := newFixture(t, newStore), policyOf(t, "", simpleLimit(stint.AlgorithmTokenBucket, 9))
	if !resetsAll(b.store) {
		return
	}
	all := takeFuncs(b.store, policy)
	for round := range rounds * len(all) {
		r, left := stint.Scope{Policy: policy.Name()}, int64(8) // of the other policy
		if round%4 == 3 {
			r, left = stint.Scope{All: true}, 9
		}
		key := fmt.Sprint("k", round)
		b.take(key, kept, 1)
		(&contention{b: b, policy: policy, key: key, take: all[round%len(all)]}).run(&r)
		if got := b.remaining(key, kept); got != left {
			t.Errorf("%d of the other policy remain, expected %d", got, left)
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// quota is the capacity that goroutines contend for.
const quota = 100

// eachSimplePolicy runs a check with a policy of each algorithm, and with one of all.
func eachSimplePolicy(t *testing.T, check func(t *testing.T, policy *stint.Policy)) {
	for _, limit := range simpleLimits(quota) {
		t.Run(limit.Algorithm.String(), func(t *testing.T) { check(t, policyOf(t, "rule/a", limit)) })
	}
	t.Run("policy", func(t *testing.T) { check(t, policyOf(t, "rule/a", simpleLimits(quota)...)) })
}

// reset has the fixture's store reset a policy, or all.
func (b *fixture) reset(scope stint.Scope) {
	b.t.Helper()
	if err := b.store.ResetAll(b.ctx, scope); err != nil {
		b.t.Errorf("%s: %v", scope, err)
	}
}

// resetsAll reports whether a store can reset more than single clients. A name that no policy has is no error.
func resetsAll(store stint.Store) bool {
	return !errors.Is(store.ResetAll(context.Background(), stint.Scope{Policy: "nobody's"}), stint.ErrInvalid)
}

// A takeFunc takes one permit, or several one by one.
type takeFunc func(ctx context.Context, key string) []stint.Result

// takeFuncs are the ways in which a permit can be taken: by itself, in batches, and together with
// other claims. All have to add up to the quota, however they mix.
func takeFuncs(store stint.Store, policy *stint.Policy) []takeFunc {
	all := []takeFunc{
		func(ctx context.Context, key string) []stint.Result {
			op := operation(stint.VerbTake, key, policy, 1)
			op.Each = make([]stint.Outcome, policy.Len())
			d, err := store.Decide(ctx, op)
			for _, out := range op.Each {
				if err == nil && d.Allowed && out.Remaining != op.Each[0].Remaining {
					err = fmt.Errorf("a limit was found as it was, another one as new: %+v", op.Each)
				}
			}
			return []stint.Result{{Decision: d, Err: err}}
		},
		func(ctx context.Context, key string) []stint.Result {
			ops, results := make([]stint.Op, 5), make([]stint.Result, 5)
			for i := range ops {
				ops[i] = operation(stint.VerbTake, key, policy, 1)
			}
			store.DecideAll(ctx, ops, results)
			return results
		},
		func(ctx context.Context, key string) []stint.Result {
			d, err := store.Take(ctx, policy, key, 1)
			return []stint.Result{{Decision: d, Err: err}}
		},
	}
	return all
}

// inAnyOrder takes of three clients at once, each of which is named first at times.
func inAnyOrder(store stint.Store, policy *stint.Policy) takeFunc {
	var turns atomic.Int64
	return func(ctx context.Context, key string) []stint.Result {
		turn := turns.Add(1)
		claim := func(i int64) stint.Claim {
			return stint.Claim{Key: key + [...]string{"", "l", "m"}[(turn+i)%3], Policy: policy, Permits: 1}
		}
		d, err := store.Decide(ctx, stint.Op{Claim: claim(0), And: []stint.Claim{claim(1), claim(2)}})
		return []stint.Result{{Decision: d, Err: err}}
	}
}

// A contention is many goroutines that take of one client, perhaps while that is reset.
type contention struct {
	b      *fixture
	policy *stint.Policy
	key    string
	take   takeFunc

	begun, done atomic.Bool // the reset
	mu          sync.Mutex
	// counts says by Remaining how many takes ended before the reset began, how many began after
	// it had returned, and how many there were in all.
	counts [quota]struct{ old, fresh, all int }
}

// run has 8 workers take, together twice the quota or more, and calls for a reset when a quarter is
// done.
func (c *contention) run(r *stint.Scope) {
	const workers, each = 8, quota / 4
	var takes atomic.Int64
	quarterDone := make(chan struct{})
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for range each {
				if takes.Add(1) == workers*each/4 {
					close(quarterDone)
				}
				c.one()
			}
		})
	}
	<-quarterDone
	if r != nil {
		c.begun.Store(true)
		c.b.reset(*r)
		c.done.Store(true)
	}
	work.Wait()
	c.check()
}

// one takes, and counts what that left.
func (c *contention) one() {
	fresh := c.done.Load()
	results := c.take(c.b.ctx, c.key)
	old := !c.begun.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range results {
		d := r.Decision
		switch {
		case r.Err != nil:
			c.b.t.Error(r.Err)
		case !d.Allowed && d.RetryAfter <= 0, d.Allowed && (d.Remaining < 0 || d.Remaining >= quota):
			c.b.t.Errorf("%+v of %d", d, quota)
		case d.Allowed:
			n := &c.counts[d.Remaining]
			n.all++
			if old {
				n.old++
			}
			if fresh {
				n.fresh++
			}
		}
	}
}

// check holds the counts against what is possible: each remaining amount was left by one take
// before the reset, and one after it, at most.
func (c *contention) check() {
	rest := c.b.remaining(c.key, c.policy)
	reset := c.begun.Load()
	more := reset // whether there may be more takes of what was
	if !reset && rest != 0 {
		c.b.t.Errorf("%d remain of %d, all of which were asked for", rest, quota)
	}
	for left := int64(quota - 1); left >= 0; left-- {
		n, fresh := c.counts[left], 0
		if left >= rest {
			fresh = 1
		}
		before := n.all - fresh
		if before < 0 || before > 1 || reset && n.old > before || n.fresh > fresh || before == 1 && !more {
			c.b.t.Errorf("%d takes left %d, %d of them ended before the reset and %d began after it; %d remain of %d at the end",
				n.all, left, n.old, n.fresh, rest, quota)
		}
		more = more && before == 1
	}
	for i := range rest + 1 {
		if d := c.b.take(c.key, c.policy, 1); d.Allowed != (i < rest) {
			c.b.t.Errorf("take %d of the %d that remained: %+v", i+1, rest, d)
		}
	}
}
