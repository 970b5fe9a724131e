package enforce_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/memstore"
)

// BenchmarkDecide decides by one rule, whose client never has to wait: one that rejects, and one that waits.
func BenchmarkDecide(b *testing.B) {
	limit := stint.TokenBucket(1_000_000_000, stint.PerSecond(1_000_000_000))
	reject, wait := per("a", limit), waiting("a", time.Minute, 0, limit)
	for _, rule := range []*struct {
		name string
		set  enforce.Config
	}{{"rule=rejects", enforce.Config{Set: setOf(b, nil, reject)}}, {"rule=waits", enforce.Config{Set: setOf(b, nil, wait)}}} {
		b.Run(rule.name, func(b *testing.B) {
			rule.set.Store = memstore.New(memstore.Config{})
			limiter, err := enforce.New(rule.set)
			if err != nil {
				b.Fatal(err)
			}
			r := alice
			var v enforce.Verdict
			b.ReportAllocs()
			for b.Loop() {
				if err := limiter.Decide(b.Context(), &r, &v); err != nil || !v.Allowed {
					b.Fatal(v.Allowed, err)
				}
			}
		})
	}
}
