package memstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// held is a store with a clock of the test's, and one policy.
type held struct {
	t      *testing.T
	now    stint.Instant
	store  *memstore.Store
	policy *stint.Policy
}

func newHeld(t *testing.T, config memstore.Config, limits ...stint.Limit) *held {
	t.Helper()
	h := &held{t: t, now: 1_800_000_000_000_000}
	config.Now = func() time.Time { return h.now.Time() }
	h.store = memstore.New(config)
	h.policy = h.policyOf(limits...)
	return h
}

func (h *held) policyOf(limits ...stint.Limit) *stint.Policy {
	h.t.Helper()
	policy := must.Get(stint.NewPolicy("p", limits...))(h.t)
	return policy
}

// do carries out an operation by a policy.
func (h *held) do(verb stint.Verb, policy *stint.Policy, n int64, hold *stint.HoldOp) (stint.Decision, error) {
	return h.store.Decide(h.t.Context(), stint.Op{Verb: verb, Claim: stint.Claim{Key: "k", Policy: policy, Permits: n}, Extra: &stint.Extra{Hold: hold}})
}

func (h *held) reserve(id string, n int64, ttl time.Duration) (stint.Decision, stint.HoldOp) {
	h.t.Helper()
	hold := stint.HoldOp{Hold: stint.Hold{ID: id, TTL: ttl}}
	d := must.Get(h.do(stint.VerbReserve, h.policy, n, &hold))(h.t)
	return d, hold
}

func (h *held) commit(policy *stint.Policy, id string, n int64) stint.HoldOp {
	h.t.Helper()
	hold := stint.HoldOp{Hold: stint.Hold{ID: id}}
	must.Get(h.do(stint.VerbCommit, policy, n, &hold))(h.t)
	return hold
}

func (h *held) wantLeft(policy *stint.Policy, want int64) {
	h.t.Helper()
	if d, err := h.do(stint.VerbPeek, policy, 1, nil); err != nil || d.Remaining != want {
		h.t.Fatalf("%d left, want %d; %v", d.Remaining, want, err)
	}
}

// Expiries may be further apart than an int says on a machine of 32 bits.
func TestHoldsAreListedByExpiry(t *testing.T) {
	h := newHeld(t, memstore.Config{}, stint.Concurrency(9))
	h.reserve("long", 1, time.Hour)
	h.reserve("short", 1, time.Second)
	list := must.Get(liveHolds(t, h.store, "k", h.policy))(t)
	if len(list) != 2 || list[0].ID != "short" || list[1].ID != "long" {
		t.Errorf("%+v", list)
	}
}

func TestAClientHasSoManyHolds(t *testing.T) {
	h := newHeld(t, memstore.Config{MaxHolds: 3}, stint.FixedWindow(100, 24*time.Hour))
	for i := range 3 {
		if d, _ := h.reserve(fmt.Sprint(i), 1, time.Duration(10+i)*time.Second); !d.Allowed {
			t.Fatal(d)
		}
	}
	if d, hold := h.reserve("3", 1, time.Second); d.Allowed || !hold.Full || d.RetryAfter != 10*time.Second {
		t.Fatalf("%v, %+v", d, hold)
	}
	if d, hold := h.reserve("0", 2, time.Minute); !d.Allowed || hold.Full {
		t.Fatalf("a hold that is there does not grow: %v, %+v", d, hold)
	}
	h.now = h.now.Add(11 * time.Second)
	if d, _ := h.reserve("3", 1, time.Second); !d.Allowed {
		t.Fatal("an expired hold takes a place")
	}
	list, err := liveHolds(t, h.store, "k", h.policy)
	if err != nil || len(list) != 3 || list[0].ID != "2" || list[1].ID != "3" || list[2].ID != "0" || list[2].Permits[0] != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
}

// What holds took of memory comes back, and so does what was remembered of them.
func TestHoldsLeaveNoMemory(t *testing.T) {
	t.Run("short", func(t *testing.T) { testHoldsLeaveNoMemory(t, 0) })
	// Of a queue some have their turn in days: these are remembered, and the others are not meanwhile.
	t.Run("beside long ones", func(t *testing.T) { testHoldsLeaveNoMemory(t, 300) })
}

