package memstore_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/memstore"
)

// Policies of one to four limits of all kinds, under random takes, reserves, commits and cancels, some of them twice, late
// or too late, against the naive model.
func TestHoldsAgainstTheModel(t *testing.T) {
	operations := 60_000
	if testing.Short() {
		operations = 6000
	}
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			compareHolds(t, seed, operations/60)
		})
	}
}

func compareHolds(t *testing.T, seed uint64, operations int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	limits := randomLimits(rng)
	policy, err := stint.NewPolicy("p", limits...)
	if err != nil {
		t.Fatal(err)
	}
	concurrent := false
	for _, l := range limits {
		concurrent = concurrent || l.Algorithm == stint.AlgorithmConcurrency
	}
	now := int64(1_700_000_000_000_000)
	store := memstore.New(memstore.Config{Now: func() time.Time { return time.UnixMicro(now) }, MaxHolds: bounds.MaxHolds})
	model := newHoldModel(limits)
	model.reset(now)
	each := make([]stint.Outcome, len(limits))
	next := 0
	for step := range operations {
		if rng.IntN(3) > 0 {
			now += rng.Int64N([]int64{1, 100_000, 2_000_000, 9_000_000}[rng.IntN(4)] + 1)
		}
		n := 1 + rng.Int64N(4)
		if next == 0 || rng.IntN(4) == 0 {
			next++
		}
		id := fmt.Sprintf("h%d", max(1, next-rng.IntN(6)))
		h := stint.HoldOp{Hold: stint.Hold{ID: id}}
		claim := stint.Claim{Key: "k", Policy: policy, Permits: n}
		op := stint.Op{Verb: stint.VerbTake, Claim: claim, Each: each}
		want := true
		var told stint.HoldOp
		var wantErr error
		kind := rng.IntN(10)
		switch {
		case rng.IntN(60) == 0:
			op.Verb = stint.VerbReset
			model.reset(now)
		case kind < 2:
			if concurrent {
				op.Verb = stint.VerbPeek
			}
			want = model.take(now, n, op.Verb == stint.VerbTake)
		case kind < 6:
			h.TTL, h.OnExpiry = time.Second+time.Duration(rng.IntN(9))*time.Second, rng.IntN(4) == 0
			op.Verb, op.Extra = stint.VerbReserve, &stint.Extra{Hold: &h}
			resolved := false
			want, told, resolved = model.reserve(now, id, n, h.TTL.Microseconds(), bool(h.OnExpiry))
			if resolved {
				wantErr = stint.ErrResolved
			}
		default:
			n = rng.Int64N(6)
			op.Verb, op.Permits, op.Extra = stint.VerbCommit, n, &stint.Extra{Hold: &h}
			if kind == 9 {
				op.Verb = stint.VerbCancel
			}
			told, wantErr = model.finish(now, id, n, kind == 9)
		}
		what := fmt.Sprintf("seed %d, step %d: %v %s n %d at %d, %+v", seed, step, op.Verb, id, n, now, limits)
		d, err := store.Decide(t.Context(), op)
		if !errors.Is(err, wantErr) || err != nil && wantErr == nil {
			t.Fatalf("%s: error %v, want %v", what, err, wantErr)
		}
		if err != nil {
			continue
		}
		if d.Allowed != want {
			t.Fatalf("%s: %v, want %v", what, d, want)
		}
		if op.Hold() != nil && (h.Replayed != told.Replayed || h.Lost != told.Lost || h.Late != told.Late || h.Reset != told.Reset) {
			t.Fatalf("%s: %+v, want %+v", what, h, told)
		}
		if op.Verb > stint.VerbReserve && d.Applied != model.holds[id].applied {
			t.Fatalf("%s: %d applied, want %d", what, d.Applied, model.holds[id].applied)
		}
		if op.Verb == stint.VerbReserve && want && h.ExpiresAt != told.ExpiresAt {
			t.Fatalf("%s: expires at %d, want %d", what, h.ExpiresAt, told.ExpiresAt)
		}
		if op.Verb != stint.VerbReset {
			for i := range limits {
				if left := model.left(i, now); each[i].Remaining != left {
					t.Fatalf("%s: limit %d has %d left, want %d", what, i, each[i].Remaining, left)
				}
			}
		}
		if !d.Allowed && (op.Verb != stint.VerbReserve || !told.Lost && !told.Replayed) {
			compareWait(t, what, model, now, n, d.RetryAfter)
		}
	}
}

// A wait is over when it says, and not a microsecond before.
func compareWait(t *testing.T, what string, model *holdModel, now, n int64, wait time.Duration) {
	t.Helper()
	if wait == stint.Never {
		for _, l := range model.limits {
			if l.Takes(n) > l.Capacity {
				return
			}
		}
		t.Fatalf("%s: never", what)
	}
	if later := model.clone(); !later.take(now+wait.Microseconds(), n, false) {
		t.Fatalf("%s: denied after %v", what, wait)
	}
	if sooner := model.clone(); sooner.take(now+wait.Microseconds()-1, n, false) {
		t.Fatalf("%s: admitted before %v", what, wait)
	}
}

func randomLimits(rng *rand.Rand) []stint.Limit {
	limits := make([]stint.Limit, 1+rng.IntN(4))
	for i := range limits {
		capacity := 3 + rng.Int64N(12)
		window := time.Duration(500+rng.IntN(9000)) * time.Millisecond
		switch rng.IntN(6) {
		case 0:
			limits[i] = stint.TokenBucket(capacity, stint.Per(1+rng.Int64N(5), window))
		case 1:
			limits[i] = stint.LeakyBucket(capacity, stint.Per(1+rng.Int64N(5), window)).WithCost(1 + rng.Int64N(2))
			limits[i].Algorithm = stint.AlgorithmFixedWindow // a leaky bucket delays: see TestReserveOfALeakyBucket
			limits[i].Rate, limits[i].Window = stint.Rate{}, window
		case 2:
			limits[i] = stint.FixedWindow(capacity, window)
		case 3:
			limits[i] = stint.SlidingWindowLog(capacity, window)
		case 4:
			limits[i] = stint.SlidingWindowCounter(capacity, window)
		default:
			limits[i] = stint.Concurrency(capacity)
		}
		limits[i] = limits[i].Named(fmt.Sprint(i))
	}
	return limits
}
