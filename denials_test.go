package stint_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// A limit on denials is left alone by what is admitted, counts each denial once, whichever limit denies, and then denies
// until its window ends, with its own reason. It does not decide what is admitted.
func TestLimitOfDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := stint.New(memstore.New(memstore.Config{}), "login",
			stint.FixedWindow(3, 10*time.Minute).FromFirst().OfDenials().Named("block"), stint.FixedWindow(5, time.Minute).FromFirst())
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		ask := func(n int64) stint.Decision {
			return must.Get(limiter.AllowN(t.Context(), "k", n))(t)
		}
		reason := func(d stint.Decision, n int64) stint.Reason {
			return stint.ReasonOf(limiter.Policy().Limit(int(d.Index)), &d, n)
		}
		for range 5 {
			if d := ask(1); !d.Allowed || d.Limit != 5 {
				t.Fatalf("%+v, want it admitted, as the other limit says", d)
			}
		}
		time.Sleep(30 * time.Second) //nolint:forbidigo // the bubble's time
		if d := ask(4); d.Allowed || reason(d, 4) != stint.ReasonLimit || d.RetryAfter != 30*time.Second {
			t.Errorf("the first denial: %+v", d)
		}
		if d, err := limiter.Peek(t.Context(), "k"); err != nil || d.Allowed { // which is no denial
			t.Errorf("a look: %+v, %v", d, err)
		}
		time.Sleep(30 * time.Second) //nolint:forbidigo // the bubble's time
		if d := ask(5); !d.Allowed || d.Index != 1 {
			t.Errorf("the next window: %+v", d)
		}
		if d := ask(1); d.Allowed || reason(d, 1) != stint.ReasonLimit {
			t.Errorf("the second denial: %+v", d)
		}
		until := func() time.Duration { return 10*time.Minute + 30*time.Second - time.Since(begun) }
		for i := range 20 {
			if d := ask(1); d.Allowed || reason(d, 1) != stint.ReasonBlocked || d.RetryAfter != until() || d.Limit != 3 {
				t.Fatalf("denial %d: %+v, want it blocked for %v", 3+i, d, until())
			}
			time.Sleep(20 * time.Second) //nolint:forbidigo // the bubble's time
		}
		must.Do(t, limiter.Reset(t.Context(), "k"))
		if d := ask(5); !d.Allowed {
			t.Errorf("after a reset: %+v", d)
		}
		for range 3 {
			ask(1)
		}
		time.Sleep(10*time.Minute - time.Microsecond) //nolint:forbidigo // the bubble's time
		if d := ask(1); d.Allowed || d.RetryAfter != time.Microsecond {
			t.Errorf("before the window's end: %+v", d)
		}
		time.Sleep(time.Microsecond) //nolint:forbidigo // the bubble's time
		if d := ask(1); !d.Allowed {
			t.Errorf("at its end: %+v", d)
		}
	})
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
