package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// What is dead is unlinked before it expires.
func TestSweep(t *testing.T) {
	t.Parallel()
	own := testredis.Start(t)
	store := open(t, own.URL(), redisstore.Options{})
	for _, limit := range []stint.Limit{stint.FixedWindow(10, time.Millisecond), stint.TokenBucket(10, stint.Per(1, time.Millisecond))} {
		policy := policyOf(t, limit.Algorithm.String(), limit)
		for i := range 20 {
			take(t, store, fmt.Sprint("k", i), policy, 1)
		}
	}
	until(t, "the hashes are gone", func() bool {
		keys, err := own.Do("KEYS", "*:cur")
		if err != nil {
			t.Fatal(err)
		}
		return len(keys.([]any)) == 0
	})
	stats, err := own.Info("stats")
	if err != nil {
		t.Fatal(err)
	}
	if n := stats["expired_keys"]; n != "0" {
		t.Errorf("%s keys expired, want all unlinked", n)
	}
}

// BenchmarkDeadHash is the longest that the server answers nobody while a hash of
// 1,240,000 clients dies that nobody writes to.
func BenchmarkDeadHash(b *testing.B) {
	const crowd = `
local fields = {}
for i = 1, tonumber(ARGV[1]) do
  fields[#fields + 1], fields[#fields + 2] = 'client:' .. ARGV[2] .. ':' .. i, 'state' .. i
end
redis.call('HSET', KEYS[1], unpack(fields))
return ''`
	for b.Loop() {
		own := testredis.Start(b)
		store := open(b, own.URL(), redisstore.Options{Partitions: 1})
		do := func(args ...any) any {
			reply, err := own.Do(args...)
			if err != nil {
				b.Fatal(err)
			}
			return reply
		}
		take(b, store, "k", policyOf(b, "", stint.FixedWindow(10, 10*time.Second)), 1)
		key := do("KEYS", "*:cur").([]any)[0]
		for i := range 1240 {
			do("EVAL", crowd, 1, key, 1000, i)
		}
		for do("PTTL", key).(int64) > 1500 {
			continue // until it is about to die
		}
		var longest time.Duration
		for left := int64(0); left >= 0; {
			sent := time.Now()
			left = do("PTTL", key).(int64)
			longest = max(longest, time.Since(sent))
		}
		b.ReportMetric(float64(longest.Milliseconds()), "ms-longest")
	}
}
