package stint_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// A request that a limit on denials denies is blocked, and says so.
func TestLimitOfDenials(t *testing.T) {
	limiter := must.Get(stint.New(memstore.New(memstore.Config{Now: still}), "login",
		stint.FixedWindow(2, 10*time.Minute).FromFirst().OfDenials().Named("block"),
		stint.FixedWindow(1, time.Minute).FromFirst()))(t)
	for i, want := range []stint.Reason{"", stint.ReasonLimit, stint.ReasonBlocked} {
		d := must.Get(limiter.Allow(t.Context(), "k"))(t)
		reason := stint.Reason("")
		if !d.Allowed {
			reason = stint.ReasonOf(limiter.Policy().Limit(int(d.Index)), &d, 1)
		}
		if reason != want {
			t.Errorf("request %d: %+v, %q, want %q", i, d, reason, want)
		}
	}
}

// Where denials are counted nothing can be reserved, leased, kept, or charged as one of several ways.
func TestDenialsRefuse(t *testing.T) {
	denials := stint.FixedWindow(3, time.Minute).FromFirst().OfDenials()
	if _, err := stint.NewPolicy("p", denials, stint.TokenBucket(5, stint.PerSecond(1)).WithLease(1)); err == nil ||
		err.Error() != "stint: limit 1: lease is 1; allowed: none beside a limit that counts denials" {
		t.Errorf("a lease beside: %v", err)
	}
	policy := must.Get(stint.NewPolicy("p", denials))(t)
	claim := stint.Claim{Key: "k", Policy: policy, Permits: 1}
	keeping := claim
	keeping.Keep = 1
	for _, c := range []struct {
		op   stint.Op
		want string
	}{
		{stint.Op{Claim: keeping}, "stint: keep is 1; allowed: 0 for a policy with a limit that counts denials"},
		{
			stint.Op{Extra: &stint.Extra{Groups: [][]stint.Way{{{claim}, nil}}}},
			"stint: Denials is true; allowed: a limit that counts no denials, since a way may deny and another admit",
		},
		{
			stint.Op{Verb: stint.VerbReserve, Claim: claim, Extra: &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: "h", TTL: time.Second}}}},
			"stint: Denials is true; allowed: false where permits are reserved: a reserve that is denied writes nothing",
		},
	} {
		if err := c.op.Validate(); err == nil || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
