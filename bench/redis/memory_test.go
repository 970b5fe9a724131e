package redis

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

const (
	logEntries = 1000
	logClients = 200
)

// perDay is a quota whose buckets outlive the filling.
var perDay = quota{Permits: 100, Refill: 100, Period: 24 * time.Hour}

// turnAfter is how long after the first write to a generation another one is begun: at
// least the longest life of a bucket, with its debt, and less than two of that.
const turnAfter = 3 * 24 * time.Hour

// A stored is states of clients whose bytes are measured.
type stored struct {
	state  string
	impl   string
	limit  stint.Limit // of stint
	fills  int         // of each client
	pause  time.Duration
	pieces int // of each client, that the bytes are divided by
}

func states() []stored {
	bucket := stint.TokenBucket(perDay.Permits, stint.Per(perDay.Refill, perDay.Period))
	logs := func(window time.Duration, name string) stored { // filled to the last entry, spread over the window
		return stored{"sliding_log/entries=1000/window=" + name, stintName, stint.SlidingWindowLog(logEntries, window), logEntries, window / logEntries, logEntries}
	}
	return []stored{
		{"token_bucket/generations=1", stintName, bucket, 1, 0, 1},
		// Every client is written in one generation and again in the next, while both are kept.
		{"token_bucket/generations=2", stintName, bucket, 2, turnAfter, 1},
		{"token_bucket/generations=1", redisRate, bucket, 1, 0, 1},
		{"fixed_window", fastest, bucket, 1, 0, 1},
		{"leaky_bucket", stintName, stint.LeakyBucket(perDay.Permits, stint.Per(perDay.Refill, perDay.Period)), 1, 0, 1},
		{"fixed_window", stintName, stint.FixedWindow(perDay.Permits, perDay.Period), 1, 0, 1},
		{"sliding_window_counter", stintName, stint.SlidingWindowCounter(perDay.Permits, perDay.Period), 1, 0, 1},
		logs(time.Minute, "1m"),
		logs(time.Hour, "1h"),
	}
}

// BenchmarkRedisMemory reports the bytes that Redis uses for a client, or for an entry of a log. Use -benchtime=1x.
func BenchmarkRedisMemory(b *testing.B) {
	d := deployed(b, false, testredis.Start(b))
	for _, m := range states() {
		unit, n := "B/client", *clients
		if m.pieces > 1 {
			unit, n = "B/entry", min(n, logClients)
		}
		b.Run(fmt.Sprintf("state=%s/clients=%d/impl=%s", m.state, n, m.impl), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(float64(m.growth(b, d, n))/float64(n*m.pieces), unit)
			}
		})
	}
}

// growth is by how many bytes an empty Redis grows by the states of clients.
func (m *stored) growth(tb testing.TB, d *deployment, clients int) int64 {
	tb.Helper()
	d.flush(tb)
	before := d.memory(tb)
	var now atomic.Int64 // what the store's decisions go by
	now.Store(time.Now().UnixMicro())
	o := options{Addrs: d.addrs, Callers: 1, Now: func() time.Time { return time.UnixMicro(now.Load()) }}
	var s *subject
	switch m.impl {
	case redisRate:
		s = newRedisRate(tb, o, []quota{perDay})
	case fastest:
		s = newRueidisLimiter(tb, o, []quota{perDay})
	default:
		s = newStintOf(tb, o, []stint.Limit{m.limit})
	}
	names := make([]string, clients)
	for i := range names {
		names[i] = name(1, i)
	}
	for i := range m.fills {
		now.Add(min(int64(i), 1) * m.pause.Microseconds())
		must.Do(tb, s.Fill(tb.Context(), 0, names))
	}
	for i := 0; m.fills < 3 && i < clients; i += max(clients/probes, 1) { // what is dropped costs no memory
		if a, err := s.TakeOne(tb.Context(), 0, names[i]); err != nil || !a.Allowed || a.Remaining != perDay.Permits-2 {
			tb.Fatalf("%s, %s: %s has %d permits left, want %d (%v)", m.impl, m.state, names[i], a.Remaining, perDay.Permits-2, err)
		}
	}
	must.Do(tb, s.Close())
	return d.memory(tb) - before
}

// memory is how many bytes the servers have allocated, once nobody but us is connected:
// connections have buffers.
func (d *deployment) memory(tb testing.TB) int64 {
	tb.Helper()
	for begun := time.Now(); time.Since(begun) < patience; {
		if d.info("clients", "connected_clients") == float64(len(d.nodes)) {
			return int64(d.info("memory", "used_memory"))
		}
	}
	tb.Fatalf("others stay connected to %s", d.addrs)
	return 0
}
