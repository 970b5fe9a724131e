package clienttest

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// TestKeep: what a request leaves to others is told to the service by every verb that has it.
func TestKeep(t *testing.T) {
	policy := policyOf(t, "shared", stint.FixedWindow(10, time.Hour))
	c, ctx := openPolicies(t, policy), t.Context()
	job, critical := api.Request{Key: "k", Policy: "shared", Permits: 6, Keep: 4}, api.Request{Key: "k", Policy: "shared", Permits: 3}
	if a, err := c.Check(ctx, job); err != nil || !a.Allowed || a.Remaining != 0 {
		t.Errorf("a job: %+v, %v", a, err)
	}
	job.Permits = 0
	if a, err := c.Remaining(ctx, job); err != nil || a.Allowed || a.Remaining != 0 {
		t.Errorf("a job's look: %+v, %v", a, err)
	}
	if a, err := c.Remaining(ctx, critical); err != nil || !a.Allowed || a.Remaining != 4 {
		t.Errorf("a critical look: %+v, %v", a, err)
	}
	if a, err := c.CheckAll(ctx, []api.Request{job, critical, job}); err != nil || a[0].Allowed || !a[1].Allowed || a[2].Allowed {
		t.Errorf("CheckAll: %+v, %v", a, err)
	}
	hold := api.HoldRequest{Request: job, ID: "a"}
	if a, err := c.Reserve(ctx, hold); err != nil || a.Allowed {
		t.Errorf("a job's reserve: %+v, %v", a, err)
	}
	hold.Keep = 0
	if a, err := c.Reserve(ctx, hold); err != nil || !a.Allowed {
		t.Errorf("a critical reserve: %+v, %v", a, err)
	}
	hold.Keep = 4 // which is not sent
	if a, err := c.Commit(ctx, hold); err != nil || a.Applied != -1 {
		t.Errorf("Commit: %+v, %v", a, err)
	}
	hold.ID, hold.Keep = "b", 0
	if a, err := c.Reserve(ctx, hold); err != nil || !a.Allowed {
		t.Errorf("another reserve: %+v, %v", a, err)
	}
	hold.Keep = 4
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
