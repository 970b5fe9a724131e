package stint_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// still is a clock that stands still, so that no window ends meanwhile.
func still() time.Time { return time.UnixMicro(1_790_000_000_000_000) }

// Limiters of different names count apart on one store, though neither of their limits has a name.
func TestLimitersCountApart(t *testing.T) {
	store := memstore.New(memstore.Config{Now: still})
	api := must.Get(stint.New(store, "api", stint.TokenBucket(100, stint.PerHour(1))))(t)
	login := must.Get(stint.New(store, "login", stint.TokenBucket(5, stint.PerHour(1))))(t)
	for i, step := range []struct {
		limiter   *stint.Limiter
		remaining int64
	}{{api, 99}, {login, 4}, {api, 98}, {login, 3}} {
		if d, err := step.limiter.Allow(t.Context(), "bob"); err != nil || d.Remaining != step.remaining {
			t.Errorf("step %d: %v, %v, want %d left", i, d, err, step.remaining)
		}
	}
}

// A name says whose state it is: it has 1 to MaxNameBytes characters, and no slash, which the names of
// policies and rules have.
func TestNames(t *testing.T) {
	store := memstore.New(memstore.Config{Now: still})
	for _, name := range []string{"", "rule/api", strings.Repeat("n", bounds.MaxNameBytes+1)} {
		_, err := stint.New(store, name, stint.FixedWindow(5, time.Hour))
		wantSays(t, err, "name is")
	}
}

// Limiters of one name with other limits are one limiter whose limit changes: what a client has used counts on.
func TestLimitersOfOneName(t *testing.T) {
	store := memstore.New(memstore.Config{Now: still})
	first := must.Get(stint.New(store, "api", stint.FixedWindow(5, time.Hour)))(t)
	second := must.Get(stint.New(store, "api", stint.FixedWindow(100, time.Hour)))(t)
	must.Get(first.AllowN(t.Context(), "bob", 3))(t)
	if d, err := second.Allow(t.Context(), "bob"); err != nil || d.Remaining != 96 {
		t.Errorf("under the other limit: %v, %v, want 96 left", d, err)
	}
}

// With changes the limits of a client, and keeps what it has used.
func TestWith(t *testing.T) {
	limiter := must.Get(stint.New(memstore.New(memstore.Config{Now: still}), "api", stint.FixedWindow(5, time.Hour)))(t)
	must.Get(limiter.AllowN(t.Context(), "bob", 3))(t)
	large := must.Get(limiter.With(stint.FixedWindow(100, time.Hour)))(t)
	if d, err := large.Allow(t.Context(), "bob"); err != nil || d.Remaining != 96 {
		t.Errorf("under the larger limit: %v, %v, want 96 left", d, err)
	}
	if again, _ := limiter.With(stint.FixedWindow(100, time.Hour)); again != large {
		t.Error("another limiter for the same limit")
	}
	if _, err := limiter.With(stint.FixedWindow(0, time.Hour)); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a limit of 0: %v", err)
	}
	pair := must.Get(limiter.With(stint.FixedWindow(100, time.Hour), stint.FixedWindow(1, time.Second).Named("burst")))(t)
	if d, err := pair.AllowN(t.Context(), "bob", 1); err != nil || !d.Allowed || d.Remaining != 0 {
		t.Errorf("under two limits: %v, %v", d, err)
	}
	two := []stint.Limit{stint.FixedWindow(100, time.Hour), stint.FixedWindow(1, time.Second).Named("burst")}
	if again, _ := limiter.With(two...); again != pair {
		t.Error("another limiter for the same two limits")
	}
	slices.Reverse(two)
	if other, _ := limiter.With(two...); other == pair || other.Policy().Limit(0) != two[0] {
		t.Error("the same limiter for two limits in another order")
	}
	if _, err := limiter.With(append(two, stint.Limit{})...); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a limit of nothing behind two that were asked for before: %v", err)
	}
	if five, err := limiter.With(named("a"), named("b"), named("c"), named("d"), named("e")); err != nil || five.Policy().Len() != 5 {
		t.Errorf("five limits: %v, %v", five, err)
	}
	for i := range int64(3000) { // more than are kept
		must.Get(limiter.With(stint.FixedWindow(1+i, time.Hour)))(t)
	}
	if allocations := testing.AllocsPerRun(100, func() {
		_, _ = limiter.With(stint.FixedWindow(3000, time.Hour))
	}); allocations != 0 {
		t.Errorf("%v allocations for a limit that is known", allocations)
	}
}

func named(name string) stint.Limit { return stint.FixedWindow(9, time.Hour).Named(name) }

// New names all faults at once.
func TestNewNamesAllFaults(t *testing.T) {
	_, err := stint.New(nil, "a/b", stint.FixedWindow(0, time.Hour))
	wantSays(t, err, `name is "a/b"`, "limit is 0", `store is "nil"`)
}
