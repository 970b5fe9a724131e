package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// metering is a rule of places, requests and tokens, and one beside it that counts requests.
func metering() []rules.Rule {
	places := per("places", stint.Concurrency(2).Named("places"), stint.FixedWindow(50, time.Hour).Named("requests"),
		stint.FixedWindow(100, time.Hour).Named("tokens"))
	places.Costs = []rules.Cost{{}, {}, {Attribute: "tokens", Permits: 10}}
	return []rules.Rule{places, per("b", stint.FixedWindow(20, time.Hour))}
}

func reserve(t *testing.T, limiter *enforce.Limiter, r rules.Request, hold stint.Hold) (*stint.Reservation, *enforce.Verdict) {
	t.Helper()
	v := new(enforce.Verdict)
	reservation := must.Get(limiter.Reserve(t.Context(), &r, hold, v))(t)
	return reservation, v
}

// One reservation takes a place, a request of each rule, and the tokens that the request names; a commit says the tokens
// anew, and the rest stays.
func TestReserveByRules(t *testing.T) {
	limiter, _ := newLimiter(t, metering()...)
	first, v := reserve(t, limiter, tokens("60"), stint.Hold{})
	if !v.Allowed || len(v.Matched) != 2 {
		t.Fatalf("%+v", v)
	}
	wantLeft(t, "held", left(t, limiter, tokens("1")), map[string]int64{"places/places": 1, "places/requests": 49, "places/tokens": 40, "b/": 19})
	if denied, v := reserve(t, limiter, tokens("50"), stint.Hold{}); denied != nil || v.Allowed || v.Rule.ID != "places" || v.Limit().Name != "tokens" {
		t.Fatalf("%v, %+v", denied, v)
	}
	if d, err := first.Grow(t.Context(), 80); err != nil || !d.Allowed {
		t.Fatal(d, err)
	}
	wantLeft(t, "grown", left(t, limiter, tokens("1")), map[string]int64{"places/places": 1, "places/requests": 49, "places/tokens": 20, "b/": 19})
	if end, err := first.Commit(t.Context(), 25); err != nil || end.Applied != -55 {
		t.Fatal(end, err)
	}
	wantLeft(t, "committed", left(t, limiter, tokens("1")), map[string]int64{"places/places": 2, "places/requests": 49, "places/tokens": 75, "b/": 19})
	second, _ := reserve(t, limiter, tokens("30"), stint.Hold{ID: "second"})
	must.Get(second.Cancel(t.Context()))(t)
	wantLeft(t, "cancelled", left(t, limiter, tokens("1")), map[string]int64{"places/places": 2, "places/requests": 49, "places/tokens": 75, "b/": 19})
	r := tokens("30")
	if _, err := limiter.Reserve(t.Context(), &r, stint.Hold{ID: "second"}, v); !errors.Is(err, stint.ErrResolved) {
		t.Errorf("%v", err)
	}
}

// A client that has as many holds as the store allows is denied for that.
func TestReserveBeyondTheMostHolds(t *testing.T) {
	store := memstore.New(memstore.Config{MaxHolds: 1, Now: steady})
	limiter := must.Get(enforce.New(enforce.Config{Store: store, Set: setOf(t, nil, metering()...)}))(t)
	for _, want := range []stint.Reason{"", stint.ReasonHolds} {
		if _, v := reserve(t, limiter, alice, stint.Hold{}); v.Reason() != want || v.Allowed != (want == "") {
			t.Errorf("%q, %+v; want %q", v.Reason(), v.Decision, want)
		}
	}
}

// A hold ends by the rules that held for its reserve, also if others match by then, in another order, or ban the client.
func TestEndByRulesThatHaveChanged(t *testing.T) {
	banned, other := per("banned"), per("a-new-one", stint.FixedWindow(100, time.Hour))
	banned.Banned, other.Priority = true, 9
	overridden, urgent, fewer := metering(), metering(), metering()
	overridden[0].Overrides = []rules.Override{{Key: alice.Address, Banned: true}}
	urgent[0].Priority = 9
	fewer[0].Limits, fewer[0].Costs = fewer[0].Limits[:2], fewer[0].Costs[:2]
	for _, test := range []struct {
		name string
		now  []rules.Rule
		want error // of an end by the rules that match now
		of   error // of one that names those of the reserve
	}{
		{"none", metering(), nil, nil},
		{"a ban", append(metering(), banned), nil, nil},
		{"a ban of the client", overridden, nil, nil},
		{"another rule", append(metering(), other), stint.ErrOtherClaims, nil},
		{"another order", urgent, nil, nil},
		{"a limit less", fewer, stint.ErrOtherClaims, stint.ErrOtherClaims},
		{"a rule less", metering()[:1], stint.ErrOtherClaims, stint.ErrOtherClaims},
		{"no rule", nil, stint.ErrUnknownReservation, stint.ErrUnknownReservation},
	} {
		for _, named := range []string{"", "in order", "in the other order"} {
			limiter, _ := newLimiter(t, metering()...)
			request := tokens("60")
			_, v := reserve(t, limiter, request, stint.Hold{ID: "a"})
			want, of := test.want, []string(nil)
			if named != "" {
				want, of = test.of, slices.Clone(v.Matched)
			}
			if named == "in the other order" {
				slices.Reverse(of)
			}
			limiter.Swap(setOf(t, limiter.Set(), test.now...))
			h := stint.HoldOp{Hold: stint.Hold{ID: "a"}}
			err := limiter.End(t.Context(), &request, stint.VerbCommit, &h, 25, 0, of, nil, v)
			if !errors.Is(err, want) || err == nil && (!v.Allowed || v.Decision.Applied != -35 || v.Reason() != "") {
				t.Errorf("%s, of %q: %v, %+v; want %v", test.name, of, err, v.Decision, want)
			}
		}
	}
}