func testHoldsLeaveNoMemory(t *testing.T, long int) {
	h := newHeld(t, memstore.Config{}, stint.Concurrency(5), stint.TokenBucket(1000, stint.PerSecond(1)))
	before := h.store.Stats().Bytes
	queue := must.Get(stint.NewPolicy("queue", stint.LeakyBucket(1000, stint.PerHour(1)).WithCost(1)))(t)
	hold := func(i int) *stint.HoldOp { return &stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprint("long", i)}} }
	for i := range long {
		must.Get(h.do(stint.VerbReserve, queue, 1, hold(i)))(t)
		must.Get(h.do(stint.VerbCommit, queue, 1, hold(i)))(t)
	}
	defer func() {
		for i := 2; i < long; i++ { // the turn of two has come
			again := hold(i)
			if must.Get(h.do(stint.VerbCommit, queue, 1, again))(t); !again.Replayed {
				t.Fatalf("the end of hold %d of %d is forgotten", i, long)
			}
		}
	}()
	round := func() {
		for i := range 2000 {
			h.reserve(fmt.Sprintf("%d-%d", h.now, i), 1, time.Second)
			if i%2 == 0 {
				h.commit(h.policy, fmt.Sprintf("%d-%d", h.now, i), 1)
			}
			h.now = h.now.Add(500 * time.Millisecond)
		}
	}
	round()
	after := h.store.Stats().Bytes
	for range 3 {
		round()
	}
	if now := h.store.Stats().Bytes; now > 2*after || after < before { // of which the moment is by chance
		t.Errorf("%d bytes, then %d, then %d", before, after, now)
	}
}

