// Package testrules makes rules at random for tests.
//
// [Rules] is a generator for tests with rapid (pgregory.net/rapid), which makes a failing rule
// smaller until it is the simplest one that fails. It serves tests that write rules and read them
// again: in files, in stores of rules, and by the API.
package testrules

import (
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/rules"
)

// Rules makes rules that can be written and read again, with anything in them that a rule may
// have. Few of them can be enforced.
func Rules() *rapid.Generator[rules.Rule] { return rapid.Custom(randomRule) }

// Text is arbitrary, often with characters that have a meaning to a server.
var Text = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
	"", " ", "$", "$set", "$where", ".", "a.b", "..", "_id", "__proto__", "\x00", "\n", "\r\n", "\t", `"`, `'`, `\`,
	`\u0000`, "{}", "{tag}", "[1]", "%s", "%25",
	"]]", "--", "<&>", "null", "0", "1e999", "ä", "日本", "\u2028", "\ufeff", "\ufffd", "🙂", "\x7f",
	strings.Repeat("long ", 1000),
}))

// randomRule draws each part by itself, so that combinations come up that nobody would write. Parts
// that are nothing are nil, as a rule that was read again has them.
func randomRule(t *rapid.T) rules.Rule {
	texts := func(name string) map[string]string {
		texts := rapid.MapOfN(Text, Text, 0, 3).Draw(t, name)
		if len(texts) == 0 {
			return nil
		}
		return texts
	}
	between := func(name string, most time.Duration) time.Duration {
		return time.Duration(
			rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(int64(time.Millisecond), int64(most))).Draw(t, name),
		)
	}
	some := Text.Filter(func(text string) bool { return text != "" })
	list := func(name string) []string { return orNone(rapid.SliceOfN(some, 0, 3).Draw(t, name)) }
	rule := rules.Rule{
		ID: rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9_.:-]{1,96}`),
			rapid.SampledFrom([]string{".", "..", ":", "-", "A", "a", "0", "_id"})).Draw(t, "id"),
		Disabled: rapid.Bool().Draw(t, "disabled"),
		Priority: rapid.Int().Draw(t, "priority"),
		Labels:   texts("labels"),
		Match: rules.Match{
			Methods: list("methods"), Paths: list("paths"), Except: list("except"), Hosts: list("hosts"),
			Headers:    texts("headers"),
			Attributes: attributes(t),
		},
		Scope: orNone(rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom(
				[]string{rules.Global, rules.PerIP, rules.PerUser, rules.PerAPIKey},
			),
			rapid.Map(some, rules.Custom),
			rapid.Custom(func(t *rapid.T) string {
				return rules.PerNetwork(rapid.IntRange(0, 32).Draw(t, "IPv4"), rapid.IntRange(0, 128).Draw(t, "IPv6"))
			}),
		), 0, 3).Draw(t, "scope")),
		Missing: rapid.SampledFrom([]rules.Missing{0, rules.MissingSkip, rules.MissingDeny, rules.MissingIP}).Draw(t,
			"missing"),
		MissingStatus: rapid.SampledFrom([]int{0, 0, 401}).Draw(t, "missing status"),
		Cost:          randomCost(t),
		Limits:        randomLimits(t),
		Unlimited:     rapid.Bool().Draw(t, "unlimited"),
		Banned:        rapid.Bool().Draw(t, "banned"),
		OnExceed: rapid.SampledFrom([]rules.OnExceed{
			rules.Reject, rules.Wait, rules.Shadow, rules.Mark,
		}).Draw(t, "on exceed"),
		MarkAt:     rules.Percent(rapid.IntRange(0, 100).Draw(t, "mark at")),
		Block:      rules.Block{After: int64(rapid.IntRange(0, 9).Draw(t, "after")), For: between("for", time.Minute)},
		MaxWait:    between("max wait", bounds.MaxWaitLimit),
		MaxWaiters: rapid.IntRange(0, 10_000).Draw(t, "max waiters"),
		OnStoreFailure: rapid.SampledFrom([]rules.OnStoreFailure{
			"", rules.FailOpen, rules.FailClosed, rules.FailLocal,
		}).Draw(t, "on store failure"),
		Timeout: between("timeout", time.Minute),
	}
	if rapid.Bool().Draw(t, "counts") {
		status := rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(100, 599))
		rule.Count.Status = rapid.SliceOfN(status, 1, 3).Draw(t, "status")
	}
	if len(rule.Limits) > 0 && rapid.Bool().Draw(t, "costs") {
		for range rule.Limits {
			rule.Costs = append(rule.Costs, randomCost(t))
		}
		rule.Costs[0].Permits = 1 // of which none is no list
	}
	for range rapid.IntRange(0, 2).Draw(t, "overrides") {
		rule.Overrides = append(rule.Overrides, rules.Override{
			Key: some.Draw(t, "key"), Limits: randomLimits(t), Unlimited: rapid.Bool().Draw(t, "free"),
			Banned: rapid.Bool().Draw(t, "out"),
		})
	}
	return rule
}

