package simulate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/simulate"
)

const at2026 = stint.Instant(1_767_225_600_000_000)

// prepared are events of clients by Zipf's law with exponent 1.1, or of all alike, 10,000 in a second.
func prepared(n, clients int, zipf bool) []simulate.Event {
	rng := rand.New(rand.NewPCG(1, 2))
	names := make([]string, clients)
	for i := range names {
		names[i] = fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)
	}
	law := rand.NewZipf(rng, 1.1, 1, uint64(clients-1))
	events := make([]simulate.Event, n)
	for i := range events {
		client := rng.IntN(clients)
		if zipf {
			client = int(law.Uint64())
		}
		events[i] = *event(at2026+stint.Instant(i)*100, names[client])
	}
	return events
}

func BenchmarkDecide(b *testing.B) {
	for _, keys := range []string{"zipf", "uniform"} {
		events := prepared(2_000_000, 1_000_000, keys == "zipf")
		for _, c := range five(b, 100, "1m") {
			b.Run("keys="+keys+"/alg="+c.Name, func(b *testing.B) {
				b.ReportAllocs()
				s, err := simulate.New(simulate.Config{Candidates: []simulate.Candidate{c}})
				if err != nil {
					b.Fatal(err)
				}
				var ev simulate.Event
				for i := range b.N {
					ev = events[i%len(events)]
					if round := i / len(events); round > 0 {
						ev.Time += stint.Instant(round*len(events)) * 100
					}
					if err := s.Add(&ev); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			})
		}
	}
}
