package rules_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// organisation is a limit of 100 permits and 10 a second, and its teams: search is sure of 30 and 3 a second, ads of 20 and 2.
func organisation() (org, team rules.Rule) {
	org = rules.Rule{ID: "org", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.TokenBucket(100, stint.PerSecond(10))}}
	team = rules.Rule{
		ID: "team", Within: "org", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip,
		Guaranteed: map[string]rules.Floor{
			"search": {Capacity: 30, Refill: stint.PerSecond(3)}, "ads": {Capacity: 20, Refill: stint.PerSecond(2)},
		},
		Borrow: rules.Borrow{Any: true},
	}
	return org, team
}

// users are sure of a part of their team's floor.
func users() rules.Rule {
	return rules.Rule{
		ID: "user", Within: "team", Scope: []string{rules.PerUser}, Missing: rules.MissingSkip,
		Guaranteed: map[string]rules.Floor{"ann": {Capacity: 5, Refill: stint.PerSecond(1)}}, Borrow: rules.Borrow{Any: true},
	}
}

func classes() rules.Classes {
	return rules.Classes{
		By: rules.ClassBy{Attribute: "class"}, Keep: map[string]rules.Percent{"critical": 0, "normal": 15, "batch": 40}, Default: "batch",
	}
}

// relatives are rules that are related, and changed by a patch: those of an organisation with teams and users, or without
// users, of API keys with floors for models, or of a quota with what is beyond it.
func relatives(t must.Test, of, changes string) (list []rules.Rule) {
	t.Helper()
	org, team := organisation()
	key, model := models()
	switch of {
	case "levels":
		list = []rules.Rule{org, team, users()}
	case "teams":
		list = []rules.Rule{org, team}
	case "models":
		list = []rules.Rule{key, model}
	case "otherwise":
		list = []rules.Rule{rule("quota"), rule("extra")}
		list[0].Otherwise = "extra"
	default:
		t.Fatal("no rules are ", of)
	}
	patchAll(t, list, changes)
	return list
}

// Every fault of a rule that is related to another one, or has classes, says what came and what is allowed. No API key is
// in it.
func TestFaultsOfRelatives(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Of, Name, Patch, Fault, Says string }](t, "testdata/relatives.txt") {
		t.Run(test.Of+"/"+test.Name, func(t *testing.T) {
			_, err := rules.Compile(relatives(t, test.Of, test.Patch), rules.Options{})
			checkFaults(t, err, test.Fault, test.Says)
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the fault has the key: %v", err)
			}
		})
	}
}

// Rules may be within each other over eight levels, and never in a circle.
func TestLevels(t *testing.T) {
	for levels := 2; levels <= 9; levels++ {
		org, _ := organisation()
		list := []rules.Rule{org}
		for i := 1; i < levels; i++ {
			list = append(list, rules.Rule{
				ID: fmt.Sprint("l", i), Within: list[i-1].ID, Scope: []string{rules.Custom(fmt.Sprint("a", i))}, Missing: rules.MissingSkip,
				Guaranteed: map[string]rules.Floor{"x": {Capacity: int64(20 - i), Refill: stint.PerSecond(1)}}, Borrow: rules.Borrow{Any: true},
			})
		}
		_, err := rules.Compile(list, rules.Options{})
		if levels <= 8 {
			checkFaults(t, err, "", "")
		} else {
			checkFaults(t, err, "l8:within", "a rule within at most 6 others, and not within itself")
		}
	}
	_, a := organisation()
	b := a
	a.ID, a.Within, b.ID, b.Within = "a", "b", "b", "a"
	_, err := rules.Compile([]rules.Rule{a, b}, rules.Options{})
	checkFaults(t, err, "a:within b:within", "not within itself")
}

