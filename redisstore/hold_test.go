package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// Holds of policies of one to four limits of all six kinds, whose parameters change, among takes, settlements and resets,
// one by one and in batches: every encoding of the log answers as the memory store does, which is held to a model.
func TestStoresAgreeAboutHolds(t *testing.T) {
	for seed := range uint64(24) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			compareHolds(t, seed, 400)
		})
	}
}

func compareHolds(t *testing.T, seed uint64, operations int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	clock := storetest.NewClock(dawn)
	memory := memstore.New(memstore.Config{Now: clock.Now, MaxHolds: 5})
	stores := map[redisstore.LogEncoding]*redisstore.Store{}
	conn := newConn(t)
	for _, encoding := range encodings {
		stores[encoding], _ = storeOn(t, conn, redisstore.Options{LogEncoding: encoding, Now: clock.Now, MaxHolds: 5})
	}
	policies := holdPolicies(t, rng)
	expires := map[string]stint.Instant{}
	next, latest := 1, clock.Instant()
	for step := 0; step < operations; {
		if rng.IntN(3) > 0 {
			clock.Advance(time.Duration(1+rng.Int64N([]int64{1, 100_000, 2_000_000, 20_000_000}[rng.IntN(4)])) * time.Microsecond)
		}
		if latest = max(latest, clock.Instant()); rng.IntN(16) == 0 { // set back, by less than the margin for which states are kept
			back := 1 + rng.Int64N([]int64{1, 100_000, 900_000}[rng.IntN(3)])
			clock.Set(max(clock.Instant()-stint.Instant(back), latest-900_000))
		}
		ops := make([]stint.Op, 1)
		if rng.IntN(4) == 0 {
			ops = make([]stint.Op, 1+rng.IntN(6))
		}
		for i := range ops {
			if rng.IntN(4) == 0 {
				next++
			}
			ops[i] = holdOp(rng, policies[rng.IntN(len(policies))], next, expires)
		}
		step += len(ops)
		what := fmt.Sprintf("seed %d, step %d at %d: %s", seed, step, clock.Instant(), describeOps(ops))
		want := carryOutHolds(t, memory, ops)
		listed, err := liveHolds(t, memory, "k", ops[0].Policy)
		if err != nil {
			t.Fatal(err)
		}
		for name, store := range stores {
			got := carryOutHolds(t, store, ops)
			for i := range ops {
				if fault := got[i].differs(&want[i]); fault != "" {
					t.Fatalf("%s\n%s, operation %d: %s\n%+v %v\nwant\n%+v %v", what, name, i, fault, got[i], got[i].result.Err, want[i], want[i].result.Err)
				}
			}
			if list, err := liveHolds(t, store, "k", ops[0].Policy); err != nil || !reflect.DeepEqual(list, listed) {
				t.Fatalf("%s\n%s lists %+v, want %+v, %v", what, name, list, listed, err)
			}
		}
		for i := range ops {
			if ops[i].Verb == stint.VerbReserve && want[i].result.Decision.Allowed {
				expires[ops[i].Hold().ID] = want[i].told.ExpiresAt
			}
		}
	}
}

// told is all that a store says of an operation.
type told struct {
	result stint.Result
	each   []stint.Outcome
	told   stint.HoldOp
}

func (a *told) differs(b *told) string {
	var mine, other *stint.ResolvedError
	switch {
	case (a.result.Err == nil) != (b.result.Err == nil):
		return "the error"
	case errors.As(a.result.Err, &mine) && errors.As(b.result.Err, &other):
		if *mine != *other {
			return "how the hold ended"
		}
		return ""
	case a.result.Err != nil:
		if a.result.Err.Error() != b.result.Err.Error() {
			return "what the error says"
		}
		return ""
	case a.result.Decision != b.result.Decision:
		return "the decision"
	case !slices.Equal(a.each, b.each):
		return "the outcomes"
	case !reflect.DeepEqual(a.told, b.told):
		return "the hold"
	}
	return ""
}

