package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// resetName is the name of the policy that is reset, in most of the checks.
const resetName = "rule/a"

// resetNames are names that are mistaken for each other where one is taken for a
// pattern, a part of a key or a beginning.
var resetNames = [...]string{resetName, "rule/*", "rule/?", "rule/[a]", `rule/\a`, "rule/a:", "rule/a%3A", "", "*", "x"}

// testResetPolicy is what [stint.Resetter] promises, of a store that is one.
func testResetPolicy(t *testing.T, newStore NewStore) {
	if _, ok := newStore(t, NewClock(noon)).(stint.Resetter); !ok {
		return
	}
	t.Run("histories", func(t *testing.T) {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { testResetHistory(t, newStore, seed) })
		}
	})
	t.Run("many clients", func(t *testing.T) { testResetCrowd(t, newStore) })
	t.Run("between batches", func(t *testing.T) { testResetBetweenBatches(t, newStore) })
	t.Run("ended context", func(t *testing.T) { testResetEnded(t, newStore) })
	var all []stint.Limit
	for _, algorithm := range stint.Algorithms() {
		limit := plain(algorithm, resetQuota)
		all = append(all, limit)
		t.Run("meanwhile/"+algorithm.String(), func(t *testing.T) { testResetMeanwhile(t, newStore, limit) })
	}
	t.Run("meanwhile/policy", func(t *testing.T) { testResetMeanwhile(t, newStore, all...) })
}

// A wideReset resets a policy, or all.
type wideReset struct {
	name  string
	store func(ctx context.Context, r stint.Resetter) error
	model func(o *Oracle)
}

func resetOf(name string) wideReset {
	return wideReset{
		fmt.Sprintf("policy %q", name),
		func(ctx context.Context, r stint.Resetter) error { return r.ResetPolicy(ctx, name) },
		func(o *Oracle) { o.ResetPolicy(name) },
	}
}

var resetOfAll = wideReset{
	"all",
	func(ctx context.Context, r stint.Resetter) error { return r.ResetAll(ctx) },
	func(o *Oracle) { o.ResetAll() },
}

// reset has the bench's store carry out a reset.
func (b *bench) reset(r wideReset) {
	b.t.Helper()
	if err := r.store(b.ctx, b.store.(stint.Resetter)); err != nil {
		b.t.Fatalf("reset of %s: %v", r.name, err)
	}
}

