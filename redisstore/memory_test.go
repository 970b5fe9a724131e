package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// fillLogs gives each client a log of so many entries, spread over the window.
func fillLogs(t testing.TB, store stint.Store, clock *storetest.Clock, policy *stint.Policy, clients []string, entries int) {
	ops := make([]stint.Op, len(clients))
	results := make([]stint.Result, len(clients))
	for i, client := range clients {
		ops[i] = op(stint.VerbTake, client, policy, 1)
	}
	step := policy.Limit(0).Window / time.Duration(entries)
	for range entries {
		clock.Advance(step)
		store.DecideAll(t.Context(), ops, results)
		for _, r := range results {
			if r.Err != nil || !r.Decision.Allowed {
				t.Fatalf("%+v", r)
			}
		}
	}
}

// What a client's log takes in Redis: packed is the smallest, and 100 entries take
// at most 1 KB.
func TestLogMemory(t *testing.T) {
	conn := newConn(t)
	const slack = 128
	for _, entries := range []int{100, 300} { // a sorted set of more than 128 is no list any more
		for _, window := range []time.Duration{time.Second, time.Minute, time.Hour, bounds.MaxPeriod} {
			bytes := map[redisstore.LogEncoding]int64{}
			for _, encoding := range encodings {
				clock := storetest.NewClock(dawn)
				store, prefix := storeOn(t, conn, redisstore.Options{LogEncoding: encoding, Now: clock.Now})
				policy := policyOf(t, "", stint.SlidingWindowLog(int64(entries), window))
				fillLogs(t, store, clock, policy, []string{"client:12345"}, entries)
				for _, key := range keysOf(t, prefix) {
					bytes[encoding] += redis(t, "MEMORY", "USAGE", key, "SAMPLES", 0).(int64)
				}
			}
			packed, zset, stream := bytes[redisstore.LogPacked], bytes[redisstore.LogZSet], bytes[redisstore.LogStream]
			t.Logf("%d entries in %s: packed %d bytes, zset %d, stream %d", entries, duration.Format(window), packed, zset, stream)
			if packed >= zset || packed >= stream {
				t.Errorf("packed takes %d bytes, zset %d, stream %d: packed is not the smallest", packed, zset, stream)
			}
			if most := int64(1024 + slack); entries == 100 && packed > most {
				t.Errorf("packed takes %d bytes, want at most %d", packed, most)
			}
		}
	}
}

// BenchmarkLog is one admitted request on a full log, each of whose entries leaves
// when the next comes, in batches of 64 clients.
func BenchmarkLog(b *testing.B) {
	clients := make([]string, 64)
	for i := range clients {
		clients[i] = fmt.Sprint("client:", i)
	}
	for _, encoding := range encodings {
		for _, entries := range []int{100, 1000} {
			b.Run(fmt.Sprintf("encoding=%s/entries=%d", encoding, entries), func(b *testing.B) {
				clock := storetest.NewClock(dawn)
				store, _ := storeOn(b, newConn(b), redisstore.Options{LogEncoding: encoding, Now: clock.Now})
				policy := policyOf(b, "", stint.SlidingWindowLog(int64(entries), time.Hour))
				fillLogs(b, store, clock, policy, clients, entries)
				ops := make([]stint.Op, len(clients))
				results := make([]stint.Result, len(clients))
				for i, client := range clients {
					ops[i] = op(stint.VerbTake, client, policy, 1)
				}
				b.ResetTimer()
				for i := 0; i < b.N; i += len(ops) {
					clock.Advance(time.Hour / time.Duration(entries))
					store.DecideAll(b.Context(), ops, results)
				}
				b.StopTimer()
				for _, r := range results {
					if r.Err != nil || !r.Decision.Allowed {
						b.Fatalf("%+v", r)
					}
				}
			})
		}
	}
}
