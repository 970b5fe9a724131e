package rules_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
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

// family is a set of rules that are related, for tests to spoil.
type family struct{ org, team, user rules.Rule }

func (f *family) list() []rules.Rule { return []rules.Rule{f.org, f.team, f.user} }

// Every fault of a rule that is within another, or has classes, says what came and what is allowed.
func TestFaultsOfWithin(t *testing.T) {
	window := stint.FixedWindow(100, time.Second)
	for _, test := range []struct {
		name  string
		spoil func(*family)
		fault string // RULE:PARAM; "" wants none
		says  string
	}{
		{"sound", func(*family) {}, "", ""},

		{"own limits", func(f *family) { f.team.Limits = []stint.Limit{ten} }, "team:within", `within is "org"; allowed: only of a rule without limits`},
		{"unlimited", func(f *family) { f.team.Unlimited = true }, "team:within", "only of a rule without limits, unlimited"},
		{"banned", func(f *family) { f.team.Banned = true }, "team:within", "only of a rule without limits, unlimited, banned"},
		{"overrides", func(f *family) { f.team.Overrides = []rules.Override{{Key: "search", Banned: true}} }, "team:within", "and overrides"},
		{"within and otherwise", func(f *family) { f.team.Otherwise = "org" }, "team:within", "otherwise and overrides"},
		{"guaranteed alone", func(f *family) { f.org.Guaranteed = f.team.Guaranteed }, "org:guaranteed", "guaranteed is given; allowed: only with within"},
		{"weights alone", func(f *family) { f.org.Weights = map[string]int64{"*": 1} }, "org:weights", "only with within"},
		{"borrow alone", func(f *family) { f.org.Borrow.Any = true }, "org:borrow", "only with within"},
		{"max_cost alone", func(f *family) { f.org.MaxCost = 1 }, "org:max_cost", "only with within"},

		{"guaranteed and weights", func(f *family) { f.team.Weights = map[string]int64{"ads": 1} }, "team:weights", "weights is 1; allowed: none with guaranteed"},
		{"neither floors nor loans", func(f *family) { f.user.Guaranteed, f.user.Borrow.Any = nil, false }, "user:guaranteed", "guaranteed is missing; allowed: guaranteed, weights or borrow"},
		{"too many floors", func(f *family) {
			f.user.Guaranteed = map[string]rules.Floor{}
			for i := range 10_001 {
				f.user.Guaranteed[fmt.Sprint(i)] = rules.Floor{Capacity: 1, Refill: stint.PerDay(1)}
			}
		}, "user:guaranteed", "guaranteed is 10001; allowed: at most 10000 clients"},
		{"a floor of nobody", func(f *family) {
			f.user.Guaranteed = map[string]rules.Floor{"": {Capacity: 1, Refill: stint.PerSecond(1)}}
		}, "user:guaranteed.", "of which no part is empty"},
		{"a floor of another scope", func(f *family) {
			f.user.Guaranteed = map[string]rules.Floor{"a|b": {Capacity: 1, Refill: stint.PerSecond(1)}}
		}, "user:guaranteed.a|b", `guaranteed.a|b is "a|b"; allowed: 1 parts`},
		{"a floor of a composite client", func(f *family) {
			f.user.Scope = []string{rules.Custom("team"), rules.PerUser}
			f.user.Guaranteed = map[string]rules.Floor{`search|a\|b\\`: {Capacity: 1, Refill: stint.PerSecond(1)}}
		}, "", ""},
		{"a floor of a network", func(f *family) {
			f.user.Scope = []string{rules.PerIP}
			f.user.Guaranteed = map[string]rules.Floor{"10.0.0.0/8": {Capacity: 1, Refill: stint.PerSecond(1)}}
		}, "user:guaranteed.10.0.0.0/8", "a single address of IPv4"},
		{"a floor of an address", func(f *family) {
			f.user.Scope = []string{rules.PerIP}
			f.user.Guaranteed = map[string]rules.Floor{
				"192.0.2.1": {Capacity: 1, Refill: stint.PerSecond(1)}, "2001:db8:1:2::/64": {Capacity: 1, Refill: stint.PerSecond(1)},
			}
		}, "", ""},
		{"a floor of an address of IPv6", func(f *family) {
			f.user.Scope = []string{rules.PerIP}
			f.user.Guaranteed = map[string]rules.Floor{"2001:db8::1": {Capacity: 1, Refill: stint.PerSecond(1)}}
		}, "user:guaranteed.2001:db8::1", "allowed: 2001:db8::/64, by which the client is counted"},
		{"a floor without a capacity", func(f *family) { f.user.Guaranteed["ann"] = rules.Floor{Refill: stint.PerSecond(1)} }, "user:guaranteed.ann", "guaranteed.ann: capacity is 0; allowed: 1 to 1000000000"},
		{"a floor without a refill", func(f *family) { f.user.Guaranteed["ann"] = rules.Floor{Capacity: 1} }, "user:guaranteed.ann", "guaranteed.ann: refill permits is 0"},
		{"a floor below the cost", func(f *family) { f.user.Cost.Permits = 6 }, "user:guaranteed.ann.capacity", "guaranteed.ann.capacity is 5; allowed: 6 or more, what a request costs"},
		{"a weight of 0", func(f *family) { f.user.Guaranteed, f.user.Weights = nil, map[string]int64{"ann": 0} }, "user:weights.ann", "weights.ann is 0; allowed: 1 to 1000000000"},
		{"a weight above", func(f *family) { f.user.Guaranteed, f.user.Weights = nil, map[string]int64{"ann": 1_000_000_001} }, "user:weights.ann", "1 to 1000000000"},
		{"a weight of nobody", func(f *family) { f.user.Guaranteed, f.user.Weights = nil, map[string]int64{"": 1} }, "user:weights.", "no part is empty"},
		{"borrow of too many", func(f *family) { f.team.Borrow = rules.Borrow{Rate: stint.PerSecond(1_000_000_001)} }, "team:borrow", "borrow: capacity is 1000000001"},
		{"borrow of none", func(f *family) { f.team.Borrow = rules.Borrow{Any: true, Rate: stint.PerSecond(0)} }, "team:borrow", "borrow: capacity is 0"},
		{"borrow of less than none", func(f *family) { f.team.Borrow = rules.Borrow{Rate: stint.PerSecond(-1)} }, "team:borrow", "borrow: capacity is -1"},

		{"no bound on costs", func(f *family) { f.team.Cost.Attribute = "tokens" }, "team:max_cost", "max_cost is missing; allowed: the largest cost that requests name"},
		{"no bound on costs of floors alone", func(f *family) { f.team.Cost.Attribute, f.team.Borrow.Any = "tokens", false }, "", ""},
		{"a bound on costs", func(f *family) { f.team.Cost.Attribute, f.team.MaxCost = "tokens", 50 }, "", ""},
		{"a bound on no costs", func(f *family) { f.team.MaxCost = 1 }, "team:max_cost", "max_cost is 1; allowed: none where requests name no cost"},
		{"a bound below none", func(f *family) { f.team.Cost.Header, f.team.MaxCost = "X-Cost", -1 }, "team:max_cost", "max_cost is -1; allowed: 1 to 1000000000"},
		{"a bound below the default", func(f *family) { f.team.Cost, f.team.MaxCost = rules.Cost{Attribute: "tokens", Permits: 6}, 5 }, "team:max_cost", "max_cost is 5; allowed: 6 or more, what a request costs that names nothing"},
		{"a bound as the default", func(f *family) { f.team.Cost, f.team.MaxCost = rules.Cost{Attribute: "tokens", Permits: 5}, 5 }, "", ""},
		{"costs that fit nowhere", func(f *family) { f.team.Cost.Attribute, f.team.MaxCost = "tokens", 51 }, "team:borrow", "borrow is of 50 permits that no floor needs; allowed: at least 51, the largest cost"},

		{"an unknown rule", func(f *family) { f.team.Within, f.user.Within = "nobody", "org" }, "team:within", `within is "nobody"; allowed: the ID of another rule of the set`},
		{"itself", func(f *family) { f.team.Within, f.user.Within = "team", "org" }, "team:within", "the ID of another rule"},
		{"two children", func(f *family) { f.user.Within = "org" }, "user:within", "a rule that no other one names: rule team does"},
		{"a window", func(f *family) { f.org.Limits[0] = window }, "team:within", "a rule with one limit, a token bucket without a lease: in a window what one client leaves can't be lent"},
		{"two limits", func(f *family) { f.org.Limits = append(f.org.Limits, window) }, "team:within", "a rule with one limit"},
		{"a lease", func(f *family) { f.org.Limits[0] = f.org.Limits[0].WithLease(2) }, "team:within", "without a lease"},
		{"a limit of its own cost", func(f *family) { f.org.Costs = []rules.Cost{{Permits: 2}} }, "team:within", "rules whose limits have no costs of their own"},
		{"within what is unlimited", func(f *family) { f.org.Limits, f.org.Unlimited = nil, true }, "team:within", "without unlimited, banned and overrides"},
		{"within what is banned", func(f *family) { f.org.Limits, f.org.Banned = nil, true }, "team:within", "without unlimited, banned and overrides"},
		{"within overrides", func(f *family) { f.org.Overrides = []rules.Override{{Key: "*", Unlimited: true}} }, "team:within", "without unlimited, banned and overrides"},
		{"within what is disabled", func(f *family) { f.org.Disabled = true }, "team:within", "and enabled as this one is"},
		{"a child that is disabled", func(f *family) { f.user.Disabled = true }, "user:within", "and enabled as this one is"},
		{"all are disabled", func(f *family) { f.org.Disabled, f.team.Disabled, f.user.Disabled = true, true, true }, "", ""},
		{"within shadow", func(f *family) { f.org.OnExceed = rules.Shadow }, "team:within", "a rule in shadow if this one is"},
		{"a child in shadow", func(f *family) { f.user.OnExceed = rules.Shadow }, "user:within", "a rule in shadow if this one is"},
		{"all in shadow", func(f *family) {
			f.org.OnExceed, f.team.OnExceed, f.user.OnExceed = rules.Shadow, rules.Shadow, rules.Shadow
		}, "", ""},
		{"within a parameter", func(f *family) {
			f.org.Scope, f.org.Match.Paths = []string{rules.Custom("org")}, one("/{org}/**")
		}, "team:within", "a rule whose scope names no parameter of its paths"},
		{"partitions of floors alone", func(f *family) { f.team.PartitionBy, f.user.PartitionBy = "tenant", "tenant" }, "team:within", "a rule with the same partition_by, since floors of several partitions can't share one limit"},
		{"partitions of all", func(f *family) {
			f.org.PartitionBy, f.team.PartitionBy, f.user.PartitionBy, f.org.Missing = "tenant", "tenant", "tenant", rules.MissingSkip
		}, "", ""},
		{"capacities", func(f *family) { f.team.Guaranteed["search"] = rules.Floor{Capacity: 81, Refill: stint.PerSecond(3)} }, "team:guaranteed", "guaranteed is capacities of 101 together; allowed: at most 100, what rule org has"},
		{"refills", func(f *family) {
			f.team.Guaranteed["search"] = rules.Floor{Capacity: 30, Refill: stint.Per(17, 2*time.Second)}
		}, "team:guaranteed", "guaranteed is refills of 10.5/s together; allowed: at most 10/s, what rule org has"},
		{"refills of all", func(f *family) { f.team.Guaranteed["search"] = rules.Floor{Capacity: 30, Refill: stint.PerSecond(8)} }, "", ""},
		{"capacities of users", func(f *family) { f.user.Guaranteed["ann"] = rules.Floor{Capacity: 21, Refill: stint.PerSecond(1)} }, "user:guaranteed", "capacities of 21 together; allowed: at most 20, what the smallest floor of rule team has"},
		{"refills of users", func(f *family) { f.user.Guaranteed["ann"] = rules.Floor{Capacity: 5, Refill: stint.PerSecond(3)} }, "user:guaranteed", "refills of 3/s together; allowed: at most 2/s, what the smallest floor of rule team has"},
		{"floors within none", func(f *family) { f.team.Guaranteed = nil }, "user:guaranteed", "guaranteed is 1; allowed: none, since no client of rule team has a floor that could hold them"},
		{"weights within none", func(f *family) {
			f.team.Guaranteed, f.user.Guaranteed, f.user.Weights = nil, nil, map[string]int64{"ann": 1}
		}, "user:weights", "weights is 1; allowed: none, since no client"},
		{"loans within none", func(f *family) { f.team.Guaranteed, f.user.Guaranteed = nil, nil }, "", ""},
		{"nothing to borrow", func(f *family) { f.team.Guaranteed["search"] = rules.Floor{Capacity: 80, Refill: stint.PerSecond(3)} }, "team:borrow", "borrow is of 0 permits that no floor needs; allowed: at least 1"},

		{"more weights than permits", func(f *family) {
			f.user.Guaranteed, f.user.Weights = nil, map[string]int64{}
			for i := range 21 {
				f.user.Weights[fmt.Sprint(i)] = 1
			}
		}, "user:weights", "weights is capacities of 21 together; allowed: at most 20"},
		{"a weight that is almost nothing", func(f *family) {
			f.org.Limits[0] = stint.TokenBucket(100, stint.PerHour(1))
			f.team.Guaranteed, f.team.Weights = nil, map[string]int64{"search": 1_000_000_000, "ads": 1}
			f.user.Guaranteed = nil
		}, "team:weights.ads", "weights.ads is 1; allowed: a part of the refill of 1/h that is at least a permit in 366d"},
		{"a weight below the cost", func(f *family) {
			f.team.Guaranteed, f.team.Weights, f.team.Cost.Permits = nil, map[string]int64{"search": 30, "ads": 1}, 5
			f.user.Guaranteed = nil
		}, "team:weights.ads", "a part of the capacity of at least 5, what a request costs; it is 2"},

		{"no attribute of classes", func(f *family) { f.org.Classes, f.org.Classes.By.Attribute = classes(), "" }, "org:classes.by.attribute", "the name of an attribute"},
		{"no classes", func(f *family) { f.org.Classes = rules.Classes{Default: "a"} }, "org:classes.by.attribute org:classes.keep org:classes.default", "classes.keep is 0; allowed: 1 to 16 classes"},
		{"no default class", func(f *family) { f.org.Classes, f.org.Classes.Default = classes(), "" }, "org:classes.default", `classes.default is ""; allowed: one of the classes of keep`},
		{"another default class", func(f *family) { f.org.Classes, f.org.Classes.Default = classes(), "none" }, "org:classes.default", `classes.default is "none"; allowed: one of the classes of keep`},
		{"a class that keeps all", func(f *family) { f.org.Classes = classes(); f.org.Classes.Keep["batch"] = 100 }, "org:classes.keep.batch", "classes.keep.batch is 100; allowed: 0% to 99%"},
		{"a class that keeps less than none", func(f *family) { f.org.Classes = classes(); f.org.Classes.Keep["batch"] = -1 }, "org:classes.keep.batch", "0% to 99%"},
		{"a class without a name", func(f *family) { f.org.Classes = classes(); f.org.Classes.Keep[""] = 1 }, "org:classes.keep", "names of 1 to 256 bytes"},
		{"too many classes", func(f *family) {
			f.org.Classes = classes()
			for i := range 14 {
				f.org.Classes.Keep[fmt.Sprint(i)] = 1
			}
		}, "org:classes.keep", "classes.keep is 17; allowed: 1 to 16 classes"},
		{"classes of users", func(f *family) { f.user.Classes = classes() }, "", ""},
		{"classes of what is unlimited", func(f *family) {
			f.org.Limits, f.org.Unlimited, f.org.Classes, f.team.Within, f.team.Guaranteed, f.team.Borrow.Any, f.team.Limits, f.user.Guaranteed, f.user.Within, f.user.Borrow.Any, f.user.Limits = nil, true, classes(), "", nil, false, []stint.Limit{ten}, nil, "", false, []stint.Limit{ten}
		}, "org:classes", "classes is given; allowed: none of a rule that is unlimited or banned"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := family{user: users()}
			f.org, f.team = organisation()
			test.spoil(&f)
			_, err := rules.Compile(f.list(), rules.Options{})
			checkFaults(t, err, test.fault, test.says)
		})
	}
}

