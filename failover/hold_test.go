package failover_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/storetest"
)

// gateway is "2 at once, 100 tokens an hour".
func gateway(t testing.TB) *stint.Policy {
	return policy(t, "gateway", stint.Concurrency(2).WithCost(1), stint.FixedWindow(100, time.Hour).Named("tokens"))
}

func reserve(f *fixture, p *stint.Policy, id string, n int64) (stint.HoldOp, stint.Decision, error) {
	return hold(f, stint.VerbReserve, p, stint.Hold{ID: id, TTL: time.Minute}, n)
}

func commit(f *fixture, p *stint.Policy, h stint.HoldOp, n int64) (stint.HoldOp, stint.Decision, error) {
	return hold(f, stint.VerbCommit, p, h.Hold, n)
}

func hold(f *fixture, verb stint.Verb, p *stint.Policy, of stint.Hold, n int64) (stint.HoldOp, stint.Decision, error) {
	o := op(verb, "k", p, n)
	o.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: of}}
	d, err := f.Decide(f.t.Context(), o)
	return *o.Hold(), d, err
}

// What was admitted while the store was unreachable is charged by its commit, once.
func TestHoldsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFixture(t, nil), gateway(t)
		f.lose(p)
		var holds [3]stint.HoldOp
		for i, id := range []string{"a", "b", "c"} { // beyond the places
			h, d, err := reserve(f, p, id, 10)
			if err != nil || !d.Allowed || !d.Degraded || h.ExpiresAt != stint.Instant(time.Now().Add(time.Minute).UnixMicro()) {
				t.Fatalf("%+v %+v %v", h, d, err)
			}
			holds[i] = h
		}
		if _, _, err := commit(f, p, holds[0], 7); !errors.Is(err, stint.ErrUnavailable) {
			t.Fatalf("a commit without the store: %v", err)
		}
		f.regain()
		for range 2 {
			if _, d, err := commit(f, p, holds[0], 7); err != nil || d.Applied != 7 {
				t.Errorf("%+v %v", d, err)
			}
		}
		each := make([]stint.Outcome, 2)
		o := op(stint.VerbPeek, "k", p, 1)
		o.Each = each
		if d, err := f.Decide(t.Context(), o); err != nil || d.Degraded || each[0].Remaining != 2 || each[1].Remaining != 93 {
			t.Errorf("%+v, %+v %v", d, each, err)
		}
	})
}

func TestHoldsLocalAndClosed(t *testing.T) {
	for _, mode := range []failover.Mode{failover.Local, failover.Closed} {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, func(c *failover.Config) { c.Mode = mode })
				p := gateway(t)
				f.lose(p)
				for i, id := range []string{"a", "b", "c"} {
					h, d, err := reserve(f, p, id, 10)
					switch {
					case mode == failover.Closed:
						if !errors.Is(err, stint.ErrUnavailable) {
							t.Errorf("closed: %+v %v", d, err)
						}
					case err != nil || d.Allowed != (i < 2) || !d.Degraded || d.Allowed && h.ExpiresAt == 0:
						t.Errorf("local, %s: %+v %+v %v", id, h, d, err)
					}
				}
			})
		})
	}
}

// What a store says of a hold is no failure of the store.
func TestErrorsOfHoldsAreNoFailures(t *testing.T) {
	for _, want := range []error{&stint.ResolvedError{ID: "a"}, stint.ErrOtherClaims, stint.ErrUnknownReservation} {
		f, p := newFixture(t, nil), gateway(t)
		f.faulty.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: want} })
		if _, d, err := reserve(f, p, "a", 1); err == nil || err.Error() != want.Error() || d.Allowed {
			t.Errorf("%+v, %v, want %v", d, err, want)
		}
		if failures := f.Stats().Errors; failures != 0 {
			t.Errorf("%v counts as %d failures", want, failures)
		}
	}
}

// While the store is gone each process has its share of the places. One that is done gives its place back. Its end fails,
// since the store may have the hold, too, or has to be charged for it: it is said again then.
func TestLocalPlacesAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(c *failover.Config) { c.Mode = failover.Local })
		p := gateway(t)
		stored, _ := must.Two(reserve(f, p, "stored", 1))(t)
		f.lose(p)
		if _, d, err := reserve(f, p, "stored", 1); err != nil || !d.Allowed { // renewed
			t.Fatal(d, err)
		}
		if _, _, err := commit(f, p, stored, 1); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("a hold that the store has, and a renewal took here: %v", err)
		}
		for i, id := range []string{"a", "b", "c", "d"} {
			h, d, err := reserve(f, p, id, 1)
			if err != nil || !d.Allowed {
				t.Fatalf("reserve %d, after the others have ended: %v %v", i, d, err)
			}
			for again := range 2 {
				if _, _, err := commit(f, p, h, 1); !errors.Is(err, stint.ErrUnavailable) {
					t.Errorf("commit %d of %d: %v", again, i, err)
				}
			}
			if _, _, err := commit(f, p, h, 7); !errors.Is(err, stint.ErrResolved) {
				t.Errorf("another end: %v", err)
			}
		}
	})
}
