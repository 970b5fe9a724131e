package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
)

// testLargeBatch: the operations of a batch are decided one after another, in the order in which they
// came; one that does not fit is denied and does not block later ones. It has more than a random sequence.
func testLargeBatch(t *testing.T, newStore newStoreFunc) {
	b, shared := newFixture(t, newStore), policyOf(t, "", simpleLimit(stint.AlgorithmFixedWindow, 300))
	own := policyOf(t, "own", simpleLimit(stint.AlgorithmTokenBucket, 2), simpleLimit(stint.AlgorithmSlidingWindowLog, 3))
	b.store.DecideAll(b.ctx, nil, nil)
	ops := make([]stint.Op, 1000)
	for i := range ops {
		ops[i] = operation(stint.VerbTake, "k", shared, 1)
		if i%2 == 1 {
			ops[i] = operation(stint.VerbTake, fmt.Sprint("client", i), own, 1)
			ops[i].Each = make([]stint.Outcome, 2)
		}
	}
	for i, d := range b.all(ops) {
		allowed, left, each := i < 600, int64(max(0, 299-i/2)), ops[i].Each
		if i%2 == 1 {
			allowed, left = each[0].Remaining == 1 && each[1].Remaining == 2, 1
		}
		if d.Allowed != allowed || d.Remaining != left {
			t.Fatalf("operation %d of %d: %+v, %+v, expected %d left", i, len(ops), d, each, left)
		}
	}
}

// testIdentity: a state belongs to its policy's name, limit's name, algorithm and key, and
// distinct parts never collide. A store that can reset a policy resets all clients of it, and of
// no other.
func testIdentity(t testing.TB, newStore newStoreFunc) {
	b := newFixture(t, newStore)
	var takes []stint.Op
	for _, policyName := range policyNames {
		for _, limitName := range append([]string{"}", "0", strings.Repeat("n", bounds.MaxNameBytes)}, limitNames[:]...) {
			for _, algorithm := range notation.Algorithms() {
				policy := policyOf(t, policyName, simpleLimit(algorithm, 1).Named(limitName))
				for _, key := range append([]string{":x", "x", strings.Repeat("\xff", bounds.MaxKeyBytes)}, suffixes[:]...) {
					if key != "" {
						takes = append(takes, operation(stint.VerbTake, key, policy, 1))
					}
				}
			}
		}
	}
	for i, phase := range []struct {
		reset  *stint.Scope
		renews bool // all policies
	}{
		{nil, true},
		{nil, false},
		{&stint.Scope{Policy: "rule/*"}, false},
		{&stint.Scope{Policy: "rule/a"}, false},
		{&stint.Scope{All: true}, true},
		{&stint.Scope{Policy: ""}, false},
	} {
		if phase.reset != nil && resetsAll(b.store) {
			b.reset(*phase.reset)
		} else if phase.reset != nil {
			break
		}
		for from := 0; from < len(takes); from += 100 {
			ops := takes[from:min(from+100, len(takes))]
			for j, d := range b.all(ops) {
				want := phase.renews || phase.reset != nil && phase.reset.Policy == ops[j].Policy.Name()
				if d.Allowed != want {
					t.Fatalf(
						"phase %d, after a reset of %v: %s: allowed %t, expected %t",
						i, phase.reset, oracle.Describe(ops[j]), d.Allowed, want,
					)
				}
			}
		}
	}
}

// invalid are operations at fault, as in scenarios. There is no policy none.
const invalid = `
take 1 "" window
take 1 k none
take 0 k window
try -1 k window
peek 0 k window
settle -1 k leaky
reset 0 "" window
take 1 k window and 1 "" window
take 1 k window and 0 l window
take 1 k window and 1 k window
take 1 k window keep -1
take either nothing
take either nothing else 1 k window
take either 1 k window else nothing else 1 l window
take either 1 k window else nothing else nothing
take either 0 k window
take either 1 k none
settle either 1 k window else 1 l window
take either 1 k window else 1 k leaky
take either 1 k window else 1 k counting
take either 1 k window else 1 k leased
take either 1 k window with 1 k window
take either 1 k window either 1 k window
take 1 k window either 1 k window else 1 l window
take either 1 k window else 1 k larger
list 0 k window and 0 l window
drop 0 k window`