// checkFaults compares faults with RULE:PARAM of each, and one of them with what it says.
func checkFaults(t *testing.T, err error, want, says string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err == nil {
		t.Fatal("no fault is found, want ", want)
	}
	var got []string
	for _, fault := range faultsOf(t, err) {
		got = append(got, fault.ID+":"+fault.Param)
	}
	if !slices.Equal(got, strings.Fields(want)) || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v: %v\nwant %s that says %q", got, err, want, says)
	}
}

func TestFaultsOfOtherwise(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(quota, extra *rules.Rule)
		fault string
		says  string
	}{
		{"sound", func(_, _ *rules.Rule) {}, "", ""},
		{"unknown", func(q, _ *rules.Rule) { q.Otherwise = "nobody" }, "quota:otherwise", `otherwise is "nobody"; allowed: the ID of another rule of the set`},
		{"itself", func(q, _ *rules.Rule) { q.Otherwise = "quota" }, "quota:otherwise", "the ID of another rule"},
		{"each other", func(_, e *rules.Rule) { e.Otherwise = "quota" }, "quota:otherwise extra:otherwise", "rules that are related to no others"},
		{"of what is banned", func(q, _ *rules.Rule) { q.Limits, q.Banned = nil, true }, "quota:otherwise", "none of a rule that is unlimited or banned"},
		{"what is banned", func(_, e *rules.Rule) { e.Limits, e.Banned = nil, true }, "quota:otherwise", "without unlimited, banned and overrides"},
		{"overrides beyond", func(_, e *rules.Rule) { e.Overrides = []rules.Override{{Key: "192.0.2.1", Unlimited: true}} }, "quota:otherwise", "without unlimited, banned and overrides"},
		{"own overrides", func(q, _ *rules.Rule) {
			q.Overrides = []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{stint.TokenBucket(1, stint.PerSecond(1))}}}
		}, "", ""},
		{"a leaky bucket", func(q, _ *rules.Rule) { q.Limits[0] = stint.LeakyBucket(5, stint.PerSecond(1)) }, "quota:otherwise", "are no leaky buckets, as limits[0] of rule quota does or is"},
		{"a lease beyond", func(_, e *rules.Rule) { e.Limits = append(e.Limits, ten.Named("b").WithLease(2)) }, "quota:otherwise", "as limits[1] of rule extra"},
		{"counted denials", func(_, e *rules.Rule) {
			e.Limits = []stint.Limit{stint.SlidingWindowLog(5, time.Second).CountingDenied()}
		}, "quota:otherwise", "count no denied requests"},
		{"a leaky bucket of an override", func(q, _ *rules.Rule) {
			q.Overrides = []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{stint.LeakyBucket(5, stint.PerSecond(1))}}}
		}, "quota:otherwise", "as overrides[0].limits[0] of rule quota"},
		{"places", func(q, _ *rules.Rule) { q.Limits = []stint.Limit{stint.Concurrency(5)} }, "quota:otherwise", "two rules of which each has a concurrency limit, or neither"},
		{"places of both", func(q, e *rules.Rule) {
			q.Limits, e.Limits = []stint.Limit{stint.Concurrency(5)}, []stint.Limit{stint.Concurrency(9)}
		}, "", ""},
		{"places of an override", func(q, _ *rules.Rule) {
			q.Overrides = []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{stint.Concurrency(5)}}}
		}, "quota:otherwise", "two rules of which each has a concurrency limit"},
		{"costs of limits", func(q, _ *rules.Rule) { q.Costs = []rules.Cost{{Permits: 2}} }, "quota:otherwise", "no costs of their own"},
		{"costs of an override", func(q, _ *rules.Rule) {
			q.Overrides = []rules.Override{{Key: "192.0.2.1", Limits: []stint.Limit{ten}, Costs: []rules.Cost{{Permits: 2}}}}
		}, "quota:otherwise", "no costs of their own"},
		{"shadow", func(q, _ *rules.Rule) { q.OnExceed = rules.Shadow }, "quota:otherwise", "a rule in shadow if this one is"},
	} {
		t.Run(test.name, func(t *testing.T) {
			quota, extra := rule("quota"), rule("extra")
			quota.Otherwise = "extra"
			quota.Limits, extra.Limits = slices.Clone(quota.Limits), slices.Clone(extra.Limits)
			test.spoil(&quota, &extra)
			_, err := rules.Compile([]rules.Rule{quota, extra}, rules.Options{})
			checkFaults(t, err, test.fault, test.says)
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

// An API key that has a floor is in no fault, and has one floor, however it is written.
func TestFloorsOfAPIKeys(t *testing.T) {
	f := family{user: users()}
	f.org, f.team = organisation()
	f.user.Scope = []string{rules.PerAPIKey}
	f.user.Guaranteed = map[string]rules.Floor{"s3cret": {}, "s3cret|x": {Capacity: 1, Refill: stint.PerSecond(1)}}
	_, err := rules.Compile(f.list(), rules.Options{})
	if err == nil || strings.Contains(err.Error(), "s3cret") || len(faultsOf(t, err)) != 2 {
		t.Errorf("got %v, want two faults without the key", err)
	}
	floor := rules.Floor{Capacity: 1, Refill: stint.PerSecond(1)}
	f.user.Guaranteed = map[string]rules.Floor{"s3cret": floor, rules.HashedClient("s3cret"): floor}
	_, err = rules.Compile(f.list(), rules.Options{})
	checkFaults(t, err, "user:guaranteed", "each client once")
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

// What a client borrows is allowed by each rule between it and the limit that lends.
func TestBorrowOfLevels(t *testing.T) {
	f := family{user: users()}
	f.org, f.team = organisation()
	request := func(team, user string) rules.Request {
		return rules.Request{User: user, Attributes: map[string]string{"team": team}}
	}
	set := compile(t, f.list()...)
	for user, want := range map[string][]string{
		"ann": {
			"either rule/user ann keeps 0 guaranteed", "with rule/team search keeps 0 guaranteed", "with rule/org * keeps 0 guaranteed",
			"else rule/team search keeps 5 borrowed", "with rule/org * keeps 0 borrowed", "else rule/org * keeps 50 borrowed",
		},
		"bob": {"either rule/team search keeps 5 borrowed", "with rule/org * keeps 0 borrowed", "else rule/org * keeps 50 borrowed"},
	} {
		if got := claimsOf(t, set, "user", request("search", user)); !slices.Equal(got, want) {
			t.Errorf("%s: %q", user, got)
		}
	}
	if got := claimsOf(t, set, "user", request("other", "ann")); !slices.Equal(got, []string{"must rule/org * keeps 50 borrowed"}) {
		t.Errorf("of a team without a floor: %q", got)
	}
	f.user.Borrow.Any = false
	set = compile(t, f.list()...)
	for team, want := range map[string][]string{
		"search": {"must rule/user ann keeps 0 guaranteed", "must rule/team search keeps 0 guaranteed", "must rule/org * keeps 0 guaranteed"},
		"other":  {"must rule/org * keeps 100 borrowed"}, // which admits nothing
	} {
		if got := claimsOf(t, set, "user", request(team, "ann")); !slices.Equal(got, want) {
			t.Errorf("without borrowing, of %s: %q", team, got)
		}
	}
	f.user.Borrow.Any, f.team.Borrow.Any = true, false
	set = compile(t, f.list()...)
	if got := claimsOf(t, set, "user", request("search", "bob")); !slices.Equal(got, []string{"must rule/team search keeps 5 borrowed", "must rule/org * keeps 0 borrowed"}) {
		t.Errorf("of a team that does not borrow: %q", got)
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

// A request that lacks a client of a rule between is decided by the rules that it has clients for. So the one limit of all
// holds for every request that has a client there.
func TestRequestsThatLackALevel(t *testing.T) {
	f := family{user: users()}
	f.org, f.team = organisation()
	set := compile(t, f.list()...)
	everybody := rules.Request{User: "ann", Attributes: map[string]string{"team": "search"}}
	noTeam, noUser := everybody, everybody
	noTeam.Attributes, noUser.User = nil, ""
	for _, test := range []struct {
		name            string
		request         rules.Request
		org, team, user int // how many claims each rule makes; -1 is included, -2 skipped
	}{
		{"everything", everybody, -1, -1, 6}, {"no user", noUser, -1, 3, -2}, {"no team", noTeam, 1, -2, -2}, {"neither", rules.Request{}, 1, -2, -2},
	} {
		for id, want := range map[string]int{"org": test.org, "team": test.team, "user": test.user} {
			claims := claimsOf(t, set, id, test.request)
			got := len(claims)
			if got == 1 {
				got = map[string]int{"included": -1, "skipped": -2}[claims[0]]
				if got == 0 {
					got = 1
				}
			}
			if got != want {
				t.Errorf("%s: rule %s makes %q", test.name, id, claims)
			}
		}
	}
}
