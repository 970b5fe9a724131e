package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/rules"
)

func TestValidate(t *testing.T) {
	many := func(n int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("M%d", i)
		}
		return list
	}
	pairs := func(n int) map[string]string {
		all := map[string]string{}
		for _, name := range many(n) {
			all[name] = "v"
		}
		return all
	}
	override := func(o rules.Override, scope ...string) func(*rules.Rule) {
		return func(r *rules.Rule) {
			r.Scope, r.Overrides = scope, []rules.Override{o}
			if scope[len(scope)-1] != rules.Global && scope[len(scope)-1] != rules.PerIP {
				r.Missing = rules.MissingSkip
			}
		}
	}
	pause := rules.Block{After: 20, For: time.Minute}
	leaky := stint.LeakyBucket(5, stint.PerSecond(1))
	places := func() []stint.Limit { return []stint.Limit{stint.Concurrency(5)} }
	for _, test := range []struct {
		name  string
		spoil func(*rules.Rule)
		param string // of the fault; "" wants none
		says  string // what came and what is allowed
	}{
		{"sound", func(*rules.Rule) {}, "", ""},
		{"no id", func(r *rules.Rule) { r.ID = "" }, "id", `id is ""; allowed: 1 to 96`},
		{"id with space", func(r *rules.Rule) { r.ID = "a b" }, "id", `id is "a b"; allowed`},
		{"id of all letters", func(r *rules.Rule) { r.ID = "aZ0-_.:" }, "", ""},
		{"longest id", func(r *rules.Rule) { r.ID = strings.Repeat("x", bounds.MaxIDBytes) }, "", ""},
		{"longer id", func(r *rules.Rule) { r.ID = strings.Repeat("x", bounds.MaxIDBytes+1) }, "id", "1 to 96"},
		{"id of a dot", func(r *rules.Rule) { r.ID = "." }, "id", `id is "."; allowed: 1 to 96 letters, digits or any of - _ . : and not . or .. alone`},
		{"id of dots", func(r *rules.Rule) { r.ID = ".." }, "id", "not . or .. alone"},
		{"id of more dots", func(r *rules.Rule) { r.ID = "..." }, "", ""},
		{"longest name and set", func(r *rules.Rule) { r.Name, r.Set = strings.Repeat("\u00e4", 64), strings.Repeat("x", 128) }, "", ""},
		{"longer name", func(r *rules.Rule) { r.Name = strings.Repeat("\u00e4", 65) }, "name", "allowed: up to 128 bytes of UTF-8"},
		{"set", func(r *rules.Rule) { r.Set = "a\nb" }, "set", `set is "a\nb"; allowed: up to 128 bytes of UTF-8 without control characters`},
		{"labels", func(r *rules.Rule) { r.Labels = pairs(65) }, "labels", "labels is 65; allowed: at most 64"},

		{"methods", func(r *rules.Rule) { r.Match.Methods = many(17) }, "match.methods", "is 17; allowed: at most 16"},
		{"method", func(r *rules.Rule) { r.Match.Methods = []string{"GET "} }, "match.methods", `"GET "`},
		{"method in lower case", func(r *rules.Rule) { r.Match.Methods = []string{"get"} }, "match.methods", `"get"; allowed: GET`},
		{"method in mixed case", func(r *rules.Rule) { r.Match.Methods = []string{"Patch"} }, "match.methods", `"Patch"; allowed: PATCH`},
		{"method of others", func(r *rules.Rule) { r.Match.Methods = []string{"m-search", "GETS"} }, "", ""},
		{"method twice", func(r *rules.Rule) { r.Match.Methods = []string{"GET", "GET"} }, "match.methods", "once"},
		{"path", func(r *rules.Rule) { r.Match.Paths = one("users") }, "match.path", `match.path is "users"; allowed: a path such as`},
		{"paths", func(r *rules.Rule) { r.Match.Paths = many(65) }, "match.paths", "match.paths is 65; allowed: at most 64"},
		{"one of paths", func(r *rules.Rule) { r.Match.Paths = []string{"/a", ""} }, "match.paths[1]", `match.paths[1] is ""; allowed: a path such as`},
		{"path twice", func(r *rules.Rule) { r.Match.Paths = []string{"/a", "/a"} }, "match.paths[1]", `"/a"; allowed: each once`},
		{"paths without the parameter", func(r *rules.Rule) {
			r.Match.Paths, r.Scope = []string{"/a/{id}", "/b/*", "/c/{id}"}, []string{"custom:id"}
		}, "match.paths[1]", `match.paths[1] is "/b/*"; allowed: a path with {id}, which the scope counts by`},
		{"exception", func(r *rules.Rule) { r.Match.Except = one("a") }, "match.except[0]", `match.except[0] is "a"; allowed: a path such as`},
		{"exceptions", func(r *rules.Rule) { r.Match.Except = many(65) }, "match.except", "at most 64"},
		{"one of hosts", func(r *rules.Rule) { r.Match.Hosts = []string{"a", "*"} }, "match.hosts[1]", `match.hosts[1] is "*"; allowed: a host`},
		{"host", func(r *rules.Rule) { r.Match.Hosts = one("a.example:80") }, "match.host", `match.host is "a.example:80"; allowed: a host`},
		{"fields", func(r *rules.Rule) { r.Match.Headers = pairs(17) }, "match.headers", "is 17; allowed: at most 16"},
		{"attribute's name", func(r *rules.Rule) { r.Match.Attributes = map[string][]string{"": {"v"}} }, "match.attributes", `is ""; allowed: names`},
		{"attribute's values", func(r *rules.Rule) { r.Match.Attributes = map[string][]string{"plan": nil} }, "match.attributes.plan", "is 0; allowed: 1 to 64 values"},
		{"attribute's value", func(r *rules.Rule) {
			r.Match.Attributes = map[string][]string{"plan": {strings.Repeat("x", 257)}}
		}, "match.attributes.plan", "at most 256 bytes"},
		{"field's name", func(r *rules.Rule) { r.Match.Headers = map[string]string{"a:": "v"} }, "match.headers", `"a:"`},
		{"field's value", func(r *rules.Rule) { r.Match.Headers = map[string]string{"a": " v"} }, "match.headers.a", `" v"`},
		{"empty value", func(r *rules.Rule) { r.Match.Headers = map[string]string{"a": ""} }, "", ""},

		{"no scope", func(r *rules.Rule) { r.Scope = nil }, "scope", "scope is missing; allowed: global, per_ip"},
		{"scope", func(r *rules.Rule) { r.Scope = []string{"per_moon"}; r.Missing = rules.MissingSkip }, "scope", `scope is "per_moon"; allowed: global`},
		{"custom of nothing", func(r *rules.Rule) { r.Scope = []string{"custom:"}; r.Missing = rules.MissingSkip }, "scope", `"custom:"`},
		{"global with another", func(r *rules.Rule) { r.Scope = []string{rules.Global, rules.PerIP} }, "scope", `"global"`},
		{"scope twice", func(r *rules.Rule) { r.Scope = []string{rules.PerIP, rules.PerIP} }, "scope", "each part once"},
		{"missing unset", func(r *rules.Rule) { r.Scope = []string{rules.PerUser} }, "missing", "skip, deny or ip"},
		{"missing of a parameter", func(r *rules.Rule) { r.Match.Paths, r.Scope = one("/u/{id}"), []string{"custom:id"} }, "", ""},
		{"missing of an encoded parameter", func(r *rules.Rule) { r.Match.Paths, r.Scope = one("/u/{%69d}"), []string{"custom:id"} }, "", ""},
		{"missing of another parameter", func(r *rules.Rule) { r.Match.Paths, r.Scope = one("/u/{id}"), []string{"custom:name"} }, "missing", "skip"},
		{"missing_status", func(r *rules.Rule) {
			r.Scope, r.Missing, r.MissingStatus = []string{rules.PerUser}, rules.MissingDeny, 403
		}, "missing_status", `missing_status is "403"; allowed: 401, or none`},
		{"missing_status of none denied", func(r *rules.Rule) {
			r.Scope, r.Missing, r.MissingStatus = []string{rules.PerUser}, rules.MissingSkip, 401
		}, "missing_status", "without missing: deny"},
		{"missing unknown", func(r *rules.Rule) { r.Missing = 9 }, "missing", "missing is 9; allowed"},
		{"missing ip per ip", func(r *rules.Rule) { r.Missing = rules.MissingIP }, "missing", "skip or deny"},
		{"missing of global", func(r *rules.Rule) { r.Scope, r.Missing = []string{rules.Global}, rules.MissingDeny }, "missing", `"deny"`},

		{"cost", func(r *rules.Rule) { r.Cost.Permits = -1 }, "cost", "cost is -1; allowed: 1 to 1000000000"},
		{"cost above", func(r *rules.Rule) { r.Cost.Permits = bounds.MaxPermits + 1 }, "cost", "1000000001"},
		{"cost header", func(r *rules.Rule) { r.Cost.Header = "a b" }, "cost.header", `"a b"`},
		{"cost of both", func(r *rules.Rule) { r.Cost = rules.Cost{Header: "a", Attribute: "b"} }, "cost", "one of them"},

		{"costs of limits", func(r *rules.Rule) { r.Costs = []rules.Cost{{Attribute: "tokens"}} }, "", ""},
		{"too few costs", func(r *rules.Rule) { r.Limits = append(r.Limits, ten.Named("b")); r.Costs = make([]rules.Cost, 1) }, "limits", "2, with 1 costs"},
		{"cost of a limit", func(r *rules.Rule) { r.Costs = []rules.Cost{{Header: "a b"}} }, "limits[0].cost.header", `limits[0].cost.header is "a b"`},
		{"limits alike", func(r *rules.Rule) { r.Limits = append(r.Limits, ten) }, "limits", "limit 1: name is \"\"; allowed: a name that no other limit of the same algorithm in the policy has, such as name: burst"},
		{"limits alike, named", func(r *rules.Rule) { r.Limits = append(r.Limits, ten.Named("burst")) }, "", ""},
		{"no limits", func(r *rules.Rule) { r.Limits = nil }, "limits", "limits is missing; allowed: 1 to 64 limits, or unlimited"},
		{"limit", func(r *rules.Rule) { r.Limits[0].Capacity = 0 }, "limits", "capacity is 0; allowed"},
		{"unlimited with limits", func(r *rules.Rule) { r.Unlimited = true }, "limits", "limits is 1; allowed: none"},
		{"unlimited and banned", func(r *rules.Rule) { r.Unlimited, r.Banned, r.Limits = true, true, nil }, "banned", "not together"},
		{"banned", func(r *rules.Rule) { r.Banned, r.Limits = true, nil }, "", ""},

		{"leaky bucket with places", func(r *rules.Rule) { r.Limits = append(places(), leaky) }, "limits[1].cost", "limits[1].cost is 0; allowed: 1 or more for a leaky bucket where permits are reserved"},
		{"leaky bucket with reserve", func(r *rules.Rule) { r.Limits[0], r.Reserve.OnExpiry = leaky, rules.Keep }, "limits[0].cost", "its turns can't go back"},
		{"leaky bucket of a fixed cost", func(r *rules.Rule) {
			r.Limits, r.Costs = append(places(), leaky), []rules.Cost{{}, {Permits: 2}}
		}, "", ""},
		{"leaky bucket of a named cost", func(r *rules.Rule) {
			r.Limits, r.Costs = append(places(), leaky), []rules.Cost{{}, {Attribute: "n", Permits: 2}}
		}, "limits[1].cost", "1 or more"},
		{"leaky bucket alone", func(r *rules.Rule) { r.Limits[0] = leaky }, "", ""},
		{"lease with places", func(r *rules.Rule) { r.Limits = append(places(), ten.WithLease(2)) }, "limits[1].lease", "limits[1].lease is 2; allowed: none where permits are reserved"},
		{"counted denials with places", func(r *rules.Rule) {
			r.Limits = append(places(), stint.SlidingWindowLog(1, time.Second).CountingDenied())
		}, "limits[1].count_denied", "is true; allowed: false where permits are reserved"},
		{"override's limit with places", override(rules.Override{Key: "192.0.2.1", Limits: append(places(), leaky)}, rules.PerIP), "overrides[0].limits[1].cost", "1 or more"},

		{"on_exceed", func(r *rules.Rule) { r.OnExceed = 9 }, "on_exceed", "on_exceed is 9; allowed: reject, wait, shadow or mark"},
		{"mark with a queue", func(r *rules.Rule) {
			r.OnExceed, r.Limits = rules.Mark, []stint.Limit{stint.LeakyBucket(1, stint.PerSecond(1))}
		}, "limits[0]", "with on_exceed mark no leaky bucket, count_denied or lease"},
		{"mark with a lease", func(r *rules.Rule) {
			r.OnExceed, r.Limits = rules.Mark, []stint.Limit{stint.FixedWindow(9, time.Second).WithLease(2)}
		}, "limits[0]", "with on_exceed mark no"},
		{"mark within another", func(r *rules.Rule) {
			r.OnExceed, r.Within, r.Limits, r.Borrow = rules.Mark, "other", nil, rules.Borrow{Any: true}
		}, "on_exceed", `"mark"; allowed: reject, wait or shadow in a rule with within or otherwise`},
		{"count", func(r *rules.Rule) { r.Count.Status, r.Reserve.OnExpiry = []int{401, 403, 5, 599}, rules.Keep }, "", ""},
		{"count of no status", func(r *rules.Rule) { r.Count.Status = []int{401, 600} }, "count.status[1]", "count.status[1] is 600; allowed: a status of 100 to 599, or 1 to 5"},
		{"count of no class", func(r *rules.Rule) { r.Count.Status = []int{6} }, "count.status[0]", "is 6; allowed"},
		{"count twice", func(r *rules.Rule) { r.Count.Status = []int{401, 401} }, "count.status[1]", "each once"},
		{"count of many", func(r *rules.Rule) {
			for i := range 65 {
				r.Count.Status = append(r.Count.Status, 400+i)
			}
		}, "count.status", "is 65; allowed: at most 64"},
		{"count released", func(r *rules.Rule) { r.Count.Status, r.Reserve.OnExpiry = []int{401}, rules.Release }, "reserve.on_expiry", `"release"; allowed: keep, or none: with count`},
		{"count with a queue", func(r *rules.Rule) { r.Count.Status, r.Limits[0] = []int{401}, leaky }, "limits[0]", "with count no leaky bucket, count_denied or lease"},
		{"count with a queue of a fixed cost", func(r *rules.Rule) {
			r.Count.Status, r.Limits[0], r.Costs, r.Reserve.TTL = []int{401}, leaky, []rules.Cost{{Permits: 2}}, time.Minute
		}, "limits[0]", "with count no leaky bucket"},
		{"count with a lease", func(r *rules.Rule) { r.Count.Status, r.Limits[0] = []int{401}, ten.WithLease(2) }, "limits[0]", "with count no"},
		{"count with counted denials", func(r *rules.Rule) {
			r.Count.Status, r.Limits[0] = []int{401}, stint.SlidingWindowLog(1, time.Second).CountingDenied()
		}, "limits[0]", "with count no"},
		{"count with an override's lease", func(r *rules.Rule) {
			r.Count.Status = []int{401}
			override(rules.Override{Key: "192.0.2.1", Limits: []stint.Limit{ten.WithLease(2)}}, rules.PerIP)(r)
		}, "overrides[0].limits[0]", "with count no"},
		{"count within another", func(r *rules.Rule) {
			r.Count.Status, r.Within, r.Limits, r.Borrow = []int{401}, "other", nil, rules.Borrow{Any: true}
		}, "count", "count is given; allowed: none in a rule with within or otherwise"},
		{"count with places", func(r *rules.Rule) { r.Count.Status, r.Limits = []int{401}, append(places(), ten) }, "", ""},
		{"mark_at", func(r *rules.Rule) { r.MarkAt = 101 }, "mark_at", "1% to 100%"},
		{"block", func(r *rules.Rule) { r.Block = rules.Block{After: 20, For: 10 * time.Minute} }, "", ""},
		{"block without for", func(r *rules.Rule) { r.Block.After = 20 }, "block.for", "block.for is 0s; allowed: 1ms to 366d"},
		{"block without after", func(r *rules.Rule) { r.Block.For = time.Minute }, "block.after", "block.after is 0; allowed: 1 to 1000000000 denials"},
		{"block that reserves", func(r *rules.Rule) { r.Block, r.Reserve.TTL = pause, time.Minute }, "block", "block is given; allowed: none in a rule with reserve or a concurrency limit, as a reserve that is denied writes nothing"},
		{"block with places", func(r *rules.Rule) { r.Block, r.Limits = pause, places() }, "block", "none in a rule with reserve or a concurrency limit"},
		{"block with a lease", func(r *rules.Rule) { r.Block, r.Limits[0].Lease = pause, 2 }, "limits[0].lease", "limits[0].lease is 2; allowed: none in a rule with block, which has to see each denial"},
		{"block that marks", func(r *rules.Rule) { r.Block, r.OnExceed = pause, rules.Mark }, "block", "none in a rule with on_exceed: mark, which denies nothing"},
		{"block of the unlimited", func(r *rules.Rule) { r.Block, r.Unlimited, r.Limits = pause, true, nil }, "block", "none in a rule with unlimited"},
		{"block of the banned", func(r *rules.Rule) { r.Block, r.Banned, r.Limits = pause, true, nil }, "block", "none in a rule with banned"},
		{"block within", func(r *rules.Rule) {
			r.Block, r.Within, r.Limits, r.Borrow = pause, "other", nil, rules.Borrow{Any: true}
		}, "block", "none in a rule with within"},
		{"block with otherwise", func(r *rules.Rule) { r.Block, r.Otherwise = pause, "other" }, "block", "none in a rule with otherwise"},
		{"block beside its name", func(r *rules.Rule) {
			r.Block, r.Limits[0] = pause, stint.FixedWindow(1, time.Second).Named("block")
		}, "limits[0].name", "another name in a rule with block"},
		{"denials as a limit", func(r *rules.Rule) { r.Limits[0] = stint.FixedWindow(1, time.Second).FromFirst().OfDenials() }, "limits[0].Denials", "the rule's Block in its place"},
		{"wait without a bound", func(r *rules.Rule) { r.OnExceed = rules.Wait }, "max_wait", "1ms to 5m"},
		{"wait too long", func(r *rules.Rule) { r.OnExceed, r.MaxWait = rules.Wait, time.Hour }, "max_wait", "1h0m0s; allowed: 1ms to 5m"},
		{"waiters", func(r *rules.Rule) { r.OnExceed, r.MaxWait, r.MaxWaiters = rules.Wait, time.Second, 10_001 }, "max_waiters", "10001; allowed: 1 to 10000"},
		{"max_wait without", func(r *rules.Rule) { r.MaxWait = time.Second }, "max_wait", "only with on_exceed wait"},
		{"max_waiters without", func(r *rules.Rule) { r.MaxWaiters = 1 }, "max_waiters", "only with on_exceed wait"},
		{"on_store_failure", func(r *rules.Rule) { r.OnStoreFailure = "ajar" }, "on_store_failure", `"ajar"; allowed: open, closed or local`},
		{"timeout", func(r *rules.Rule) { r.Timeout = time.Microsecond }, "timeout", "1µs; allowed: 1ms to 1m"},

		{"override", override(rules.Override{Key: "192.0.2.1", Banned: true}, rules.PerIP), "", ""},
		{"override of nobody", override(rules.Override{Banned: true}, rules.PerIP), "overrides[0].key", "no part is empty"},
		{"override of all", override(rules.Override{Key: "all", Banned: true}, rules.Global), "overrides[0].key", `"all"; allowed: *`},
		{"override of a part", override(rules.Override{Key: "a", Banned: true}, rules.PerIP, rules.PerUser), "overrides[0].key", `"a"; allowed: 2 parts`},
		{"override escaped", override(rules.Override{Key: `a\|b|c\\`, Banned: true}, rules.Custom("plan"), rules.PerUser), "", ""},
		{"override badly escaped", override(rules.Override{Key: `a\b`, Banned: true}, rules.PerUser), "overrides[0].key", `only before | and \`},
		{"override of nothing", override(rules.Override{Key: "192.0.2.1"}, rules.PerIP), "overrides[0]", "0 of limits"},
		{"override of both", override(rules.Override{Key: "192.0.2.1", Banned: true, Unlimited: true}, rules.PerIP), "overrides[0]", "2 of limits"},
		{"override's limit", override(rules.Override{Key: "192.0.2.1", Limits: []stint.Limit{{}}}, rules.PerIP), "overrides[0].limits", "overrides[0].limits: "},
		{"override twice", func(r *rules.Rule) {
			r.Overrides = []rules.Override{{Key: "192.0.2.1", Banned: true}, {Key: "192.0.2.1", Unlimited: true}}
		}, "overrides[1].key", `"192.0.2.1"; allowed: each client once`},
		{"too many overrides", func(r *rules.Rule) { r.Overrides = make([]rules.Override, 10_001) }, "overrides", "at most 10000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := rule("id")
			test.spoil(&r)
			err := r.Validate()
			if test.param == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			all := faultsOf(t, err)
			if len(all) != 1 || all[0].Param != test.param || !strings.Contains(all[0].Error(), test.says) {
				t.Errorf("got %v at %s, want one fault at %s that says %q", err, all[0].Param, test.param, test.says)
			}
			if _, err := rules.Compile([]rules.Rule{r}, rules.Options{}); err == nil {
				t.Error("Compile accepts it")
			}
		})
	}
}

func TestEveryFaultAtOnce(t *testing.T) {
	bad := rule("no good") // and its limits are looked at all the same
	bad.Limits = []stint.Limit{{}}
	bad.Match.Paths, bad.Match.Hosts, bad.OnStoreFailure = one("x"), one("*"), "ajar"
	_, err := rules.Compile([]rules.Rule{rule("a"), bad, rule("a")}, rules.Options{})
	all := faultsOf(t, err)
	params := make([]string, len(all))
	for i, fault := range all {
		params[i] = fmt.Sprintf("%d:%s", fault.Index, fault.Param)
	}
	want := "1:id 1:match.path 1:match.host 1:limits 1:on_store_failure 2:id"
	if !equalIDs(params, want) {
		t.Errorf("faults are %v, want %s", params, want)
	}
	if got := all[5].Error(); got != `stint: rule "a": id is "a"; allowed: an ID that no other rule has; rule 0 has it` {
		t.Error(got)
	}
	if _, err := rules.Compile(make([]rules.Rule, bounds.MaxRules+1), rules.Options{}); !errors.Is(err, stint.ErrInvalid) || strings.Count(err.Error(), "\n") > 0 {
		t.Errorf("too many rules: %v", err)
	}
}

func TestFaultsShowNoAPIKey(t *testing.T) {
	r := rule("id")
	r.Scope, r.Missing = []string{rules.PerAPIKey}, rules.MissingSkip
	r.Overrides = []rules.Override{
		{Key: "s3cret", Banned: true},
		{Key: "s3cret", Banned: true},
		{Key: "s3cret|", Banned: true},
		{Key: `s3cret\`, Banned: true},
		{Key: "s3cret|s3cret", Banned: true},
	}
	if err := r.Validate(); err == nil || strings.Contains(err.Error(), "s3cret") || len(faultsOf(t, err)) != 4 {
		t.Errorf("got %v, want 4 faults without the key", err)
	}
}

func TestMissingNames(t *testing.T) {
	for _, m := range []rules.Missing{rules.MissingSkip, rules.MissingDeny, rules.MissingIP} {
		var got rules.Missing
		if err := got.UnmarshalText([]byte(m.String())); err != nil || got != m {
			t.Errorf("%v is read as %v, %v", m, got, err)
		}
	}
	for _, bad := range []string{"", "Skip", "none"} {
		if err := new(rules.Missing).UnmarshalText([]byte(bad)); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("missing %q: %v", bad, err)
		}
	}
}
