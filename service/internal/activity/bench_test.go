package activity_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/activity"
)

// stream makes the names of a stream of clients: of one, of some more than of others, or of all alike.
func stream(keys string) []string {
	const clients, length = 1 << 20, 1 << 18
	random := rand.New(rand.NewPCG(1, 2))
	heavy := rand.NewZipf(random, 1.1, 1, clients-1)
	names := make([]string, length)
	for i := range names {
		n := random.Uint64N(clients)
		switch keys {
		case "one":
			n = 1
		case "zipf":
			n = heavy.Uint64()
		}
		names[i] = fmt.Sprintf("user:%d", n)
	}
	return names
}

// cpuTime is what this process has used, which other processes of the machine change little.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func BenchmarkObserve(b *testing.B) {
	for _, keys := range []string{"one", "zipf", "uniform"} {
		names := stream(keys)
		for _, denied := range []int{0, 2, 100} {
			b.Run(fmt.Sprintf("keys=%s/denied=%d%%", keys, denied), func(b *testing.B) {
				r := activity.New(activity.Config{})
				r.RulesChanged("1", "", []string{"plan", "region", "user"})
				attributes := map[string]string{"plan": "free", "region": "eu-central", "tokens": "100"}
				begin := time.Now().UnixMicro()
				b.ReportAllocs()
				used := cpuTime(b)
				b.RunParallel(func(pb *testing.PB) {
					i := rand.IntN(len(names))
					for pb.Next() {
						i++
						outcome := activity.Admitted
						if i%100 < denied {
							outcome = activity.Denied
						}
						e := decisionAt(stint.Instant(begin+int64(i)), "api", names[i%len(names)], outcome)
						e.Elapsed, e.Method, e.Path, e.Attributes = time.Microsecond, "GET", "/v1/orders/1234", attributes
						if i%100 < denied {
							e.RequestID = "b7ad6b7169203331"
						}
						r.Observe(b.Context(), &e)
					}
				})
				b.ReportMetric(float64(cpuTime(b)-used)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