// Whatever the weights are, they share out no more than there is, and what can't be shared out is a fault.
func TestWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...int64) int64 { return of[r.IntN(len(of))] }
	numbers := []int64{1, 2, 3, 10, 100, 1000, 12345, 999_999_937, bounds.MaxPermits}
	sound := 0
	for range 20_000 {
		org, team := organisation()
		period := time.Duration(pick(1000, 7000, 1_000_003, 1_000_000, 3_600_000_000, bounds.MaxPeriod.Microseconds())) * time.Microsecond
		limit := stint.TokenBucket(pick(numbers...), stint.Per(pick(numbers...), period))
		if limit.Validate() != nil {
			continue
		}
		org.Limits[0] = limit
		team.Guaranteed, team.Weights, team.Borrow.Any = nil, map[string]int64{}, true
		for i := range 1 + r.IntN(6) {
			team.Weights[fmt.Sprint(i)] = pick(numbers...)
		}
		set, err := rules.Compile([]rules.Rule{org, team}, rules.Options{})
		if err != nil {
			var fault *rules.Fault
			if !errors.As(err, &fault) {
				t.Fatalf("%v among %v: %v is no fault", limit, team.Weights, err)
			}
			continue
		}
		sound++
		sum, rate := int64(0), 0.0
		for name, weight := range team.Weights {
			claims, err := set.ClientClaims("team", name)
			if err != nil || len(claims) != 1 {
				t.Fatal(claims, err)
			}
			floor := claims[0].Policy.Limit(0)
			sum += floor.Capacity
			part := float64(floor.Rate.Permits) / float64(floor.Rate.Period) / float64(limit.Rate.Permits) * float64(limit.Rate.Period)
			if total := totalOf(team.Weights); part < float64(weight)/float64(total)*(1-1e-5) {
				t.Fatalf("%v among %v: %s has %v, %v of the rate", limit, team.Weights, name, floor.Rate, part)
			}
			rate += part
		}
		if sum >= limit.Capacity || rate > 1+1e-9 {
			t.Fatalf("%v among %v: floors of %d and %v of the rate", limit, team.Weights, sum, rate)
		}
	}
	if sound < 1000 {
		t.Errorf("only %d sets are sound", sound)
	}
}

func totalOf(weights map[string]int64) (total int64) {
	for _, w := range weights {
		total += w
	}
	return total
}

// claimsOf are what a rule of the set makes of a request: of each claim its key, way, keep and via.
func claimsOf(t *testing.T, set *rules.Set, id string, r rules.Request) (list []string) {
	t.Helper()
	var m rules.Matches
	must.Do(t, set.Match(&r, &m))
	for i := range m.Len() {
		if m.Rule(i).ID != id {
			continue
		}
		h := must.Get(m.AtTake(i))(t)
		if h.Outcome != rules.Limited {
			return []string{h.Outcome.String()}
		}
		for j, claim := range append([]stint.Claim{h.Claim}, h.And...) {
			via, way := "", "must"
			switch {
			case j >= len(h.Ways):
			case j == 0:
				way = "either"
			case h.Ways[j] == h.Ways[j-1]:
				way = "with"
			default:
				way = "else"
			}
			if j < len(h.Vias) {
				via = " " + h.Vias[j]
			}
			list = append(list, fmt.Sprintf("%s %s %s keeps %d%s", way, claim.Policy.Name(), claim.Key, claim.Keep, via))
		}
	}
	return list
}

// A floor is the client's in every partition.
func TestWithinOfPartitions(t *testing.T) {
	org, team := organisation()
	org.PartitionBy, org.Missing, team.PartitionBy = "tenant", rules.MissingSkip, "tenant"
	long := strings.Repeat("x", bounds.MaxKeyBytes)
	team.Guaranteed[long] = rules.Floor{Capacity: 1, Refill: stint.PerSecond(1)}
	set := compile(t, org, team)
	for _, name := range []string{"search", long} {
		r := rules.Request{Attributes: map[string]string{"tenant": "acme", "team": name}}
		got := claimsOf(t, set, "team", r)
		if len(got) != 3 || !strings.HasPrefix(got[0], "either rule/team {acme}") || got[2] != "else rule/org {acme}* keeps 51 borrowed" {
			t.Errorf("%.10s: %v", name, got)
		}
	}
	if claims, err := set.ClientClaims("team", "{acme}search"); err != nil || len(claims) != 1 {
		t.Errorf("%v, %v", claims, err)
	}
}

