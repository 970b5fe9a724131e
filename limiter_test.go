package stint_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// newLimiter makes a limiter on an empty memory store. Inside a synctest bubble its
// clock is the bubble's.
func newLimiter(t *testing.T, limits ...stint.Limit) *stint.Limiter {
	t.Helper()
	return must.Get(stint.New(memstore.New(memstore.Config{}), "test", limits...))(t)
}

func TestObserve(t *testing.T) {
	policy := must.Get(stint.NewPolicy("", stint.TokenBucket(1, stint.PerHour(1))))(t)
	var events []stint.Event
	limiter := must.Get(stint.NewLimiter(stint.Config{
		Store: memstore.New(memstore.Config{}), Policy: policy,
		Observe: func(_ context.Context, e *stint.Event) { events = append(events, *e) },
	}))(t)
	ctx := t.Context()
	_, _ = limiter.Allow(ctx, "k")
	_, _ = limiter.AllowN(ctx, "k", 1)
	_, _ = limiter.Peek(ctx, "k")
	_, _ = limiter.Settle(ctx, "k", -1)
	_ = limiter.Reset(ctx, "k")
	_, _ = limiter.AllowN(ctx, "k", 0)
	want := []struct {
		verb    stint.Verb
		allowed bool
		invalid bool
	}{{stint.VerbTake, true, false}, {stint.VerbTake, false, false}, {stint.VerbPeek, false, false}, {stint.VerbSettle, true, false}, {stint.VerbReset, true, false}, {stint.VerbTake, false, true}}
	if len(events) != len(want) {
		t.Fatalf("%d events, want %d", len(events), len(want))
	}
	for i, e := range events {
		if e.Verb != want[i].verb || e.Decision.Allowed != want[i].allowed || errors.Is(e.Err, stint.ErrInvalid) != want[i].invalid || e.Claim.Key != "k" ||
			(e.Reason == stint.ReasonLimit) != (i == 1) || e.At == 0 {
			t.Errorf("event %d is %+v", i, e)
		}
	}
}

// Ask decides as AllowN does, and tells the limits apart and the observer of it.
func TestAsk(t *testing.T) {
	policy, err := stint.NewPolicy("", stint.FixedWindow(5, time.Minute), stint.FixedWindow(2, time.Second).Named("burst"))
	if err != nil {
		t.Fatal(err)
	}
	var told []stint.Event
	limiter := must.Get(stint.NewLimiter(stint.Config{
		Store: memstore.New(memstore.Config{Now: func() time.Time { return time.Unix(0, 0) }}), Policy: policy,
		Observe: func(_ context.Context, e *stint.Event) { told = append(told, *e) },
	}))(t)
	each := make([]stint.Outcome, 2)
	for i, want := range []struct {
		allowed     bool
		first, last int64
	}{{true, 3, 0}, {false, 3, 0}} {
		d, err := limiter.Ask(t.Context(), "k", stint.Query{N: 2, Each: each})
		if err != nil || d.Allowed != want.allowed || each[0].Remaining != want.first || each[1].Remaining != want.last || each[1].Allowed != want.allowed {
			t.Errorf("call %d: %+v, %v, %+v", i, d, err, each)
		}
	}
	if _, err := limiter.Ask(t.Context(), "k", stint.Query{Each: each[:1]}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("room for one outcome of two: %v", err)
	}
	if len(told) != 3 || told[0].Verb != stint.VerbTake || told[0].Claim.Permits != 2 {
		t.Errorf("the observer was told %+v", told)
	}
}

