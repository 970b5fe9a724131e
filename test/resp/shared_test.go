package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// Two processes of the service on one Redis admit exactly the limit together, to go-redis in both versions of the
// protocol, by single commands, pipelines and transactions.
func TestSharedLimits(t *testing.T) {
	t.Parallel()
	store := inRedis()
	services := []*service{startService(t, store, limits), startService(t, store, limits)}
	protocols(t, func(t *testing.T, protocol int) {
		var clients []*redis.Client
		for _, s := range services {
			clients = append(clients, goRedis(t, s, protocol))
		}
		ctx, key := t.Context(), fmt.Sprint("k", protocol)
		got := hammer(t, 20, func(i int) (bool, error) {
			return admitted(askThrottle(ctx, clients[i%2], key, 499, 1, 86400).Result())
		})
		if got != 500 {
			t.Errorf("%d of 1280 were admitted; the limit is 500", got)
		}
		if got := hammerPipes(t, 4, 5, key+"pipe", 499, clients...); got != 500 {
			t.Errorf("%d of 1280 in pipelines were admitted; the limit is 500", got)
		}
		got = hammer(t, 2, func(i int) (bool, error) {
			answer, err := clients[i%2].Do(ctx, "STINT.CHECK", "tokens", key).Result()
			return pairs(answer).allowed(), err
		})
		if got != 100 {
			t.Errorf("STINT.CHECK admitted %d of 128; the limit is 100", got)
		}
	})
}

// What one process is told of a key holds at the other, too.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	store := inRedis()
	one, other := dial(t, startService(t, store, limits)), dial(t, startService(t, store, limits))
	one.expect("CL.THROTTLE k 4 1 3600 5", "[0 5 0 -1 18000]")
	other.expect("CL.THROTTLE k 4 1 3600", "[1 5 0 3600 18000]")
	one.expect("CL.THROTTLE k 4 1 3600", "[1 5 0 3600 18000]")
	other.expect("EXISTS k", "1")
	other.expect("DEL k", "1")
	other.expect("CL.THROTTLE k 4 1 3600", "[0 5 4 -1 3600]")
	// A denial that was remembered is forgotten as soon as the news of DEL arrive.
	until(t, "the other process admits the key again", func() bool { return strings.HasPrefix(one.do("CL.THROTTLE k 4 1 3600"), "[0 ") })
	// A hold that one process has reserved is ended by the other, which is told more.
	one.expect("STINT.RESERVE h tokens ann 40 1m", `[.* "remaining" 60 .*]`)
	other.expect("STINT.COMMIT h 10", "UNKNOWN .*")
	other.expect("STINT.COMMIT h 10 tokens ann", `["id" "h" "applied" -30 "late" 0 "replayed" 0 "reset" 0 "limit" 100 "remaining" 90 "at" .*]`)
	one.expect("STINT.COMMIT h 10", `["id" "h" "applied" -30 "late" 0 "replayed" 1 "reset" 0 "limit" 100 "remaining" 90 "at" .*]`)
}

// TTL says of a key what its state says, or, in a process that never took of it, that it does not know.
func TestSharedTTL(t *testing.T) {
	t.Parallel()
	store := inRedis()
	one, other := dial(t, startService(t, store, "")), dial(t, startService(t, store, ""))
	one.expect("CL.THROTTLE k 4 1 3600 3", "[0 5 2 -1 10800]")
	one.expect("TTL k", "~10800")
	const unknown = "ERR the key has a state, and this process does not know by which parameters.*"
	other.expect("TTL k", unknown)
	other.expect("CL.THROTTLE else 4 1 60", "[0 5 4 -1 60]")
	other.expect("TTL k", unknown)
	other.expect("EXISTS k", "1")
	other.expect("CL.THROTTLE k 9 1 3600", "[0 10 1 -1 32400]")
	other.expect("TTL k", "~32400")
}

// What is answered while Redis can't be reached is as the configuration says.
func TestStoreFailure(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{"closed": "UNAVAILABLE .*", "open": "[0 16 16 -1 0]"} {
		t.Run(policy, func(t *testing.T) {
			server := testredis.Start(t)
			w := dial(t, startService(t, fmt.Sprintf("url: %q", server.URL()), "on_store_failure: "+policy+"\n"))
			until(t, "Redis is asked", func() bool { return w.do("CL.THROTTLE k 15 30 3600") == "[0 16 15 -1 120]" })
			must.Do(t, server.Stop())
			until(t, "the policy holds", func() bool { return matches(want, w.do("CL.THROTTLE k 15 30 3600")) })
			// In a pipeline each command has its answer, and the connection stays open.
			w.send(testredis.Command("CL.THROTTLE", "k", "15", "30", "3600"), testredis.Command("PING"), testredis.Command("CL.THROTTLE", "k", "15", "30", "3600"), testredis.Command("DEL", "k"))
			for _, s := range []said{{"CL.THROTTLE", want}, {"PING", "PONG"}, {"CL.THROTTLE", want}, {"DEL", "UNAVAILABLE .*"}} {
				w.compare(s)
			}
		})
	}
}
