package resp_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/must"
)

// The commands for those who come from Bucket4j do what the page says, by its configuration. Its buckets refill slower here,
// so that they do not while the test runs.
func TestFromBucket4j(t *testing.T) {
	t.Parallel()
	guide := page(t, "migrate/bucket4j.md")
	policies := strings.NewReplacer("1000/1m", "1/1d", "50/1s", "1/1d").Replace(block(t, guide, "yaml", 0))
	s := startService(t, memory, policies)
	commands := strings.Split(strings.TrimSpace(block(t, guide, "sh", 0)), "\n")[1:]
	wants := []string{`"allowed":true,.*"remaining":100,`, `(?s)allowed\n0\n`, `"applied":-400`, `"remaining":500,.*"allowed":true`}
	if len(commands) != len(wants) {
		t.Fatalf("the page has %d commands", len(commands))
	}
	for i, command := range commands {
		command = strings.NewReplacer("127.0.0.1:8080", s.http, "6390", s.port()).Replace(command)
		if got := output(t, "", "sh", "-c", command); !regexp.MustCompile(wants[i]).MatchString(got) {
			t.Errorf("%s\nanswers %s\nwant %s", command, got, wants[i])
		}
	}
	if got := output(t, "", "redis-cli", "-p", s.port(), "STINT.CHECK", "api", "user:42", "501"); !strings.Contains(got, "ERR permits") {
		t.Errorf("more than the capacity: %s", got)
	}
	if got := output(t, "", "redis-cli", "-p", s.port(), "STINT.CHECK", "quota", "user:42", "400"); !strings.Contains(got, "FIXED_WINDOW") {
		t.Errorf("the quota: %s", got)
	}
}

// What was sent to redis-cell is sent to stint, by a client of its own.
func TestFromRedisCell(t *testing.T) {
	t.Parallel()
	s := startInMemory(t)
	guide := strings.ReplaceAll(page(t, "migrate/redis-cell.md"), "6390", s.port())
	asked := strings.Split(strings.TrimSpace(block(t, guide, "sh", 0)), "\n")[1]
	if got := output(t, "", "sh", "-c", asked); got != "0\n16\n15\n-1\n2\n" {
		t.Errorf("%s answers %q", asked, got)
	}

	ctx, addr := t.Context(), s.addr
	t.Run("before", func(t *testing.T) {
		data := redis.NewClient(&redis.Options{Addr: addr}) // the Redis that had the module
		reply := must.Get(data.Do(ctx, "CL.THROTTLE", "user123", 15, 30, 60).Int64Slice())(t)
		limited := reply[0] == 1
		if err := data.Close(); limited || err != nil {
			t.Errorf("limited: %v, %v", limited, err)
		}
	})
	t.Run("after", func(t *testing.T) {
		limits := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}) // a command that is sent again takes again
		reply := must.Get(limits.Do(ctx, "CL.THROTTLE", "user123", 15, 30, 60).Int64Slice())(t)
		limited := reply[0] == 1
		expectError(t, "a command of data", limits.Set(ctx, "a", "b", 0).Err(), ".*unknown command.*")
		script := `return redis.call("CL.THROTTLE", KEYS[1], 15, 30, 60)`
		if reply, err := limits.Eval(ctx, script, []string{"user456"}).Int64Slice(); err != nil || len(reply) != 5 || reply[2] != 15 {
			t.Errorf("from a script: %v, %v", reply, err)
		}
		expectError(t, "another script", limits.Eval(ctx, "local a = 1 "+script, []string{"a"}).Err(), ".*allowed: return redis.call(.*")
		if err := limits.Close(); limited || err != nil {
			t.Errorf("limited: %v, %v", limited, err)
		}
	})
}