// A leaky bucket beside places takes its turn for good, if its cost is a number.
func TestReserveOfATurn(t *testing.T) {
	turns := per("a", stint.Concurrency(2), stint.LeakyBucket(9, stint.PerHour(1)).Named("turns"))
	turns.Costs = []rules.Cost{{}, {Permits: 3}}
	limiter, _ := newLimiter(t, turns)
	held, v := reserve(t, limiter, alice, stint.Hold{})
	if !v.Allowed {
		t.Fatalf("%+v", v)
	}
	if end, err := held.Commit(t.Context(), 1); err != nil || end.Applied != 0 {
		t.Fatal(end, err)
	}
	wantLeft(t, "committed", left(t, limiter, alice), map[string]int64{"a/turns": 6})
}

// A rule with a concurrency limit holds for reservations alone: nobody would give back its places.
func TestPlacesHoldForReservationsAlone(t *testing.T) {
	limiter, _ := newLimiter(t, metering()...)
	for range 3 {
		if v := decide(t, limiter, tokens("60")); !v.Allowed || len(v.Matched) != 1 || v.Matched[0] != "b" {
			t.Fatalf("%+v", v)
		}
	}
	wantLeft(t, "taken", left(t, limiter, tokens("1")), map[string]int64{"b/": 17})
}

// A request for which no limit holds is admitted, and nothing is held. A banned one is denied.
func TestReserveOfNothing(t *testing.T) {
	banned := per("banned")
	banned.Banned = true
	none, _ := newLimiter(t)
	if r, v := reserve(t, none, alice, stint.Hold{}); r != nil || !v.Allowed {
		t.Errorf("%v, %+v", r, v)
	}
	limiter, _ := newLimiter(t, append(metering(), banned)...)
	if r, v := reserve(t, limiter, alice, stint.Hold{}); r != nil || v.Allowed || v.Outcome != rules.Banned {
		t.Errorf("%v, %+v", r, v)
	}
}

// What a hold says of itself is judged whether a limit holds for the request or not.
func TestFaultsOfHoldsOfNothing(t *testing.T) {
	limiter, _ := newLimiter(t)
	v := new(enforce.Verdict)
	for _, hold := range []stint.Hold{{ID: "a\x7f"}, {ID: strings.Repeat("a", 129)}, {ID: "a", TTL: time.Millisecond}, {TTL: 2 * time.Hour}} {
		if r, err := limiter.Reserve(t.Context(), &alice, hold, v); r != nil || !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%+v is reserved: %v, %v", hold, r, err)
		}
		for _, verb := range []stint.Verb{stint.VerbCommit, stint.VerbCancel} {
			err := limiter.End(t.Context(), &alice, verb, &stint.HoldOp{Hold: hold}, 0, 0, nil, nil, v)
			if !errors.Is(err, stint.ErrInvalid) {
				t.Errorf("%v of %+v: %v", verb, hold, err)
			}
		}
	}
}

// A caller that leaves during its Reserve keeps nothing.
func TestReserveByRulesOfACallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, store := newLimiter(t, metering()...)
		store.Inject(func(call storetest.Call) storetest.Fault {
			lost := call.Ops[0].Verb == stint.VerbReserve
			return storetest.Fault{Block: lost, After: lost}
		})
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		var v enforce.Verdict
		if _, err := limiter.Reserve(ctx, &alice, stint.Hold{}, &v); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		synctest.Wait()
		wantLeft(t, "left", left(t, limiter, alice), map[string]int64{"places/places": 2, "places/requests": 50, "places/tokens": 100, "b/": 20})
	})
}

// A rule in shadow says what it would have decided, and one with places in shadow nothing.
func TestReserveWithShadows(t *testing.T) {
	shadow := per("shadow", stint.FixedWindow(1, time.Hour))
	shadow.OnExceed = rules.Shadow
	places := per("shadow-places", stint.Concurrency(1))
	places.OnExceed = rules.Shadow
	limiter, _ := newLimiter(t, append(metering(), shadow, places)...)
	reserve(t, limiter, alice, stint.Hold{})
	r, v := reserve(t, limiter, alice, stint.Hold{})
	if r == nil || !v.Allowed || len(v.Shadowed) != 1 || v.Shadowed[0] != "shadow" {
		t.Errorf("%v, %+v", r, v)
	}
}

// What the handler does not say is what was held, of every rule its own.
func TestWhatTheHandlerDoesNotSayIsWhatWasHeld(t *testing.T) {
	for _, costs := range [][2]rules.Cost{
		{{Permits: 5}, {Permits: 1}},
		{{Permits: 1}, {Permits: 5}},
		{{Attribute: "tokens", Permits: 5}, {Attribute: "bytes", Permits: 50}},
		{{Attribute: "tokens", Permits: 50}, {Permits: 5}},
	} {
		a, b := per("a", stint.FixedWindow(100, time.Hour)), per("b", stint.FixedWindow(100, time.Hour))
		a.Cost, b.Cost = costs[0], costs[1]
		limiter, _ := newLimiter(t, a, b)
		cost, _ := reserved(t, limiter, alice)
		held := left(t, limiter, alice)
		end := cost.Stop()
		must.Do(t, end.Send(t.Context()))
		wantLeft(t, fmt.Sprint("committed ", costs), left(t, limiter, alice), held)
	}
}
