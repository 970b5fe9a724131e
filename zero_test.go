package stint_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// methods are all that ask a store.
func methods(ctx context.Context, l *stint.Limiter) map[string]error {
	err := func(_ any, err error) error { return err }
	second := func(_ any, _ stint.Decision, err error) error { return err }
	each := make([]stint.Outcome, 1)
	return map[string]error{
		"Allow":       err(l.Allow(ctx, "k")),
		"AllowN":      err(l.AllowN(ctx, "k", 1)),
		"Ask":         err(l.Ask(ctx, "k", stint.Query{Before: time.Now(), Each: each})),
		"Wait":        err(l.Wait(ctx, "k")),
		"Peek":        err(l.Peek(ctx, "k")),
		"Settle":      err(l.Settle(ctx, "k", 1)),
		"Reset":       l.Reset(ctx, "k"),
		"Reserve":     second(l.Reserve(ctx, "k", 1, stint.Hold{})),
		"ReserveWait": second(l.ReserveWait(ctx, "k", 1, stint.Hold{})),
		"Holds":       err(l.Holds(ctx, "k")),
		"Drop":        l.Drop(ctx, "k", "id"),
	}
}

// The zero values of a limiter and of a store decide nothing, and say so.
func TestZeroValues(t *testing.T) {
	onZero := must.Get(stint.New(&memstore.Store{}, "api", stint.TokenBucket(1, stint.PerSecond(1))))(t)
	for name, limiter := range map[string]*stint.Limiter{"limiter": {}, "store": onZero} {
		for method, err := range methods(t.Context(), limiter) {
			if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "zero") {
				t.Errorf("%s: %s: error %v", name, method, err)
			}
		}
	}
	if _, err := new(stint.Limiter).With(stint.TokenBucket(1, stint.PerSecond(1))); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("With: error %v", err)
	}
	for name, store := range map[string]stint.Store{"no store": nil, "a nil store": (*memstore.Store)(nil)} {
		if _, err := stint.New(store, "api", stint.Concurrency(1)); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	results := make([]stint.Result, 2)
	op := stint.Op{Claim: stint.Claim{Key: "k", Policy: onZero.Policy(), Permits: 1}}
	new(memstore.Store).DecideAll(t.Context(), []stint.Op{op, op}, results)
	for _, r := range results {
		if !errors.Is(r.Err, stint.ErrInvalid) {
			t.Errorf("DecideAll: %+v", r)
		}
	}
}

// The reservation of a Reserve that was denied holds nothing: what ends it is no panic, and says so.
func TestNilReservation(t *testing.T) {
	limiter := must.Get(stint.New(memstore.New(memstore.Config{}), "api", stint.Concurrency(1)))(t)
	must.Two(limiter.Reserve(t.Context(), "k", 1, stint.Hold{}))(t)
	denied, d, err := limiter.Reserve(t.Context(), "k", 1, stint.Hold{})
	if err != nil || d.Allowed || denied != nil {
		t.Fatal(denied, d, err)
	}
	_, grow := denied.Grow(t.Context(), 2)
	_, commit := denied.Commit(t.Context(), 1)
	_, commitHeld := denied.CommitHeld(t.Context())
	_, cancelled := denied.Cancel(t.Context())
	work, stop := denied.KeepAlive(t.Context())
	stop()
	for name, err := range map[string]error{
		"Grow": grow, "Commit": commit, "CommitHeld": commitHeld, "Cancel": cancelled, "KeepAlive": context.Cause(work),
	} {
		if !errors.Is(err, stint.ErrUnknownReservation) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if denied.ID() != "" || denied.ExpiresAt() != 0 || denied.Permits() != 0 || denied.Replayed() {
		t.Error("a denied reservation says that it holds something")
	}
}
