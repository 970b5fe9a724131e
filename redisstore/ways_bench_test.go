package redisstore_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
)

// BenchmarkWays is what a take costs that leaves permits to others, and one with two ways, beside plain takes of the same
// states, at 256 callers of one client each.
func BenchmarkWays(b *testing.B) {
	bucket := stint.TokenBucket(stint.MaxPermits, stint.PerSecond(1_000_000))
	claims := map[string][]stint.Claim{
		"one/plain":  {{}},
		"one/keep":   {{Keep: 1000}},
		"two/plain":  {{}, {}},
		"two/ways":   {{Way: stint.Either}, {Way: stint.With}, {Way: stint.Else, Keep: 1000}},
		"two/second": {{Way: stint.Either, Keep: stint.MaxPermits}, {Way: stint.With}, {Way: stint.Else, Keep: 1000}},
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
					mine := append([]stint.Claim(nil), claims[name]...)
					for i := range mine {
						mine[i].Key, mine[i].Policy, mine[i].Permits = "org", policies[min(i, 1)], 1
						if i == 0 {
							mine[i].Key = "team-" + strconv.Itoa(caller)
						}
					}
					for done.Add(1) <= int64(b.N) {
						mustDecide(b, store, stint.Op{Claim: mine[0], And: mine[1:]})
					}
				})
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "per_s")
			b.ReportMetric((serverTime(b)-before)/float64(b.N), "us_of_server")
		})
	}
}
