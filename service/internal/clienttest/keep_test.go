package clienttest

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// TestKeepOfHolds: what a hold leaves to others is told by its reserve, and not by its end.
func TestKeepOfHolds(t *testing.T) {
	c, ctx := openPolicies(t, policyOf(t, "shared", stint.FixedWindow(10, time.Hour))), t.Context()
	hold := api.HoldRequest{Request: api.Request{Key: "k", Policy: "shared", Permits: 6, Keep: 4}}
	reserve := func(id string, allowed bool) {
		t.Helper()
		if hold.ID = id; must.Get(c.Reserve(ctx, hold))(t).Allowed != allowed {
			t.Errorf("the reserve %s is admitted: %t", id, !allowed)
		}
	}
	reserve("a", true)
	reserve("b", false)
	hold.ID, hold.Permits = "a", 5
	if a, err := c.Commit(ctx, hold); err != nil || a.Applied != -1 {
		t.Errorf("Commit: %+v, %v", a, err)
	}
	hold.Permits = 1
	reserve("c", true)
	if a, err := c.Cancel(ctx, hold); err != nil || a.Applied != -1 {
		t.Errorf("Cancel: %+v, %v", a, err)
	}
}

// TestKeepOfReservations: a reservation that keeps permits for others tells through the service what it tells of a store.
func TestKeepOfReservations(t *testing.T) {
	clock := storetest.NewClock(start)
	policy := policyOf(t, "shared", stint.FixedWindow(10, time.Hour))
	c, store := open(t, serve(t, clock, withPolicies(policy)), client.Options{}), memstore.New(memstore.Config{Now: clock.Now})
	for _, step := range []struct {
		verb    stint.Verb
		id      string
		permits int64
	}{
		{stint.VerbReserve, "a", 5}, {stint.VerbReserve, "b", 2}, {stint.VerbReserve, "b", 1}, {stint.VerbCommit, "a", 4}, {stint.VerbCancel, "b", 0}, {stint.VerbReserve, "c", 7},
	} {
		var decisions [2]stint.Decision
		for i, s := range []stint.Store{c, store} {
			op := operation(step.verb, "k", policy, step.permits)
			op.Keep, op.Extra = 4, &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: step.id, TTL: time.Minute}}}
			var err error
			if decisions[i], err = s.Decide(t.Context(), op); err != nil {
				t.Fatalf("%+v: %v", step, err)
			}
		}
		if decisions[0] != decisions[1] {
			t.Errorf("%+v: %+v, the store %+v", step, decisions[0], decisions[1])
		}
	}
}