// A turn that comes after the deadline is left to others.
func TestAskBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(memstore.Config{}))
		limiter, err := stint.New(store, "test", stint.LeakyBucket(5, stint.PerSecond(1)), stint.FixedWindow(100, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		for i, test := range []struct {
			last  time.Duration // how long the request does; 0 without a deadline
			late  bool
			delay time.Duration
			calls int64
		}{
			{0, false, 0, 1},
			{999 * time.Millisecond, true, time.Second, 1},
			{999 * time.Millisecond, true, time.Second, 1}, // the one before took no turn
			{time.Second, false, time.Second, 2},
			{-time.Second, true, 2 * time.Second, 1},
			{0, false, 2 * time.Second, 1},
		} {
			var deadline time.Time
			if test.last != 0 {
				deadline = time.Now().Add(test.last)
			}
			var each []stint.Outcome
			if i%2 == 1 {
				each = make([]stint.Outcome, 2)
			}
			before := store.Calls()
			d, err := limiter.Ask(t.Context(), "k", stint.Query{Before: deadline, Each: each})
			if each != nil && each[0].Delay != test.delay {
				t.Errorf("request %d: the outcomes are %+v", i, each)
			}
			if !d.Allowed || d.Delay != test.delay || errors.Is(err, stint.ErrDeadline) != test.late || err != nil && !test.late {
				t.Errorf("request %d: %+v, %v; want a delay of %v, too late: %t", i, d, err, test.delay, test.late)
			}
			if calls := store.Calls() - before; calls != test.calls {
				t.Errorf("request %d asked the store %d times, want %d", i, calls, test.calls)
			}
		}
		<-time.After(time.Minute) // a turn that has come is in time
		if d, err := limiter.Ask(t.Context(), "k", stint.Query{Before: time.Now().Add(-time.Second)}); err != nil || !d.Allowed || d.Delay != 0 {
			t.Errorf("the next turn: %+v, %v", d, err)
		}
	})
}

// Without a leaky bucket a deadline changes nothing, and a failure mode may decide
// in place of an unreachable store.
func TestAskBeforeAsksOnce(t *testing.T) {
	store := storetest.NewFaulty(memstore.New(memstore.Config{}))
	limiter := must.Get(stint.New(store, "test", stint.TokenBucket(5, stint.PerSecond(1))))(t)
	if d, err := limiter.Ask(t.Context(), "k", stint.Query{N: 2, Before: time.Now()}); err != nil || d.Remaining != 3 || store.Calls() != 1 {
		t.Errorf("%+v, %v after %d calls", d, err, store.Calls())
	}

	limiter = must.Get(stint.New(store, "test", stint.LeakyBucket(5, stint.PerHour(1))))(t)
	store.Inject(func(call storetest.Call) storetest.Fault {
		if call.Ops[0].Verb == stint.VerbPeek {
			return storetest.Fault{Err: stint.ErrUnavailable}
		}
		return storetest.Fault{}
	})
	if d, err := limiter.Ask(t.Context(), "k", stint.Query{Before: time.Now()}); err != nil || !d.Allowed {
		t.Errorf("when nobody can look: %+v, %v", d, err)
	}
	if d, err := limiter.Ask(t.Context(), "k", stint.Query{Before: time.Now()}); !errors.Is(err, stint.ErrDeadline) || d.Delay <= 0 {
		t.Errorf("a turn that was late, unlooked for: %+v, %v", d, err)
	}
}

// Permits that are kept for others are not asked for, and do not remain.
func TestAskKeeps(t *testing.T) {
	limiter := must.Get(stint.New(memstore.New(memstore.Config{Now: still}), "api", stint.FixedWindow(10, time.Hour)))(t)
	d, err := limiter.Ask(t.Context(), "k", stint.Query{N: 6, Keep: 4})
	if err != nil || !d.Allowed || d.Remaining != 0 {
		t.Errorf("6 of 10, 4 kept: %v, %v", d, err)
	}
	if d, err := limiter.Ask(t.Context(), "k", stint.Query{Keep: 4}); err != nil || d.Allowed {
		t.Errorf("one of those that are kept: %v, %v", d, err)
	}
	if d, err := limiter.Ask(t.Context(), "k", stint.Query{}); err != nil || !d.Allowed || d.Remaining != 3 {
		t.Errorf("one, and none kept: %v, %v", d, err)
	}
	if _, err := limiter.Ask(t.Context(), "k", stint.Query{N: -1}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("-1 permits: error %v", err)
	}
}
