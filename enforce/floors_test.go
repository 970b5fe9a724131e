package enforce_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// randomFloors are rules within each other, two to five levels, with whatever fields they may have.
func randomFloors(r *rand.Rand) []rules.Rule {
	levels := 2 + r.IntN(4)
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	partition := one("", "", "org")
	capacity, refill := 20+r.Int64N(200), stint.Per(1+r.Int64N(30), time.Duration(1+r.IntN(3000))*time.Millisecond)
	list := []rules.Rule{{
		ID: "l0", Scope: []string{rules.Custom("org")}, Missing: rules.MissingSkip, PartitionBy: partition,
		Limits: []stint.Limit{stint.TokenBucket(capacity, refill)},
	}}
	for i := 1; i < levels; i++ {
		rule := rules.Rule{
			ID: fmt.Sprint("l", i), Within: list[i-1].ID, Missing: rules.MissingSkip, PartitionBy: partition,
			Scope: [][]string{{rules.Custom(fmt.Sprint("a", i))}, {rules.PerUser}, {rules.PerAPIKey}, {rules.PerIP}, {rules.Custom("org"), rules.PerUser}}[r.IntN(5)],
		}
		if r.IntN(4) > 0 {
			rule.Borrow = []rules.Borrow{{Any: true}, {Rate: stint.Per(1+r.Int64N(20), time.Second)}}[r.IntN(2)]
		}
		if r.IntN(3) == 0 {
			rule.Classes = rules.Classes{By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"a": 0, "b": rules.Percent(r.IntN(100))}, Default: "a"}
		}
		clients := clientsOf(&rule)
		clients = clients[:r.IntN(len(clients)+1)]
		if r.IntN(2) == 0 {
			rule.Weights = map[string]int64{}
			for _, c := range clients {
				rule.Weights[c] = 1 + r.Int64N(20)
			}
		} else {
			rule.Guaranteed = map[string]rules.Floor{}
			for _, c := range clients {
				rule.Guaranteed[c] = rules.Floor{
					Capacity: 1 + r.Int64N(max(1, capacity/int64(len(clients)*2))),
					Refill:   stint.Per(refill.Permits, refill.Period*time.Duration((1+r.IntN(3))*(len(clients)+1))*time.Duration(i)),
				}
			}
		}
		list = append(list, rule)
		capacity /= 4
	}
	return list
}

// clientsOf are clients that the rule may have, which randomRequest asks for.
func clientsOf(rule *rules.Rule) []string {
	if len(rule.Scope) > 1 {
		return []string{`acme|a\|b`, "acme|ann", `odd{}|{x}y`}
	}
	switch rule.Scope[0] {
	case rules.PerIP:
		return []string{"192.0.2.1", "2001:db8:1:2::/64", "unknown"}
	default:
		return []string{`a\|b`, "ann", "{x}y"}
	}
}

func randomRequest(r *rand.Rand) rules.Request {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	value := func() string { return one("a|b", "ann", "{x}y", "nobody", "") }
	return rules.Request{
		Path: "/", User: value(), APIKey: value(), Address: one("192.0.2.1", "2001:db8:1:2::/64", "unknown", "192.0.2.7"),
		Attributes: map[string]string{
			"org": one("acme", "odd{}", ""), "a1": value(), "a2": value(), "a3": value(), "a4": value(), "class": one("a", "b", "c"),
		},
	}
}

// Whatever rules are within each other, and whoever asks: no request is an error, a client whose floor has a permit is
// admitted, and all together get no more than the outermost limit has.
func TestFloorsOfRandomRules(t *testing.T) {
	sets, guaranteed, borrowed := 0, 0, 0
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 7))
		list := randomFloors(r)
		set, err := rules.Compile(list, rules.Options{})
		if err != nil {
			if fault := (*rules.Fault)(nil); !errors.As(err, &fault) {
				t.Fatalf("seed %d: %v is no fault", seed, err)
			}
			continue
		}
		sets++
		clock := storetest.NewClock(1_790_000_000_000_000)
		store := memstore.New(memstore.Config{Now: clock.Now})
		limiter := must.Get(enforce.New(enforce.Config{Store: store, Set: set}))(t)
		begun, root := clock.Instant(), list[0].Limits[0]
		admitted := map[string]int64{} // by organisation
		for range 400 {
			if r.IntN(10) == 0 {
				clock.Advance(time.Duration(r.IntN(200)) * time.Millisecond)
			}
			request := randomRequest(r)
			sure := floorOf(t, set, store, &request)
			v := decide(t, limiter, request)
			if sure && !v.Allowed {
				t.Fatalf("seed %d: %+v is denied by %s, and its floor has a permit\n%+v", seed, request, v.Rule.ID, list)
			}
			if v.Allowed {
				admitted[request.Attributes["org"]]++ // whatever else the request lacks
			}
			switch v.Via {
			case rules.ViaGuaranteed:
				guaranteed++
			case rules.ViaBorrowed:
				borrowed++
			}
		}
		for org, n := range admitted {
			seconds := time.Duration((clock.Instant() - begun) * 1000).Seconds()
			bound := float64(root.Capacity) + seconds*float64(root.Rate.Permits)/root.Rate.Period.Seconds()
			if org != "" && float64(n) > bound {
				t.Fatalf("seed %d: %s is admitted %d, at most %v\n%+v", seed, org, n, bound, list)
			}
		}
	}
	if sets < 200 || guaranteed < 1000 || borrowed < 1000 {
		t.Errorf("%d sets, %d by floors and %d borrowed", sets, guaranteed, borrowed)
	}
}

// floorOf reports whether the request is sure of being admitted: the innermost rule that decides it has a floor for its
// client, the first way is to charge that, and it has a permit.
func floorOf(t *testing.T, set *rules.Set, store stint.Store, request *rules.Request) bool {
	t.Helper()
	var m rules.Matches
	must.Do(t, set.Match(request, &m))
	for i := range m.Len() {
		var h rules.Matched
		must.Do(t, m.At(i, stint.VerbTake, &h))
		if h.Outcome != rules.Limited || len(h.Vias) == 0 || h.Vias[0] != rules.ViaGuaranteed {
			continue
		}
		claim := stint.Claim{Key: h.Claim.Key, Policy: h.Claim.Policy, Permits: 1, Keep: h.Claim.Keep}
		d := must.Get(store.Decide(t.Context(), stint.Op{Verb: stint.VerbPeek, Claim: claim}))(t)
		return d.Allowed
	}
	return false
}