func carryOutHolds(t *testing.T, store stint.Store, ops []stint.Op) []told {
	list := make([]told, len(ops))
	carried := slices.Clone(ops)
	for i := range carried {
		list[i].each = make([]stint.Outcome, ops[i].Limits())
		carried[i].Each = list[i].each
		if ops[i].Hold() != nil {
			list[i].told = *ops[i].Hold()
			carried[i].Extra = &stint.Extra{Hold: &list[i].told}
		}
	}
	results := make([]stint.Result, len(ops))
	store.DecideAll(t.Context(), carried, results)
	for i := range list {
		list[i].result = results[i]
		if ops[i].Hold() != nil && (ops[i].Verb != stint.VerbReserve || !results[i].Decision.Allowed) {
			list[i].told.ExpiresAt = 0 // which only an admitted Reserve sets
		}
	}
	return list
}

func describeOps(ops []stint.Op) (text string) {
	for _, op := range ops {
		text += fmt.Sprintf("%v %d of %q by %v", op.Verb, op.Permits, op.Key, op.Policy)
		if op.Hold() != nil {
			text += fmt.Sprintf(" as %+v until %d", op.Hold().Hold, op.Hold().ExpiresAt)
		}
		text += "\n"
	}
	return text
}

// holdPolicies are a policy with limits of random kinds, and the same one with other parameters.
func holdPolicies(t *testing.T, rng *rand.Rand) []*stint.Policy {
	kinds := make([]int, 1+rng.IntN(4))
	for i := range kinds {
		kinds[i] = rng.IntN(7)
	}
	list := make([]*stint.Policy, 1+rng.IntN(3))
	for i := range list {
		limits := make([]stint.Limit, len(kinds))
		for j, kind := range kinds {
			limits[j] = holdLimit(rng, kind).Named(fmt.Sprint("l", j))
		}
		list[i] = policyOf(t, "p", limits...)
	}
	return list
}

func holdLimit(rng *rand.Rand, kind int) (l stint.Limit) {
	capacity := 3 + rng.Int64N(12)
	window := time.Duration(500+rng.IntN(9000)) * time.Millisecond
	switch kind {
	case 0:
		l = stint.TokenBucket(capacity, stint.Per(1+rng.Int64N(7), window))
	case 1:
		l = stint.LeakyBucket(capacity, stint.Per(1+rng.Int64N(7), window)).WithCost(1 + rng.Int64N(3))
	case 2:
		l = stint.FixedWindow(capacity, window)
	case 3:
		l = stint.SlidingWindowCounter(capacity, window)
	case 4:
		l = stint.SlidingWindowLog(capacity, window)
		if rng.IntN(3) == 0 {
			l.MinInterval = time.Duration(rng.IntN(400)) * time.Millisecond
		}
	case 5:
		return stint.Concurrency(capacity)
	default:
		l = stint.FixedWindow(capacity, 0)
		l.Calendar = stint.CalendarHour
	}
	if rng.IntN(3) == 0 {
		l.MaxDebt = rng.Int64N(6)
	}
	if rng.IntN(4) == 0 && l.Cost == 0 {
		l = l.WithCost(1 + rng.Int64N(2))
	}
	return l
}

func holdOp(rng *rand.Rand, policy *stint.Policy, next int, expires map[string]stint.Instant) stint.Op {
	n := 1 + rng.Int64N(4)
	key := "k"
	if rng.IntN(8) == 0 {
		key = "other"
	}
	op := stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}}
	h := &stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprintf("hold-%d", max(1, next-rng.IntN(6)))}}
	switch kind := rng.IntN(25); {
	case kind == 24:
		op.Verb, op.Extra = stint.VerbDrop, &stint.Extra{Hold: h}
	case kind == 0:
		op.Verb = stint.VerbReset
	case kind < 4:
		op.Verb = stint.VerbTake
		if policy.NeedsReserve() {
			op.Verb = stint.VerbPeek
		}
	case kind == 4:
		op.Verb, op.Permits = stint.VerbSettle, rng.Int64N(7)-3
		for i := range policy.Len() {
			if policy.Limit(i).Algorithm == stint.AlgorithmLeakyBucket {
				op.Permits = max(0, op.Permits)
			}
		}
	case kind == 5:
		op.Verb = stint.VerbPeek
	case kind < 15:
		h.TTL, h.OnExpiry = time.Second+time.Duration(rng.IntN(9_000_000))*time.Microsecond, rng.IntN(4) == 0
		op.Verb, op.Extra = stint.VerbReserve, &stint.Extra{Hold: h}
	default:
		op.Verb, op.Extra, op.Permits = stint.VerbCommit, &stint.Extra{Hold: h}, rng.Int64N(6)
		if kind > 20 {
			op.Verb, op.Permits = stint.VerbCancel, 0
		}
		if rng.IntN(3) > 0 {
			h.ExpiresAt = expires[h.ID]
		}
	}
	return op
}

