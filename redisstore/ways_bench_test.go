package redisstore_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/redisstore"
)

// BenchmarkWays is what a take costs that leaves permits to others, and one with two ways, beside plain takes of the same
// states, at 256 callers of one client each.
func BenchmarkWays(b *testing.B) {
	bucket := stint.TokenBucket(bounds.MaxPermits, stint.PerSecond(1_000_000))
	keeps := map[string][]int64{ // of each claim; the third is the second way
		"one/plain":  {0},
		"one/keep":   {1000},
		"two/plain":  {0, 0},
		"two/ways":   {0, 0, 1000},
		"two/second": {bounds.MaxPermits, 0, 1000},
	}
	for _, name := range []string{"one/plain", "one/keep", "two/plain", "two/ways", "two/second"} {
		b.Run(name, func(b *testing.B) {
			store, _ := storeOn(b, newConn(b), redisstore.Options{})
			policies := []*stint.Policy{policyOf(b, "team", bucket), policyOf(b, "org", bucket)}
			var done atomic.Int64
			var group sync.WaitGroup
			before := serverTime(b)
			b.ResetTimer()
			for caller := range 256 {
				group.Go(func() {
					var mine []stint.Claim
					for i, keep := range keeps[name] {
						mine = append(mine, stint.Claim{Key: "org", Policy: policies[min(i, 1)], Permits: 1, Keep: keep})
					}
					mine[0].Key = "team-" + strconv.Itoa(caller)
					op := stint.Op{Claim: mine[0], And: mine[1:]}
					if len(mine) > 2 {
						op = stint.Op{Extra: &stint.Extra{Groups: [][]stint.Way{{mine[:2], mine[2:]}}}}
					}
					for done.Add(1) <= int64(b.N) {
						mustDecide(b, store, op)
					}
				})
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per_s")
			b.ReportMetric((serverTime(b)-before)/float64(b.N), "us_of_server")
		})
	}
}
