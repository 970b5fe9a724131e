package simulate_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/simulate"
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

// orFew is a number, a hundredth of it with -short.
func orFew(n int) int {
	if testing.Short() {
		return n / 100
	}
	return n
}

func BenchmarkDecide(b *testing.B) {
	three := candidate(b, "three", simulate.LimitRule("three",
		stint.TokenBucket(100, stint.PerMinute(100)), stint.FixedWindow(1000, time.Hour), stint.SlidingWindowCounter(5000, 24*time.Hour)))
	clients := orFew(1_000_000)
	for _, keys := range []string{"zipf", "uniform"} {
		events := prepared(2*clients, clients, keys == "zipf")
		for _, c := range append(five(b, 100, "1m"), three) {
			b.Run("keys="+keys+"/alg="+c.Name, func(b *testing.B) {
				b.ReportAllocs()
				s := must.Get(simulate.New(simulate.Config{Candidates: []simulate.Candidate{c}}))(b)
				var ev simulate.Event
				began := cpu(b)
				for i := range b.N {
					ev = events[i%len(events)]
					if round := i / len(events); round > 0 {
						ev.Time += stint.Instant(round*len(events)) * 100
					}
					if err := s.Add(&ev); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/(cpu(b)-began).Seconds(), "decisions/cpu-s")
			})
		}
	}
}

// tenRules are of an ordinary API.
func tenRules() (list []rules.Rule) {
	for i, path := range []string{
		"/api/users/{id}", "/api/users", "/api/orders/**", "/api/search", "/login", "/api/files/{id}/content", "/static/**", "/webhooks/*", "/admin/**",
	} {
		list = append(list, rules.Rule{
			ID: fmt.Sprint("r", i), Scope: []string{rules.PerIP}, Match: rules.Match{Paths: []string{path}},
			Limits: []stint.Limit{stint.SlidingWindowCounter(100, time.Minute)},
		})
	}
	list[2].Match.Methods = []string{"POST", "PUT"}
	return append(list, rules.Rule{ID: "all", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.TokenBucket(1000, stint.PerSecond(10))}})
}

// BenchmarkLog reads lines of 220 bytes, 10,000 in a second of the log, and decides them by ten rules.
func BenchmarkLog(b *testing.B) {
	lines := orFew(1_000_000)
	rng := rand.New(rand.NewPCG(1, 2))
	law := rand.NewZipf(rng, 1.1, 1, 1_000_000)
	paths := []string{"/api/users/77", "/api/users", "/api/orders/5/items", "/api/search?q=x", "/login", "/static/app.js", "/", "/about"}
	var text bytes.Buffer
	for i := range lines {
		client := law.Uint64()
		text.WriteString(combinedLine(int64(1_790_000_000+i/10_000), fmt.Sprintf("10.%d.%d.%d", client>>16&255, client>>8&255, client&255), paths[rng.IntN(len(paths))]) + "\n")
	}
	b.SetBytes(int64(text.Len() / lines))
	b.ReportAllocs()
	b.ResetTimer()
	began := cpu(b)
	for done := 0; done < b.N; done += lines {
		s := simulation(b, nil, tenRules()...)
		r := must.Get(simulate.NewReader(simulate.ReaderOptions{}))(b)
		o := simulate.NewOrder(0, s.Add)
		must.Do(b, r.Read(bytes.NewReader(text.Bytes()), o.Add))
		must.Do(b, o.Flush())
		if report := finish(b, s); report.Events != int64(lines) {
			b.Fatal(report.Events)
		}
	}
	b.ReportMetric(float64((b.N+lines-1)/lines*lines)/(cpu(b)-began).Seconds(), "lines/cpu-s")
}

// BenchmarkRead reads lines of 220 bytes, 1,000 in a second of the log, and decides nothing.
func BenchmarkRead(b *testing.B) {
	const lines = 100_000
	var text bytes.Buffer
	for i := range lines {
		text.WriteString(combinedLine(int64(1_790_000_000+i/1000), fmt.Sprintf("10.0.%d.%d", i>>8&255, i&255), "/api/users/77?q=x") + "\n")
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		r := must.Get(simulate.NewReader(simulate.ReaderOptions{}))(b)
		must.Do(b, r.Read(bytes.NewReader(text.Bytes()), func(*simulate.Event) error { return nil }))
	}
}

// cpu is what this process has used, which says more on a busy machine than the time that has passed.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
