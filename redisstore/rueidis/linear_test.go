package rueidis_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/redisstore"
)

// Concurrency, for all verbs: whatever several processes, which stores
// with connections of their own stand for, ask at once, one by one and in batches,
// there is an order of it in which the exact model gives the same answers, in every
// field, at the times that the answers name.
//
// An answer from the denial cache has no place in that order. It has to rest on a
// denial that has: see [account.checkRemembered].
func TestLinearizable(t *testing.T) {
	const quick, n = 5 * time.Millisecond, 10 // what turns many times during a test
	bucket, log := stint.TokenBucket(n, stint.Per(n, quick)), stint.SlidingWindowLog(n, quick)
	for name, c := range map[string]struct {
		encoding redisstore.LogEncoding
		limits   []stint.Limit
	}{
		"token bucket":            {limits: []stint.Limit{bucket}},
		"token bucket in thirds":  {limits: []stint.Limit{stint.TokenBucket(n, stint.Per(7, 3*time.Millisecond)).WithMaxDebt(3)}},
		"leaky bucket":            {limits: []stint.Limit{stint.LeakyBucket(n, stint.Per(n, quick))}},
		"fixed window":            {limits: []stint.Limit{stint.FixedWindow(n, quick)}},
		"sliding window counter":  {limits: []stint.Limit{stint.SlidingWindowCounter(n, quick)}},
		"packed log":              {redisstore.LogPacked, []stint.Limit{log}},
		"log as a sorted set":     {redisstore.LogZSet, []stint.Limit{log}},
		"log as a stream":         {redisstore.LogStream, []stint.Limit{log}},
		"log with an interval":    {limits: []stint.Limit{log.WithMinInterval(time.Millisecond)}},
		"log of the denied too":   {limits: []stint.Limit{stint.SlidingWindowLog(n, time.Millisecond).CountingDenied()}},
		"several limits":          {limits: []stint.Limit{bucket, log, stint.FixedWindow(2*n, 2*quick)}},
		"only resets and refunds": {limits: []stint.Limit{aLimit(stint.AlgorithmTokenBucket, n)}},
	} {
		for cache, denials := range map[string]int{"asking always": -1, "remembering denials": 0} {
			t.Run(name+"/"+cache, func(t *testing.T) {
				h := hammer(t, policyOf(t, "", c.limits...), redisstore.Options{LogEncoding: c.encoding, DenialCache: denials})
				h.checkOrder(t)
				h.checkRemembered(t)
				admitted, denied, remembered := h.count()
				t.Logf("%d admitted, %d denied, %d more from memory", admitted, denied, remembered)
				if admitted == 0 || denied == 0 || denials < 0 && remembered > 0 {
					t.Errorf("%d admitted, %d denied, %d more from memory: nothing is seen that way", admitted, denied, remembered)
				}
			})
		}
	}
}

// account is a history: operations with their answers.
type account []*asked

// asked is an operation of one store with its answer. called and answered order it
// among others; their values mean nothing.
type asked struct {
	op               stint.Op
	decision         stint.Decision
	store            int
	called, answered int64
	earlier          int // how many operations on its key were decided at an earlier time
}

func (a *asked) String() string {
	return fmt.Sprintf("store %d, from %d to %d: %s %d of %q: %+v", a.store, a.called, a.answered, a.op.Verb, a.op.Permits, a.op.Key, a.decision)
}

func (a *asked) takes() bool      { return a.op.Verb == stint.VerbTake || a.op.Verb == stint.VerbTry }
func (a *asked) remembered() bool { return a.decision.Source == stint.SourceDenialCache }

// undoes reports whether it ends denials before their time.
func (a *asked) undoes() bool { return a.op.Verb == stint.VerbReset || a.decision.Applied < 0 }

// until is when a denial ends, unless something ends it before.
func (a *asked) until() stint.Instant { return a.decision.At.Add(a.decision.RetryAfter) }

// hammer lets callers of several stores ask, and returns what all of them asked, by
// the time of the call.
func hammer(t *testing.T, policy *stint.Policy, options redisstore.Options) account {
	const stores, callers = 3, 4
	turns := 40
	if testing.Short() {
		turns = 15
	}
	options.KeyPrefix = "linear" + strconv.FormatInt(prefixes.Add(1), 10)
	var (
		group     sync.WaitGroup
		order     atomic.Int64
		histories [stores * callers]account
		started   [stores]*redisstore.Store
	)
	for i := range stores {
		started[i] = openURL(t, server.URL(), options)
		if options.DenialCache >= 0 {
			take(t, started[i], "k", policyOf(t, "warm-up", aLimit(stint.AlgorithmFixedWindow, 1000)), 1)
			// Then it remembers denials.
			until(t, "announcements are heard", func() bool { return started[i].Stats().Announcing })
		}
	}
	for i := range histories {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range turns {
				batch := make(account, 1+random.IntN(2)*random.IntN(6))
				for j := range batch {
					batch[j] = &asked{op: randomOp(random, policy), store: i / callers}
				}
				ask(t, started[i/callers], &order, batch)
				histories[i] = append(histories[i], batch...)
			}
		})
	}
	group.Wait()
	all := slices.Concat(histories[:]...)
	slices.SortFunc(all, func(a, b *asked) int { return cmp.Compare(a.called, b.called) })
	return all
}

