package enforce_test

import (
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// BenchmarkFloor decides by a rule that is within another one, whose client has a floor, beside two rules that share
// nothing.
func BenchmarkFloor(b *testing.B) {
	const much = 1_000_000_000
	fast := func(capacity int64) stint.Limit { return stint.TokenBucket(capacity, stint.PerSecond(capacity)) }
	org := rules.Rule{ID: "org", Scope: []string{rules.Global}, Limits: []stint.Limit{fast(much)}}
	team := rules.Rule{
		ID: "team", Within: "org", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip,
		Guaranteed: map[string]rules.Floor{"search": {Capacity: much / 2, Refill: stint.PerSecond(much / 2)}}, Borrow: rules.Borrow{Any: true},
	}
	two := team
	two.Within, two.Guaranteed, two.Borrow, two.Limits = "", nil, rules.Borrow{}, []stint.Limit{fast(much)}
	for name, list := range map[string][]rules.Rule{"rules=within": {org, team}, "rules=two": {org, two}} {
		b.Run(name, func(b *testing.B) {
			limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: setOf(b, nil, list...)})
			if err != nil {
				b.Fatal(err)
			}
			r := rules.Request{Path: "/x", Attributes: map[string]string{"team": "search"}}
			var v enforce.Verdict
			b.ReportAllocs()
			for b.Loop() {
				if err := limiter.DecideNow(b.Context(), &r, &v); err != nil || !v.Allowed {
					b.Fatal(v.Allowed, err)
				}
			}
		})
	}
}