// orNone is nil for an empty list, which is how lists that are left out are read.
func orNone(texts []string) []string {
	if len(texts) == 0 {
		return nil
	}
	return texts
}

// randomCost draws a fixed cost, or one that a header field or an attribute names, with the cost of
// requests that lack it.
func randomCost(t *rapid.T) rules.Cost {
	cost := rules.Cost{Permits: rapid.Int64Range(0, bounds.MaxPermits).Draw(t, "permits")}
	switch rapid.IntRange(0, 3).Draw(t, "source") {
	case 0:
		cost.Header = rapid.StringN(1, 9, -1).Draw(t, "cost header")
	case 1:
		cost.Attribute = rapid.StringN(1, 9, -1).Draw(t, "cost attribute")
	case 2:
		cost.Sum = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rules.CostPart {
			return rules.CostPart{
				Attribute: rapid.StringN(1, 9, -1).Draw(t, "part"), Default: rapid.Int64Range(0, 3).Draw(t, "part's default"),
				Weight: rules.Thousandths(rapid.Int64Range(0, bounds.MaxPermits).Draw(t, "weight")),
			}
		}), 1, 3).Draw(t, "sum")
	}
	return cost
}

// randomLimits draws up to three limits with parameters that their algorithm has. Those that are
// not valid are left out, as they could not be written.
func randomLimits(t *rapid.T) []stint.Limit {
	period := rapid.Map(
		rapid.Int64Range(1000, 366*24*3600*1e6),
		func(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond },
	)
	return rapid.Custom(func(t *rapid.T) []stint.Limit {
		var limits []stint.Limit
		for range rapid.IntRange(0, 3).Draw(t, "limits") {
			l := stint.Limit{
				Name:      rapid.StringMatching(`[ -~]{0,9}`).Draw(t, "name"),
				Algorithm: rapid.SampledFrom(notation.Algorithms()).Draw(t, "algorithm"),
				Capacity:  rapid.Int64Range(1, bounds.MaxPermits).Draw(t, "capacity"),
				MaxDebt:   rapid.Int64Range(stint.NoDebt, bounds.MaxPermits).Draw(t, "debt"),
			}
			switch l.Algorithm {
			case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
				l.Rate = stint.Per(rapid.Int64Range(1, bounds.MaxPermits).Draw(t, "rate"), period.Draw(t, "period"))
			case stint.AlgorithmSlidingWindowLog:
				l.Window, l.MinInterval, l.CountDenied = period.Draw(t, "window"), period.Draw(t, "interval"),
					rapid.Bool().Draw(t, "denied")
			case stint.AlgorithmFixedWindow, stint.AlgorithmSlidingWindowCounter:
				l.Window = period.Draw(t, "window")
			default:
				t.Fatalf("no parameters are drawn for %s", l.Algorithm)
			}
			if l.Algorithm == stint.AlgorithmFixedWindow && rapid.Bool().Draw(t, "by calendar") {
				l.Window, l.TimeZone = 0, rapid.SampledFrom([]string{"", "UTC", "Europe/Berlin"}).Draw(t, "zone")
				l.Calendar = rapid.Map(rapid.IntRange(1, 6),
					func(n int) stint.Calendar { return stint.Calendar(n) }).Draw(t, "calendar")
			} else if l.Algorithm == stint.AlgorithmFixedWindow {
				l.FirstRequest = rapid.Bool().Draw(t, "from the first")
			}
			if l.Algorithm == stint.AlgorithmTokenBucket || l.Algorithm == stint.AlgorithmFixedWindow {
				l.Lease = rapid.Int64Range(stint.LeaseAuto, l.Capacity).Draw(t, "lease")
			}
			if l.Validate() == nil { // a bucket may take too long to recover
				limits = append(limits, l)
			}
		}
		return limits
	}).Draw(t, "limits")
}

// attributes are what a rule asks of a request's attributes.
func attributes(t *rapid.T) map[string][]string {
	values := rapid.SliceOfN(rapid.SampledFrom([]string{"free", "gold", "*", "7", "a b"}), 1, 3)
	of := rapid.MapOfN(rapid.SampledFrom([]string{"plan", "tenant", "a.b"}), values, 0, 2).Draw(t, "attributes")
	if len(of) == 0 {
		return nil
	}
	return of
}
