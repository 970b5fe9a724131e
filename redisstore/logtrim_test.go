package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// However many entries have left, a call drops a bounded number of them, looks at a bounded
// number, and decides as if all had been dropped; the next calls drop the others.
func TestTrimInSteps(t *testing.T) {
	const entries = 50_000
	for _, c := range []struct {
		encoding redisstore.LogEncoding
		length   string
		most     int64 // entries that a call may drop
	}{{redisstore.LogZSet, "ZCARD", 1000}, {redisstore.LogStream, "XLEN", 10_000}} {
		t.Run(string(c.encoding), func(t *testing.T) {
			clock := storetest.NewClock(dawn)
			store, prefix := storeOn(t, newConn(t), redisstore.Options{LogEncoding: c.encoding, Now: clock.Now, MaxBatch: 1})
			memory := memstore.New(memstore.Config{Now: clock.Now})
			policy := policyOf(t, "", stint.SlidingWindowLog(entries, time.Hour))
			step := time.Duration(time.Hour.Microseconds()/entries) * time.Microsecond
			for range entries - 1 {
				take(t, memory, "k", policy, 1)
				clock.Advance(step)
			}
			take(t, memory, "k", policy, 1)
			key := fillLog(t, store, prefix, clock.Instant(), policy, "k", c.encoding)
			length := func() int64 { return redis(t, c.length, key).(int64) }
			both := func(verb stint.Verb, permits int64) {
				t.Helper()
				before, looks := length(), calls(t, "zrange", "zrevrangebyscore", "xrange", "xrevrange")
				got, want := decide(t, store, op(verb, "k", policy, permits)), decide(t, memory, op(verb, "k", policy, permits))
				if got != want {
					t.Fatalf("%s of %d: %+v, want %+v", verb, permits, got, want)
				}
				if dropped := before - length(); dropped > c.most {
					t.Errorf("%s of %d dropped %d of %d entries, want at most %d", verb, permits, dropped, before, c.most)
				}
				if looked := calls(t, "zrange", "zrevrangebyscore", "xrange", "xrevrange") - looks; looked > 150 {
					t.Errorf("%s of %d took %d looks at the log", verb, permits, looked)
				}
			}
			both(stint.VerbSettle, -entries/4) // the oldest go
			for _, n := range []int64{1, entries / 4, entries / 2, entries} {
				both(stint.VerbPeek, n)
			}
			clock.Advance(time.Hour / 4)
			both(stint.VerbTake, 1)
			clock.Advance(time.Hour / 4)
			for _, n := range []int64{1, entries/4 + 1, entries, 10} {
				both(stint.VerbTake, n)
				both(stint.VerbPeek, entries)
			}
			for range 60 {
				clock.Advance(time.Millisecond)
				both(stint.VerbTake, 1)
			}
			// Records that have left are gone by now, except those in one node of a stream.
			if left, live := length(), int64(entries/2+70); left > live+200 {
				t.Errorf("%d entries are kept, of which about %d are live", left, live)
			}
			// What has left altogether goes at once, which is freed in the background.
			clock.Advance(2 * time.Hour)
			before := length()
			if d := take(t, store, "k", policy, 1); !d.Allowed || d.Remaining != entries-1 {
				t.Errorf("%+v, want it as new", d)
			}
			if left := length(); left > 2 {
				t.Errorf("%d of %d entries are left, want those of the last write", left, before)
			}
		})
	}
}

// calls is how often the server carried out commands.
func calls(t testing.TB, commands ...string) (sum int) {
	t.Helper()
	for line := range strings.Lines(redis(t, "INFO", "commandstats").(string)) {
		for _, command := range commands {
			if rest, found := strings.CutPrefix(line, "cmdstat_"+command+":calls="); found {
				n := 0
				_, err := fmt.Sscan(strings.ReplaceAll(rest, ",", " "), &n)
				if sum += n; err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return sum
}

// fill is a script that writes a log of so many entries of one permit, spread evenly over
// the window before now.
const fill = `
local key, encoding, entries, now, window = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local function head(i, at)
  return string.format('0:%.0f:%.0f:%.0f:0:%.0f', at, entries, window, i)
end
redis.call('DEL', key)
local step, at = math.floor(window / entries), now
for i = 1, entries do
  at = now - (entries - i) * step
  if encoding == 'zset' then
    redis.call('ZADD', key, string.format('%.0f', at), string.format('%.0f', i))
  else
    redis.call('XADD', key, string.format('%.0f-0', at), 'h', head(i, at))
  end
end
if encoding == 'zset' then
  redis.call('ZADD', key, -1, head(entries, at))
end
redis.call('PEXPIRE', key, 86400000)
return ''`

// fillLog gives a client a full log of as many entries as the policy's limit admits.
func fillLog(t testing.TB, store stint.Store, prefix string, now stint.Instant, policy *stint.Policy, client string, encoding redisstore.LogEncoding) (key string) {
	t.Helper()
	decide(t, store, op(stint.VerbReset, client, policy, 0))
	take(t, store, client, policy, 1)
	key = keysOf(t, prefix)[0]
	l := policy.Limit(0)
	redis(t, "EVAL", fill, 1, key, string(encoding), l.Capacity, int64(now), l.Window.Microseconds())
	return key
}
