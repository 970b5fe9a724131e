package redisstore_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

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
				for range entries {
					clock.Advance(window / time.Duration(entries))
					take(t, store, "client:12345", policy, 1)
				}
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
