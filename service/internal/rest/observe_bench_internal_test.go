package rest

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/decisionlog"
)

// BenchmarkObserved is what observation adds to a check in a memory store of one of 100,000 clients, one check in ten denied: metrics,
// the recorder with its top clients, and the log of denials. Blocks of the same checks with it and without it take turns, so that other
// load of the machine falls on both. ns/observed is the median difference, quiet-ns/observed that of the fifth percentiles, ns/bare the
// median check without observation. A block is four of the recorder's batches.
func BenchmarkObserved(b *testing.B) {
	const block = 256
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 1, 99_999)
	for _, load := range []struct {
		keys string
		draw func() uint64
	}{{"zipf", zipf.Uint64}, {"uniform", func() uint64 { return random.Uint64N(100_000) }}} {
		requests := make([]*http.Request, 128*block)
		for i := range requests {
			query := fmt.Sprintf("?key=user:%d", load.draw())
			if i%10 == 0 {
				query += "&algorithm=FIXED_WINDOW"
			}
			requests[i] = httptest.NewRequestWithContext(b.Context(), http.MethodGet, apipath.Check+query, nil)
		}
		for _, log := range []string{"off", "sampled"} {
			b.Run("keys="+load.keys+"/log="+log, func(b *testing.B) {
				with, without := observedAndNot(b, log == "sampled")
				w := discard{header: http.Header{}}
				run := func(h http.Handler, requests []*http.Request) {
					for _, r := range requests {
						clear(w.header)
						h.ServeHTTP(w, r)
					}
				}
				var differences, bare, full []float64
				for i := 0; b.Loop(); i++ {
					part := requests[i*block%len(requests):][:block]
					began := time.Now()
					first, second, sign := without, with, 1.0
					if i%2 == 1 {
						first, second, sign = with, without, -1
					}
					run(first, part)
					between := time.Now()
					run(second, part)
					of := [2]time.Duration{between.Sub(began), time.Since(between)}
					differences = append(differences, sign*float64(of[1]-of[0])/block)
					bare = append(bare, float64(of[i%2])/block)
					full = append(full, float64(of[1-i%2])/block)
				}
				slices.Sort(differences)
				slices.Sort(bare)
				slices.Sort(full)
				quiet := len(full) / 20
				b.ReportMetric(full[quiet]-bare[quiet], "quiet-ns/observed")
				b.ReportMetric(differences[len(differences)/2], "ns/observed")
				b.ReportMetric(bare[len(bare)/2], "ns/bare")
				allocations := func(h http.Handler) float64 {
					return testing.AllocsPerRun(len(requests)/block, func() { run(h, requests[:block]) }) / block
				}
				b.ReportMetric(allocations(with)-allocations(without), "allocs/observed")
				b.ReportMetric(0, "ns/op") // of two blocks: it says nothing
			})
		}
	}
}

// A discard is an answer that nobody reads.
type discard struct{ header http.Header }

func (w discard) Header() http.Header            { return w.header }
func (w discard) Write(text []byte) (int, error) { return len(text), nil }
func (w discard) WriteHeader(int)                {}

// observedAndNot are two services on one store: one with metrics, a recorder and a log, perhaps of denials, the other without. Checks of
// FIXED_WINDOW are denied.
func observedAndNot(b *testing.B, denials bool) (with, without http.Handler) {
	b.Helper()
	store := memstore.New(memstore.Config{})
	change := func(c *Config) {
		c.Store, c.API.Open, c.Logger = store, true, slog.New(slog.DiscardHandler)
		c.Defaults = map[stint.Algorithm]stint.Limit{
			stint.AlgorithmTokenBucket: stint.TokenBucket(1_000_000, stint.PerSecond(1_000_000)), stint.AlgorithmFixedWindow: stint.FixedWindow(1, 24*time.Hour),
		}
	}
	bare := newOne(b, change)
	bare.observers = nil
	return newOne(b, func(c *Config) {
		change(c)
		c.Activity = activity.New(activity.Config{})
		if denials {
			log := decisionlog.New(decisionlog.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Denials: true})
			c.Observers = []stint.Observer{log.Observe}
		}
	}), bare
}
