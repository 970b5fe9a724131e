package storetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/must"
)

// What all ways have together is what requests of one permit are admitted, one after another, until one is denied, where
// the outcomes are the model's.
func TestAvailable(t *testing.T) {
	policies := []*stint.Policy{
		policyOf(t, "a", stint.TokenBucket(5, stint.Per(5, time.Hour))), policyOf(t, "b", stint.FixedWindow(4, time.Hour)),
		policyOf(t, "c", stint.SlidingWindowLog(6, time.Hour)),
		policyOf(t, "d", stint.SlidingWindowCounter(9, time.Hour), stint.FixedWindow(7, time.Hour).Named("e")),
	}
	together := 0 // operations whose ways have more than the one that is charged
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 53)) // #nosec G404 -- of a test
		claim := func() stint.Claim {
			return stint.Claim{
				Key: []string{"k", "l"}[random.IntN(2)], Policy: policies[random.IntN(len(policies))], Permits: 1,
				Keep: int64(random.IntN(2) * random.IntN(4)),
			}
		}
		op := stint.Op{Verb: stint.VerbTake, Extra: new(stint.Extra)}
		if random.IntN(3) == 0 {
			op.Claim = claim()
		}
		for range 1 + random.IntN(4)/3 {
			group := []stint.Way{{claim(), claim()}, {claim()}, {claim()}}
			op.Extra.Groups = append(op.Extra.Groups, group[random.IntN(2):])
		}
		if op.Validate() != nil {
			continue
		}
		op.Each = make([]stint.Outcome, op.Limits())
		f := newFixture(t, like(&reference{}))
		do := func(op stint.Op) stint.Decision {
			return must.Get(f.store.Decide(f.ctx, op))(t)
		}
		for range random.IntN(6) {
			do(op)
		}
		peek := op
		peek.Verb = stint.VerbPeek
		before := do(peek)
		available, some := decide.Available(&peek, peek.Each)
		admitted := int64(0)
		for do(op).Allowed {
			admitted++
		}
		if admitted != available || !some {
			t.Errorf("seed %d: %d were available, %t, and %d admitted", seed, available, some, admitted)
		}
		if before.Remaining < available {
			together++
		}
	}
	if together < 10 {
		t.Errorf("%d operations have more than one way left, want 10 or more", together)
	}
}
