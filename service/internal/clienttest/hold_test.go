package clienttest

import (
	"errors"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/storetest"
)

// A reservation through the service is one: it grows, ends once, and tells what became of it.
func TestHolds(t *testing.T) {
	clock := storetest.NewClock(start)
	limits := []stint.Limit{stint.Concurrency(2).WithCost(1), stint.FixedWindow(100, time.Hour).Named("tokens")}
	policy := policyOf(t, "gateway", limits...)
	c := open(t, serve(t, clock, withPolicies(policy)), client.Options{})
	limiter := must.Get(stint.NewLimiter(stint.Config{Store: c, Policy: policy}))(t)
	ctx := t.Context()
	first, d, err := limiter.Reserve(ctx, "k", 30, stint.Hold{ID: "a", TTL: 90 * time.Second})
	if err != nil || !d.Allowed || first.ExpiresAt() != start.Add(90*time.Second) {
		t.Fatalf("%v %v", d, err)
	}
	if d, err := first.Grow(ctx, 50); err != nil || !d.Allowed || !first.Replayed() {
		t.Errorf("%v %v", d, err)
	}
	second, d, err := limiter.Reserve(ctx, "k", 20, stint.Hold{ID: "b", OnExpiry: stint.ChargeOnExpiry})
	if err != nil || !d.Allowed {
		t.Fatalf("%v %v", d, err)
	}
	if _, d, err := limiter.Reserve(ctx, "k", 1, stint.Hold{}); err != nil || d.Allowed || d.Index != 0 || d.RetryAfter != time.Minute {
		t.Errorf("a third: %+v %v", d, err)
	}
	for _, replayed := range []bool{false, true} {
		if end, err := first.Commit(ctx, 0); err != nil || end.Applied != -50 || end.Replayed != replayed || end.At != start {
			t.Errorf("%+v %v", end, err)
		}
	}
	if _, err := first.Cancel(ctx); !errors.Is(err, stint.ErrResolved) {
		t.Errorf("cancelled after the commit: %v", err)
	}
	if _, _, err := limiter.Reserve(ctx, "other", 1, stint.Hold{ID: "b"}); !errors.Is(err, stint.ErrOtherClaims) {
		t.Errorf("other claims: %v", err)
	}
	clock.Advance(2 * time.Minute)
	if end, err := second.Commit(ctx, 25); err != nil || !end.Late || end.Applied != 5 { // what expired was kept
		t.Errorf("late: %+v %v", end, err)
	}
	clock.Advance(time.Hour)
	if _, err := second.Commit(ctx, 25); !errors.Is(err, stint.ErrUnknownReservation) {
		t.Errorf("forgotten: %v", err)
	}
	work, stop := first.KeepAlive(ctx)
	stop()
	<-work.Done()
}