// What a client borrows is allowed by each rule between it and the limit that lends. A request that lacks a client of a
// rule between is decided by the rules that it has clients for, so that the one limit of all holds for every request that
// has a client there.
func TestClaimsOfRelatives(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Of, Patch, Request, Rule, Claims string }](t, "testdata/claims.txt") {
		set, request := compile(t, relatives(t, test.Of, test.Patch)...), rules.Request{}
		patch(t, &request, test.Request)
		if got := strings.Join(claimsOf(t, set, test.Rule, request), "; "); got != test.Claims {
			t.Errorf("%s of %s, %s: rule %s makes %s, want %s", test.Request, test.Of, test.Patch, test.Rule, got, test.Claims)
		}
	}
}

// Rules that stay as they are add as many limits as before, however often others change, and what a floor's rule says of
// failures holds.
func TestWithinOfTheNextSet(t *testing.T) {
	quota, extra := rule("quota"), rule("extra")
	quota.Otherwise = "extra"
	org, team := organisation()
	org.Match.Paths, team.Match.Paths = one("/o"), one("/o")
	set := compile(t, quota, extra, org, team)
	var err error
	for range 1001 {
		if set, err = rules.Compile([]rules.Rule{quota, extra, org, team}, rules.Options{Previous: set}); err != nil {
			t.Fatal(err)
		}
	}
	floor := func() *stint.Policy {
		claims := must.Get(set.ClientClaims("team", "ads"))(t)
		return claims[0].Policy
	}
	before := floor()
	if set, err = rules.Compile([]rules.Rule{org, team}, rules.Options{Previous: set}); err != nil || floor() != before {
		t.Errorf("the floor is another: %v", err)
	}
	team.OnStoreFailure, team.Timeout = rules.FailClosed, time.Second
	if set, err = rules.Compile([]rules.Rule{org, team}, rules.Options{Previous: set}); err != nil {
		t.Fatal(err)
	}
	if got, want := rules.FailureOf(floor()), (rules.Failure{Policy: rules.FailClosed, Timeout: time.Second}); got != want {
		t.Errorf("the floor has %+v, want %+v", got, want)
	}
}

// As many floors as there may be are added up at once, however odd their rates are, and thirds make a whole.
func TestSumsOfRefills(t *testing.T) {
	org, team := organisation()
	org.Limits[0] = stint.TokenBucket(bounds.MaxPermits, stint.PerSecond(1_000_000))
	team.Guaranteed = map[string]rules.Floor{}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 { // an exact sum takes minutes
		period := time.Duration(1000+r.Int64N(3_000_000_000)) * time.Microsecond
		team.Guaranteed[fmt.Sprint(i)] = rules.Floor{Capacity: 1, Refill: stint.Per(1, period)}
	}
	compile(t, org, team)

	org.Limits[0] = stint.TokenBucket(100, stint.PerSecond(1))
	team.Guaranteed = map[string]rules.Floor{}
	for i := range 3 {
		team.Guaranteed[fmt.Sprint(i)] = rules.Floor{Capacity: 1, Refill: stint.Per(1, 3*time.Second)}
	}
	compile(t, org, team)
	team.Guaranteed["3"] = rules.Floor{Capacity: 1, Refill: stint.Per(1, bounds.MaxPeriod)}
	_, err := rules.Compile([]rules.Rule{org, team}, rules.Options{})
	checkFaults(t, err, "team:guaranteed", "allowed: at most 1/s, what rule org has")
}
