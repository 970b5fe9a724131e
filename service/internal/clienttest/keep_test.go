package clienttest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/storetest"
)

// TestKeep: what a request leaves to others is told to the service by every verb that has it.
func TestKeep(t *testing.T) {
	policy := policyOf(t, "shared", stint.FixedWindow(10, time.Hour))
	c, ctx := open(t, serve(t, storetest.NewClock(start), withPolicies(policy)), client.Options{}), t.Context()
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

// TestKeepMatchesTheStore: with random keeps, the client decides as the service's store does when it is asked itself.
func TestKeepMatchesTheStore(t *testing.T) {
	for _, limit := range []stint.Limit{
		stint.TokenBucket(10, stint.PerSecond(3)), stint.LeakyBucket(10, stint.PerSecond(3)), stint.FixedWindow(10, 3*time.Second),
		stint.SlidingWindowLog(10, 3*time.Second), stint.SlidingWindowCounter(10, 3*time.Second),
	} {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			clock := storetest.NewClock(start)
			c := open(t, serve(t, clock, func(c *server.Config) { c.Defaults = map[stint.Algorithm]stint.Limit{limit.Algorithm: limit} }),
				client.Options{Defaults: []stint.Limit{limit}})
			store, policy := memstore.New(memstore.Config{Now: clock.Now}), policyOf(t, "", limit)
			rng, kept := rand.New(rand.NewPCG(7, uint64(limit.Algorithm))), 0
			for i := range 300 {
				verb := []stint.Verb{stint.VerbTake, stint.VerbTake, stint.VerbTake, stint.VerbTry, stint.VerbPeek, stint.VerbSettle}[rng.IntN(6)]
				op := operation(verb, "k", policy, 1+rng.Int64N(4))
				op.Keep = rng.Int64N(11)
				d, err := c.Decide(t.Context(), op)
				want, wantErr := store.Decide(t.Context(), op)
				if err != nil || wantErr != nil || d != want {
					t.Fatalf("step %d: %s of %d, keeping %d:\n%+v, %v; the store\n%+v, %v", i, verb, op.Permits, op.Keep, d, err, want, wantErr)
				}
				if plain := op; !d.Allowed && verb == stint.VerbPeek {
					plain.Keep = 0
					if d, err := store.Decide(t.Context(), plain); err == nil && d.Allowed {
						kept++ // it is the keep that denies
					}
				}
				clock.Advance(time.Duration(rng.IntN(900)) * time.Millisecond)
			}
			if kept < 5 {
				t.Errorf("only %d looks were denied for what they keep", kept)
			}
		})
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