// testInvalid: an operation at fault is refused with an error that wraps ErrInvalid,
// "nothing was consumed" (stint.Store), and its neighbours in a batch are decided.
func testInvalid(t *testing.T, newStore newStoreFunc) {
	window, leaky := policyOf(t, "", simpleLimit(stint.AlgorithmFixedWindow, 5)),
		policyOf(t, "", simpleLimit(stint.AlgorithmLeakyBucket, 5))
	p := &play{TB: t, policies: map[string]*stint.Policy{
		"window": window, "leaky": leaky,
		"larger":   policyOf(t, "", simpleLimit(stint.AlgorithmFixedWindow, 6).Named("5")),
		"counting": policyOf(t, "", stint.SlidingWindowLog(5, time.Hour).CountingDenied()),
		"leased":   policyOf(t, "", simpleLimit(stint.AlgorithmTokenBucket, 5).WithLease(1)),
	}}
	expiring := func(at stint.Instant) stint.Op {
		op := p.operation("commit h: 1 k window")
		op.Hold().ExpiresAt = at
		return op
	}
	one, other := operation(stint.VerbTake, "k", window, 1), operation(stint.VerbTake, "l", window, 1)
	short, headless := one, p.operation("take either 1 k window")
	short.Each, headless.And = make([]stint.Outcome, 0), []stint.Claim{other.Claim}
	ops := map[string]stint.Op{
		"unknown verb":          operation(stint.VerbList+1, "k", window, 1),
		"long key":              operation(stint.VerbTake, strings.Repeat("k", bounds.MaxKeyBytes+1), window, 1),
		"too short for Each":    short,
		"keep too much":         p.operation(fmt.Sprint("peek 1 k window keep ", bounds.MaxPermits+1)),
		"nothing":               {Extra: new(stint.Extra)},
		"no way":                {Extra: &stint.Extra{Groups: [][]stint.Way{{}}}},
		"too many ways":         p.operation("take either 1 k window" + strings.Repeat(" else 1 k window", bounds.MaxWays)),
		"and without a claim":   headless,
		"list into nothing":     {Verb: stint.VerbList, Claim: one.Claim},
		"expired before 1970":   expiring(-1),
		"expires too late":      expiring(1<<53 + 1),
		"expires at the latest": expiring(1<<63 - 1),
	}
	for line := range strings.SplitSeq(strings.TrimSpace(invalid), "\n") {
		ops[line] = p.operation(line)
	}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, newStore)
			if d, err := b.store.Decide(b.ctx, op); !errors.Is(err, stint.ErrInvalid) {
				t.Errorf("Decide: %+v, error %v, expected ErrInvalid", d, err)
			}
			ops := []stint.Op{operation(stint.VerbTake, "k", window, 1), op, operation(stint.VerbTake, "k", window, 2)}
			results := make([]stint.Result, len(ops))
			b.store.DecideAll(b.ctx, ops, results)
			if !errors.Is(results[1].Err, stint.ErrInvalid) {
				t.Errorf("DecideAll: %+v, expected ErrInvalid", results[1])
			}
			for i, left := range map[int]int64{0: 4, 2: 2} {
				if r := results[i]; r.Err != nil || !r.Decision.Allowed || r.Decision.Remaining != left {
					t.Errorf("its neighbour %d in the batch: %+v, error %v, expected %d left", i, r.Decision, r.Err, left)
				}
			}
			if left := b.remaining("k", leaky); left != 5 {
				t.Errorf("the leaky bucket has %d left, expected 5", left)
			}
		})
	}
}

// testCancelled: when the context has ended before, the error "is the context's"
// (stint.Store), nothing is consumed, and nothing is reset.
func testCancelled(t *testing.T, newStore newStoreFunc) {
	policy := policyOf(t, "", simpleLimit(stint.AlgorithmFixedWindow, 5))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, release := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer release()
	for want, ctx := range map[error]context.Context{context.Canceled: cancelled, context.DeadlineExceeded: expired} {
		t.Run(want.Error(), func(t *testing.T) {
			b := newFixture(t, newStore)
			b.take("k", policy, 2)
			op := operation(stint.VerbTake, "k", policy, 1)
			_, err := b.store.Decide(ctx, op)
			results := make([]stint.Result, 2)
			b.store.DecideAll(ctx, []stint.Op{op, op}, results)
			errs := map[string]error{"Decide": err, "DecideAll, first": results[0].Err, "DecideAll, second": results[1].Err}
			errs["ResetAll of a policy"], errs["ResetAll"] = b.store.ResetAll(ctx, stint.Scope{}),
				b.store.ResetAll(ctx, stint.Scope{All: true})
			for call, err := range errs {
				if !errors.Is(err, want) || errors.Is(err, stint.ErrUnavailable) {
					t.Errorf("%s: error %v, expected %v", call, err, want)
				}
			}
			if left := b.remaining("k", policy); left != 3 {
				t.Errorf("%d left, expected 3", left)
			}
		})
	}
}

// testTimeout: an operation whose time is up is decided nevertheless, or fails as stint.Op says,
// and does so at once. The least timeout counts for all operations of a call.
func testTimeout(t *testing.T, newStore newStoreFunc) {
	b := newFixture(t, newStore)
	policy := policyOf(t, "", simpleLimit(stint.AlgorithmFixedWindow, 5))
	b.take("k", policy, 2)
	op := operation(stint.VerbTake, "k", policy, 1)
	hasty := op
	hasty.Timeout = 1
	d, err := b.store.Decide(t.Context(), hasty)
	results := make([]stint.Result, 2)
	b.store.DecideAll(t.Context(), []stint.Op{op, hasty}, results)
	for _, r := range append(results, stint.Result{Decision: d, Err: err}) {
		timeout, is := errors.AsType[interface {
			error
			Timeout() bool
		}](r.Err)
		late := is && timeout.Timeout() && !errors.Is(r.Err, context.DeadlineExceeded) &&
			errors.Is(r.Err, stint.ErrUnavailable) != errors.Is(r.Err, stint.ErrOverloaded)
		if decided := r.Err == nil && r.Decision.Allowed; !decided && !late {
			t.Errorf("%+v, %v; expected a decision, or ErrUnavailable or ErrOverloaded with a method Timeout, and without %v",
				r.Decision, r.Err, context.DeadlineExceeded)
		}
	}
	if d, err := b.store.Decide(t.Context(), operation(stint.VerbPeek, "k", policy, 1)); err != nil || d.Remaining > 3 {
		t.Errorf("a peek afterwards: %+v, %v", d, err)
	}
}