func BenchmarkReserveAndCommit(b *testing.B) {
	for _, limits := range [][]stint.Limit{
		{stint.TokenBucket(1_000_000, stint.PerSecond(1_000_000))},
		{stint.Concurrency(1000)},
		{stint.Concurrency(1000).WithCost(1), stint.FixedWindow(1_000_000_000, time.Minute).WithCost(1), stint.SlidingWindowCounter(1_000_000_000, 24*time.Hour)},
	} {
		policy, err := stint.NewPolicy("p", limits...)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("limits=%d/first=%v", len(limits), limits[0].Algorithm), func(b *testing.B) {
			store := memstore.New(memstore.Config{})
			keys := make([]string, 1024)
			for i := range keys {
				keys[i] = fmt.Sprint("user:", i)
			}
			for i := 0; b.Loop(); i++ {
				hold := stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprint(i)}}
				op := stint.Op{Verb: stint.VerbReserve, Claim: stint.Claim{Key: keys[i%1024], Policy: policy, Permits: 3}, Extra: &stint.Extra{Hold: &hold}}
				if d, err := store.Decide(b.Context(), op); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
				op.Verb, op.Permits = stint.VerbCommit, 2
				if _, err := store.Decide(b.Context(), op); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// liveHolds lists what is held of a key.
func liveHolds(t *testing.T, store stint.Store, key string, policy *stint.Policy) (live []stint.Hold, err error) {
	t.Helper()
	_, err = store.Decide(t.Context(), stint.Op{Verb: stint.VerbList, Claim: stint.Claim{Key: key, Policy: policy}, Extra: &stint.Extra{Live: &live}})
	return live, err
}

// Live holds of many clients take half of the memory at most, so that the limits of others hold. When they have ended, or
// expired, there is room again.
func TestHoldsLeaveHalfOfTheMemory(t *testing.T) {
	h := newHeld(t, memstore.Config{MaxBytes: 4 << 20}, stint.FixedWindow(5, 24*time.Hour))
	places, id := stint.Concurrency(5), 0
	reserve := func() (bool, stint.HoldOp) {
		id++
		hold := stint.HoldOp{Hold: stint.Hold{ID: fmt.Sprintf("%0128d", id), TTL: time.Hour}}
		d, err := h.store.Decide(t.Context(), stint.Op{
			Verb: stint.VerbReserve, Claim: stint.Claim{Key: fmt.Sprint(id), Policy: h.policyOf(places), Permits: 1}, Extra: &stint.Extra{Hold: &hold},
		})
		if err != nil || d.Allowed == hold.Full || hold.Full && d.RetryAfter != time.Second {
			t.Fatal(d, hold, err)
		}
		return d.Allowed, hold
	}
	fill := func() (live int) {
		for range 20_000 {
			if ok, _ := reserve(); ok {
				live++
			}
		}
		if stats := h.store.Stats(); live < 1000 || live == 20_000 || stats.Bytes > stats.MaxBytes {
			t.Fatalf("%d holds, %+v", live, stats)
		}
		return live
	}
	live := fill()
	for range 10 {
		must.Get(h.do(stint.VerbTake, h.policy, 1, nil))(t)
	}
	h.wantLeft(h.policy, 0)
	h.now = h.now.Add(time.Hour)
	if again := fill(); again < live*9/10 {
		t.Errorf("%d holds after others expired, %d before", again, live)
	}
}

// Whoever reserves without end by one policy leaves room to reserve by others, and the store counts what it refuses. The
// ends of others are remembered meanwhile. A hold by two policies counts for the one that has less.
func TestHoldsOfOnePolicyLeaveRoomForOthers(t *testing.T) {
	h := newHeld(t, memstore.Config{MaxBytes: 4 << 20}, stint.FixedWindow(5, 24*time.Hour))
	policy := func(name string) *stint.Policy {
		return must.Get(stint.NewPolicy(name, stint.Concurrency(5)))(t)
	}
	hog, other, third, id := policy("hog"), policy("other"), policy("third"), 0
	decide := func(verb stint.Verb, name string, by ...*stint.Policy) (bool, stint.HoldOp) {
		hold := stint.HoldOp{Hold: stint.Hold{ID: name, TTL: time.Hour}}
		op := stint.Op{Verb: verb, Claim: stint.Claim{Key: name, Policy: by[0], Permits: 1}, Extra: &stint.Extra{Hold: &hold}}
		for _, p := range by[1:] {
			op.And = append(op.And, stint.Claim{Key: name, Policy: p, Permits: 1})
		}
		d, err := h.store.Decide(t.Context(), op)
		if err != nil || d.Allowed == hold.Full {
			t.Fatal(d, hold, err)
		}
		return d.Allowed, hold
	}
	reserve := func(n int, by ...*stint.Policy) (admitted int) {
		for range n {
			id++
			if ok, _ := decide(stint.VerbReserve, fmt.Sprintf("%0128d", id), by...); ok {
				admitted++
			}
		}
		return admitted
	}
	decide(stint.VerbReserve, "ended", other)
	decide(stint.VerbCommit, "ended", other)

	const many = 20_000
	alone := reserve(many, hog)
	if refused := h.store.Stats().HoldsRefused; alone < 1000 || refused != int64(many-alone) {
		t.Errorf("%d of %d holds of one policy, %d counted as refused", alone, many, refused)
	}
	if n := reserve(alone/10, other); n != alone/10 {
		t.Errorf("%d of %d holds by another policy", n, alone/10)
	}
	if n := reserve(alone/10, hog, third); n != alone/10 {
		t.Errorf("%d of %d holds by a third policy, and by the first one", n, alone/10)
	}
	if ok, hold := decide(stint.VerbCommit, "ended", other); !ok || !hold.Replayed {
		t.Errorf("the end by another policy is forgotten: %+v", hold)
	}
	if stats := h.store.Stats(); stats.Bytes > stats.MaxBytes {
		t.Errorf("%+v", stats)
	}

	// When they have expired there is room again, as soon as each part of the ids has been looked at.
	h.now = h.now.Add(2 * time.Hour)
	if n := reserve(alone/2, hog); n < alone/2-64 {
		t.Errorf("%d of %d holds after the others have expired", n, alone/2)
	}
}
