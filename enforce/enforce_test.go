package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// Observers are told of each rule in shadow that would have denied, and why; a failure of one admits.
func TestShadowNeverDenies(t *testing.T) {
	banning := rules.Rule{ID: "would-ban", Scope: []string{rules.PerIP}, Banned: true, OnExceed: rules.Shadow}
	lacking := rules.Rule{ID: "would-lack", Scope: []string{rules.PerUser}, Missing: rules.MissingDeny, OnExceed: rules.Shadow, Limits: []stint.Limit{stint.FixedWindow(1, time.Hour)}}
	never := per("never", stint.FixedWindow(9, time.Hour), stint.TokenBucket(1, stint.PerHour(1))) // its second limit denies
	never.OnExceed, never.Cost.Permits = rules.Shadow, 2
	several, _ := newLimiter(t, banning, lacking, never)
	want := []string{"would-ban:192.0.2.77:banned", "would-lack:192.0.2.77:missing", "never:" + alice.Address + ":never"}
	v := decide(t, several, alice)
	var told []string
	v.Tell(t.Context(), &stint.Event{Claim: stint.Claim{Key: "192.0.2.77"}}, func(_ context.Context, e *stint.Event) {
		if e.Shadow {
			told = append(told, e.Rule+":"+e.Claim.Key+":"+string(e.Reason))
		}
	})
	if !slices.Equal(v.Shadowed, []string{"would-ban", "would-lack", "never"}) || !slices.Equal(told, want) {
		t.Errorf("shadowed %v: told %v, want %v", v.Shadowed, told, want)
	}
	shadow := per("shadow", stint.TokenBucket(1, stint.PerHour(1)))
	shadow.OnExceed = rules.Shadow
	alone, store := newLimiter(t, shadow)
	if v := decide(t, alone, alice); !slices.Equal(passed(v), []string{"shadow"}) {
		t.Errorf("alone, it would have admitted: %+v", v)
	}
	store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
	if v := decide(t, alone, alice); !v.Allowed || len(v.Shadowed)+len(passed(v)) > 0 {
		t.Errorf("a failure of a rule in shadow: %+v", v)
	}
}

func TestErrorsAdmitNobody(t *testing.T) {
	costly := per("a", stint.FixedWindow(1, time.Hour))
	costly.Cost.Attribute = "size"
	limiter, store := newLimiter(t, costly)
	v := decide(t, limiter, alice)
	bad := alice
	bad.Attributes = map[string]string{"size": "huge"}
	check := func(name string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) || v.Allowed || v.Rule != nil || v.Each != nil || !slices.Equal(v.Matched, []string{"a"}) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	check("a bad cost", limiter.Decide(t.Context(), &bad, v), stint.ErrInvalid)
	_, err := limiter.Explain(t.Context(), &bad)
	check("a bad cost, explained", err, stint.ErrInvalid)
	store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
	check("no store", limiter.Decide(t.Context(), &alice, v), stint.ErrUnavailable)
	if of := v.Claims(); len(of) != 1 || of[0].Rule.ID != "a" || of[0].Claim.Policy.Limit(0).Capacity != 1 {
		t.Errorf("no store: undecided are %+v, want a", of)
	}
	store.Inject(nil)
	if err := limiter.Decide(t.Context(), &alice, v); err != nil || len(v.Claims()) != 1 {
		t.Errorf("with a store: %v, decided are %+v", err, v.Claims())
	}
	if _, err := enforce.New(enforce.Config{}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("without a store: %v", err)
	}
}

// TestSwapWhole lets 512 goroutines decide while sets are swapped: every request is decided by the
// rules of one set, and the rule that all sets have counts exactly.
func TestSwapWhole(t *testing.T) {
	const workers, each, admits = 512, 20, 3000
	kept := per("kept", stint.FixedWindow(admits, 24*365*time.Hour))
	var sets []*rules.Set
	for i := range 2 {
		list := []rules.Rule{kept}
		for j := range 4 {
			list = append(list, per(fmt.Sprintf("set%d-%d", i, j), stint.FixedWindow(1_000_000, time.Hour)))
		}
		var previous *rules.Set
		if i > 0 {
			previous = sets[0]
		}
		sets = append(sets, setOf(t, previous, list...))
	}
	limiter, _ := newLimiter(t, kept)
	limiter.Swap(sets[0])
	var admitted atomic.Int64
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			var v enforce.Verdict
			for i := range each {
				if worker%8 == 0 {
					limiter.Swap(sets[i%2])
				}
				if err := limiter.Decide(context.Background(), &alice, &v); err != nil {
					t.Error(err)
					return
				}
				if v.Allowed {
					admitted.Add(1)
				}
				of := v.Matched[1][:4]
				for j, id := range v.Matched[1:] {
					if len(v.Matched) != 5 || id != fmt.Sprintf("%s-%d", of, j) {
						t.Errorf("matched are %v, not of one set", v.Matched)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if admitted.Load() != admits {
		t.Errorf("%d of %d were admitted, want exactly %d", admitted.Load(), workers*each, admits)
	}
}

// TestVerdictsAreReused: deciding with a verdict that was used before allocates nothing, with
// rules in shadow as well.
func TestVerdictsAreReused(t *testing.T) {
	budget := 0.0
	if raceEnabled {
		budget = 20 // the race detector makes the store's pool forget every fourth operation
	}
	var list []rules.Rule
	for i, onExceed := range []rules.OnExceed{rules.Reject, rules.Shadow, rules.Shadow} {
		rule := per(fmt.Sprintf("r%d", i), stint.FixedWindow(int64(1_000_000*(2-i)+1), time.Hour))
		rule.Scope, rule.OnExceed = []string{rules.Global}, onExceed // another scope's key is made for each request
		list = append(list, rule)
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: steady}), Set: setOf(t, nil, list...)})
	if err != nil {
		t.Fatal(err)
	}
	var v enforce.Verdict
	n := testing.AllocsPerRun(100, func() {
		if err := limiter.Decide(context.Background(), &alice, &v); err != nil {
			t.Fatal(err)
		}
	})
	if n > budget || len(passed(&v)) != 1 || len(v.Shadowed) != 1 {
		t.Errorf("%v allocations for a request that %v pass and %v don't, want 0", n, passed(&v), v.Shadowed)
	}

	org, team := organisation()
	team.Guaranteed["search"] = rules.Floor{Capacity: 10, Refill: stint.Per(1, 4*time.Hour)}
	shadow, extra := per("shadow", hourly(1)), per("extra", hourly(1000))
	shadow.OnExceed, extra.OnExceed, shadow.Otherwise = rules.Shadow, rules.Shadow, "extra"
	tenant, search := newTenant(t, org, team, shadow, extra), with("team", "search")
	vias := map[string]int{}
	n = testing.AllocsPerRun(30, func() {
		if err := tenant.limiter.Decide(context.Background(), &search, &v); err != nil {
			t.Fatal(err)
		}
		vias[v.Via]++
	})
	if n > budget || vias[rules.ViaGuaranteed] != 10 || vias[rules.ViaBorrowed] != 21 {
		t.Errorf("%v allocations for requests that are charged by %v, want 0", n, vias)
	}
}