// namedPolicy makes a policy that is known to be valid.
func namedPolicy(t testing.TB, name string, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	policy, err := stint.NewPolicy(name, limits...)
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

// resetPolicies makes for a name a policy of every algorithm, and what a change made
// of it: some limits are gone, others have other parameters or another name.
func resetPolicies(t testing.TB, name string) []*stint.Policy {
	t.Helper()
	names := []string{"", "x", resetName, ":", "cur"}
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
	return []*stint.Policy{namedPolicy(t, name, before...), namedPolicy(t, name, after...)}
}

// testResetHistory compares every decision with the oracle's while policies, and now and
// then all of them, are reset between the decisions. Some decisions come in batches.
func testResetHistory(t *testing.T, newStore NewStore, seed uint64) {
	const turns, resetEvery, allEvery, batchEvery = 300, 20, 8, 5
	rng := rand.New(rand.NewPCG(seed, 4)) // #nosec G404 -- must be repeatable
	b, oracle := newBench(t, newStore), NewOracle()
	policies := map[string][]*stint.Policy{}
	for _, name := range resetNames {
		policies[name] = resetPolicies(t, name)
	}
	for turn := range turns {
		if rng.IntN(resetEvery) == 0 {
			r := resetOf(resetNames[rng.IntN(len(resetNames))])
			if rng.IntN(allEvery) == 0 {
				r = resetOfAll
			}
			b.reset(r)
			r.model(oracle)
		}
		b.clock.Advance(time.Duration(rng.IntN(1000)) * time.Millisecond)
		ops := make([]stint.Op, 1)
		if rng.IntN(batchEvery) == 0 {
			ops = make([]stint.Op, 2+rng.IntN(6))
		}
		for i := range ops {
			name := resetNames[rng.IntN(len(resetNames))]
			ops[i] = operation(pick(rng, stint.Take, stint.Take, stint.Try, stint.Peek, stint.Settle, stint.Reset),
				pick(rng, suffixes[0], suffixes[2], "cur", "rule/a:x:cur"), pick(rng, policies[name]...), 1+rng.Int64N(2))
			ops[i].Each = make([]stint.Outcome, ops[i].Limits())
		}
		results := make([]stint.Result, len(ops))
		if len(ops) == 1 {
			results[0].Decision = b.decide(ops[0])
		} else {
			b.store.DecideAll(b.ctx, ops, results)
		}
		for i, op := range ops {
			err := results[i].Err
			if err == nil {
				err = oracle.Check(op, b.clock.Now(), results[i].Decision, op.Each)
			}
			if err != nil {
				t.Fatalf("turn %d, operation %d, of policy %q: %v", turn, i, op.Policy.Name(), err)
			}
		}
	}
}

// crowd takes from many clients of two policies.
func crowd(b *bench) (one, other *stint.Policy, clients []string) {
	b.t.Helper()
	const many = 400
	one, other = resetPolicies(b.t, resetName)[0], resetPolicies(b.t, "rule/b")[0]
	for i := range many {
		clients = append(clients, fmt.Sprint("client", i))
	}
	spend(b, one, clients, 3)
	spend(b, other, clients, 2)
	return one, other, clients
}

func spend(b *bench, policy *stint.Policy, clients []string, permits int64) {
	b.t.Helper()
	b.each(stint.Take, policy, clients, permits)
}

// each makes an operation for each client, as one batch.
func (b *bench) each(verb stint.Verb, policy *stint.Policy, clients []string, permits int64) []stint.Decision {
	b.t.Helper()
	ops := make([]stint.Op, len(clients))
	for i, client := range clients {
		ops[i] = operation(verb, client, policy, permits)
	}
	return b.all(ops)
}

// remain checks how much remains of all clients.
func remain(b *bench, what string, policy *stint.Policy, clients []string, want int64) {
	b.t.Helper()
	n := 0
	for _, d := range b.each(stint.Peek, policy, clients, 1) {
		if d.Remaining == want {
			n++
		}
	}
	if n != len(clients) {
		b.t.Errorf("%s: %d clients of %d of policy %q have %d left, expected all", what, n, len(clients), policy.Name(), want)
	}
}

// testResetCrowd: a reset is of all clients of the policy and of no others, a second one as
// well as the first, and what was taken in between counts until then.
func testResetCrowd(t *testing.T, newStore NewStore) {
	b := newBench(t, newStore)
	b.reset(resetOf("unknown"))
	b.reset(resetOfAll)
	one, other, clients := crowd(b)
	for _, what := range []string{"once", "twice"} {
		b.reset(resetOf(resetName))
		remain(b, what, one, clients, 7)
		remain(b, what, other, clients, 5)
		spend(b, one, clients, 4)
		remain(b, what, one, clients, 3)
	}
	for range 3 {
		b.reset(resetOf(resetName)) // of nothing, from the second on
	}
	remain(b, "of nothing", one, clients, 7)
	spend(b, one, clients, 1)
	b.reset(resetOfAll)
	remain(b, "all", one, clients, 7)
	remain(b, "all", other, clients, 7)
	spend(b, one, clients, 1)
	spend(b, other, clients, 2)
	remain(b, "afterwards", one, clients, 6)
	remain(b, "afterwards", other, clients, 5)
}

// testResetBetweenBatches: what a batch has spent, and whom it has denied, the batch after a
// reset knows nothing of.
func testResetBetweenBatches(t *testing.T, newStore NewStore) {
	const keys, takes = 20, 4
	for _, r := range []wideReset{resetOf(resetName), resetOfAll} {
		t.Run(r.name, func(t *testing.T) {
			b := newBench(t, newStore)
			spent, kept := resetPolicies(t, resetName)[0], resetPolicies(t, "rule/b")[0]
			var ops []stint.Op
			for range takes {
				for key := range keys {
					ops = append(ops, operation(stint.Take, fmt.Sprint("k", key), spent, 2), operation(stint.Take, fmt.Sprint("k", key), kept, 1))
				}
			}
			left := int64(7) // of kept
			for round := range 4 {
				results := make([]stint.Result, len(ops))
				b.store.DecideAll(b.ctx, ops, results)
				for i, result := range results {
					// Of the policy that is reset three takes of each key fit, of the other one all.
					nth := int64(i / (2 * keys))
					allowed, want := nth < 3, 7-2*min(nth+1, 3)
					if i%2 == 1 {
						allowed, want = true, left-nth-1
						if want < 0 {
							allowed, want = false, 0
						}
					}
					if d := result.Decision; result.Err != nil || d.Allowed != allowed || d.Remaining != want {
						t.Fatalf("batch %d, operation %d: %+v, %v, expected allowed %t and %d left", round, i, d, result.Err, allowed, want)
					}
				}
				b.reset(r)
				if left = max(0, left-takes); r.name == resetOfAll.name {
					left = 7
				}
			}
		})
	}
}

// testResetEnded: with a context that has ended nothing is reset.
func testResetEnded(t *testing.T, newStore NewStore) {
	b := newBench(t, newStore)
	one, other, clients := crowd(b)
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	for _, r := range []wideReset{resetOf(resetName), resetOfAll} {
		if err := r.store(ctx, b.store.(stint.Resetter)); !errors.Is(err, context.Canceled) {
			t.Errorf("reset of %s: %v, expected %v", r.name, err, context.Canceled)
		}
	}
	remain(b, "as it was", one, clients, 4)
	remain(b, "as it was", other, clients, 5)
}

const (
	// resetQuota is the capacity of what is reset while it is decided.
	resetQuota = 100
	// resetRounds is how often that is done, in each way of deciding.
	resetRounds = 8
)

// testResetMeanwhile resets a policy while many goroutines take of one client. Every take
// that was admitted counts against what was before, or against what is new, which is full at
// first and ends empty: each leaves another Remaining, from the highest on. One that ended
// before the reset began is of what was; one that began after the reset had returned is of what
// is new. What remains at the end tells how many are new. Another policy knows nothing of it.
func testResetMeanwhile(t *testing.T, newStore NewStore, limits ...stint.Limit) {
	b := newBench(t, newStore)
	policy, kept := namedPolicy(t, resetName, limits...), policyOf(t, plain(stint.AlgorithmTokenBucket, 9))
	ways := takeWays(b.store, policy)
	for round := range resetRounds * len(ways) {
		r := resetOf(resetName)
		if round%4 == 3 {
			r = resetOfAll
		}
		key := fmt.Sprint("k", round)
		m := meanwhile{b: b, policy: policy, key: key, takes: resetQuota / 4, take: ways[round%len(ways)]}
		b.take(key, kept, 1)
		m.run(r)
		want := int64(8)
		if round%4 == 3 {
			want = 9
		}
		if left := b.remaining(key, kept); left != want {
			t.Errorf("round %d: %d of the other policy remain, expected %d", round, left, want)
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// takeWays are ways to take one permit.
func takeWays(store stint.Store, policy *stint.Policy) (ways []func(ctx context.Context, key string) (stint.Decision, error)) {
	ways = append(ways,
		func(ctx context.Context, key string) (stint.Decision, error) {
			op := operation(stint.Take, key, policy, 1)
			op.Each = make([]stint.Outcome, policy.Len())
			d, err := store.Decide(ctx, op)
			for _, out := range op.Each {
				if err == nil && d.Allowed && out.Remaining != op.Each[0].Remaining {
					err = fmt.Errorf("a limit was found as it was, another one as new: %+v", op.Each)
				}
			}
			return d, err
		},
		func(ctx context.Context, key string) (stint.Decision, error) {
			var result [1]stint.Result
			store.DecideAll(ctx, []stint.Op{operation(stint.Take, key, policy, 1)}, result[:])
			return result[0].Decision, result[0].Err
		})
	if binder, ok := store.(stint.Binder); ok {
		taker := binder.Bind(policy)
		ways = append(ways, func(ctx context.Context, key string) (stint.Decision, error) { return taker.Take(ctx, key, 1) })
	}
	return ways
}

// meanwhile is a reset while many take.
type meanwhile struct {
	b      *bench
	policy *stint.Policy
	key    string
	takes  int // of each worker
	take   func(ctx context.Context, key string) (stint.Decision, error)

	begun, done atomic.Bool // the reset
	all         [resetQuota]takenCount
	mu          sync.Mutex
}

// takenCount is how many takes have left some permits: of what was, of what is new, in all.
type takenCount struct{ old, fresh, all int }

func (m *meanwhile) run(r wideReset) {
	const workers = 8
	var takes atomic.Int64
	half := make(chan struct{})
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for range m.takes {
				if takes.Add(1) == int64(workers*m.takes/4) {
					close(half)
				}
				m.one()
			}
		})
	}
	<-half
	m.begun.Store(true)
	m.b.reset(r)
	m.done.Store(true)
	work.Wait()
	m.check()
}

// one takes a permit and notes what that left.
func (m *meanwhile) one() {
	fresh := m.done.Load()
	d, err := m.take(m.b.ctx, m.key)
	old := !m.begun.Load()
	if err != nil {
		m.b.t.Error(err)
		return
	}
	if !d.Allowed {
		return
	}
	if d.Remaining < 0 || d.Remaining >= resetQuota {
		m.b.t.Errorf("%+v of %d", d, resetQuota)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := &m.all[d.Remaining]
	n.all++
	if old {
		n.old++
	}
	if fresh {
		n.fresh++
	}
}

func (m *meanwhile) check() {
	rest := m.b.remaining(m.key, m.policy)
	more := true // whether there may be more takes of what was
	for left := int64(resetQuota - 1); left >= 0; left-- {
		n := m.all[left]
		fresh := 0
		if left >= rest {
			fresh = 1
		}
		before := n.all - fresh
		if before < 0 || before > 1 || n.old > before || n.fresh > fresh || before == 1 && !more {
			m.b.t.Errorf("%d takes left %d, %d of them ended before the reset and %d began after it; %d remain of %d at the end",
				n.all, left, n.old, n.fresh, rest, resetQuota)
		}
		more = before == 1
	}
	for range rest {
		if d, err := m.take(m.b.ctx, m.key); err != nil || !d.Allowed {
			m.b.t.Errorf("%+v, %v, of the %d that remained", d, err, rest)
		}
	}
	if d, err := m.take(m.b.ctx, m.key); err != nil || d.Allowed {
		m.b.t.Errorf("%+v, %v, when nothing remained", d, err)
	}
}