// liveHolds lists what is held of a key.
func liveHolds(t *testing.T, store stint.Store, key string, policy *stint.Policy) (live []stint.Hold, err error) {
	t.Helper()
	_, err = store.Decide(t.Context(), stint.Op{Verb: stint.VerbList, Claim: stint.Claim{Key: key, Policy: policy}, Extra: &stint.Extra{Live: &live}})
	return live, err
}

// An earlier version wrote the id alone at the end of a hold's record: such a hold is renewed and ended by the same claims in
// the same order.
func TestHoldOfAnEarlierVersion(t *testing.T) {
	store, prefix := storeOn(t, newConn(t), redisstore.Options{Partitions: 1})
	policy := policyOf(t, "p", stint.FixedWindow(10, time.Hour).Named("b"), stint.FixedWindow(10, time.Hour).Named("a"))
	for _, renewed := range []bool{false, true} {
		id := fmt.Sprint("hold ", renewed)
		do := func(verb stint.Verb, n int64) (stint.HoldOp, stint.Decision) {
			o := op(verb, id, policy, n)
			o.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: id}}}
			d := decide(t, store, o)
			return *o.Hold(), d
		}
		do(stint.VerbReserve, 5)
		for at, pairs := 0, redis(t, "HGETALL", prefix+":holds:cur").([]any); at < len(pairs); at += 2 {
			bucket := pairs[at+1].(string)
			before, behind, found := strings.Cut(bucket, id)
			if !found {
				continue
			}
			// The bytes of what is live (4), the record's length (2), a byte of 0, an epoch (7) and a tag of each limit (5).
			record := []byte(before + id + behind[1+7+2*5:])
			record[3] -= 1 + 7 + 2*5
			record[5] -= 1 + 7 + 2*5
			redis(t, "HSET", prefix+":holds:cur", pairs[at], string(record))
		}
		if listed, err := liveHolds(t, store, id, policy); err != nil || len(listed) != 1 || listed[0].ID != id {
			t.Errorf("%+v are listed, %v", listed, err)
		}
		if renewed {
			if told, d := do(stint.VerbReserve, 7); !told.Replayed || d.Remaining != 3 {
				t.Errorf("reserved again: %+v, %+v", told, d)
			}
		}
		if told, d := do(stint.VerbCommit, 2); told.Late || told.Reset || d.Remaining != 8 {
			t.Errorf("committed: %+v, %+v", told, d)
		}
	}
}

// evaluated counts the scripts of batches that a connection runs.
type evaluated struct {
	redisconn.Conn
	scripts atomic.Int64
}

func (c *evaluated) Eval(ctx context.Context, script *redisconn.Script, keys, args []string) (string, error) {
	if !ofLayout(script) {
		c.scripts.Add(1)
	}
	return c.Conn.Eval(ctx, script, keys, args)
}

// A reserve and its end in time are one script each, whatever the limit: the usual script leaves none of them.
func TestUsualHoldsAreOneScript(t *testing.T) {
	for name, limit := range map[string]stint.Limit{
		"bucket": stint.TokenBucket(100, stint.PerSecond(1)), "window": stint.FixedWindow(100, time.Hour),
		"counter": stint.SlidingWindowCounter(100, time.Hour), "places": stint.Concurrency(100),
	} {
		t.Run(name, func(t *testing.T) {
			conn := &evaluated{Conn: newConn(t)}
			store, _ := storeOn(t, conn, redisstore.Options{})
			policy := policyOf(t, "p", limit)
			for i, verb := range []stint.Verb{stint.VerbCommit, stint.VerbCancel} {
				h := stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprint(i)}}
				o := op(stint.VerbReserve, "k", policy, 5)
				o.Extra = &stint.Extra{Hold: &h}
				decide(t, store, o)
				o.Verb, o.Permits = verb, 3
				decide(t, store, o)
			}
			if got := conn.scripts.Load(); got != 4 {
				t.Errorf("%d scripts, want 4", got)
			}
		})
	}
}