// randomOp asks mostly for permits, and gives about as many back as it charges.
func randomOp(random *rand.Rand, policy *stint.Policy) stint.Op {
	o := op(stint.VerbTake, "k"+strconv.Itoa(random.IntN(3)), policy, 1+random.Int64N(4))
	switch dice := random.IntN(100); {
	case dice < 70:
	case dice < 78:
		o.Verb = stint.VerbTry
	case dice < 79:
		o.Permits = 1000 // more than there ever are
	case dice < 86:
		o.Verb = stint.VerbPeek
	case dice < 88:
		o.Verb = stint.VerbReset
	default:
		o.Verb = stint.VerbSettle
		if dice < 94 && policy.Limit(0).Algorithm != stint.AlgorithmLeakyBucket {
			o.Permits = -o.Permits
		}
	}
	return o
}

// ask has a store decide a batch, and enters the answers.
func ask(t *testing.T, store stint.Store, order *atomic.Int64, batch account) {
	ops, results := make([]stint.Op, len(batch)), make([]stint.Result, len(batch))
	for i, a := range batch {
		ops[i] = a.op
	}
	called := order.Add(1)
	if len(batch) == 1 {
		results[0].Decision, results[0].Err = store.Decide(t.Context(), ops[0])
	} else {
		store.DecideAll(t.Context(), ops, results)
	}
	answered := order.Add(1)
	for i, a := range batch {
		a.decision, a.called, a.answered = results[i].Decision, called, answered
		if results[i].Err != nil {
			t.Errorf("%s: error %v", a, results[i].Err)
		}
	}
}

// count counts requests.
func (h account) count() (admitted, denied, remembered int) {
	for _, a := range h {
		switch {
		case !a.takes():
		case a.remembered():
			remembered++
		case a.decision.Allowed:
			admitted++
		default:
			denied++
		}
	}
	return admitted, denied, remembered
}

// byKey splits an account.
func (h account) byKey() map[string]account {
	keys := map[string]account{}
	for _, a := range h {
		keys[a.op.Key] = append(keys[a.op.Key], a)
	}
	return keys
}

// sequential is the state of the model that an account is compared with.
type sequential struct {
	state   *oracle.Oracle
	carried int // how many operations were carried out
}

// model is a key of the exact model. A key's time does not run back, so an operation
// has its turn once all that were decided before its time have had theirs. Its answer
// has to be the model's in every field.
var model = porcupine.Model{
	Init: func() any { return sequential{state: oracle.New(0)} },
	Step: func(before, input, output any) (bool, any) {
		s, a, got := before.(sequential), input.(*asked), output.(stint.Decision)
		if s.carried < a.earlier {
			return false, s
		}
		after := s.state.Clone()
		want := after.Decide(a.op, got.At).Decision
		return got == want, sequential{after, s.carried + 1}
	},
	Equal: func(a, b any) bool { return a.(sequential).state.String() == b.(sequential).state.String() },
}

// checkOrder looks for an order of what the server decided, of each key.
func (h account) checkOrder(t *testing.T) {
	t.Helper()
	for _, part := range h.byKey() {
		part = slices.DeleteFunc(part, (*asked).remembered)
		at := make([]stint.Instant, len(part))
		for i, a := range part {
			at[i] = a.decision.At
		}
		slices.Sort(at)
		var operations []porcupine.Operation
		for _, a := range part {
			a.earlier, _ = slices.BinarySearch(at, a.decision.At)
			operations = append(operations, porcupine.Operation{
				ClientId: a.store, Input: a, Output: a.decision, Call: a.called, Return: a.answered,
			})
		}
		if result, info := porcupine.CheckOperationsVerbose(model, operations, 0); result != porcupine.Ok {
			explain(t, operations, info.PartialLinearizationsOperations()[0])
		}
	}
}

// explain prints where the longest valid order of a key ends, if no order of all operations is valid.
func explain(t *testing.T, operations []porcupine.Operation, orders [][]porcupine.Operation) {
	t.Helper()
	longest := slices.MaxFunc(orders, func(a, b []porcupine.Operation) int { return cmp.Compare(len(a), len(b)) })
	state, done := model.Init().(sequential), map[*asked]bool{}
	for _, o := range longest {
		_, after := model.Step(state, o.Input, o.Output)
		state, done[o.Input.(*asked)] = after.(sequential), true
	}
	for _, o := range operations {
		a := o.Input.(*asked)
		if !done[a] && a.earlier <= len(longest) {
			want := state.state.Clone().Decide(a.op, a.decision.At).Decision
			t.Errorf("after %d operations in order, the state is %s\nand none of what comes next has the right answer:\n%s\nwhere the model has\n%+v",
				len(longest), state.state, a, want)
		}
	}
}

// checkRemembered checks what the denial cache answered: a request that cost no less
// was denied to the same store, it was sent before, its RetryAfter has not passed and
// counts down, and the store has not undone it itself since. So no order is needed:
// nothing but what is announced ends a denial before its time.
func (h account) checkRemembered(t *testing.T) {
	t.Helper()
	for _, part := range h.byKey() {
		for _, a := range part {
			if a.remembered() && !slices.ContainsFunc(part, a.restsOn(part)) {
				t.Errorf("%s\nrests on no denial", a)
			}
		}
	}
}

// restsOn reports whether an answer from the cache may be made of a denial.
func (a *asked) restsOn(part account) func(*asked) bool {
	return func(from *asked) bool {
		return a.takes() && from.takes() && !a.decision.Allowed && !from.decision.Allowed && !from.remembered() &&
			from.store == a.store && from.op.Permits <= a.op.Permits && from.called < a.answered &&
			from.decision.At <= a.decision.At && a.decision.At < a.until() && from.until() == a.until() &&
			from.decision.Remaining == a.decision.Remaining && from.decision.Limit == a.decision.Limit &&
			!slices.ContainsFunc(part, func(b *asked) bool {
				return b.undoes() && b.store == a.store && b.answered < a.called && b.called > from.answered
			})
	}
}
