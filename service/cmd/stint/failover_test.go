package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/rest"
)

// checked is the answer to a check.
func checked(t testing.TB, url, query string) (status int, c api.CheckResponse) {
	t.Helper()
	status, body := get(t, url+apipath.Check+"?"+query)
	if err := json.Unmarshal([]byte(body), &c); err != nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	return status, c
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); {
		if time.Since(start) > patience {
			t.Fatalf("%s: not in %s", what, patience)
		}
		<-time.After(time.Millisecond)
	}
}

// The server is killed and started again: what the service says meanwhile, its health,
// its metrics and its log.
func TestServerIsKilled(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		mode   string
		status int    // of checks while the server is away
		left   [2]int // what they say is left
		health int
		up     string // what readiness says of the service
		answer string // by the mode, in the metrics
	}{
		{"open", 200, [2]int{100, 100}, 200, "UP", `rate_limiter_failover_answers_total{mode="open"} `},
		{"closed", 503, [2]int{}, 503, "DOWN", `rate_limiter_failover_answers_total{mode="closed"} `},
		{"local", 200, [2]int{24, 23}, 200, "UP", `rate_limiter_failover_answers_total{mode="local"} `},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			redis := testredis.Start(t)
			url, log := start(t, "--store", redis.URL(), "--on-store-failure", test.mode, "--instances", "4")
			const query = "key=k&algorithm=SLIDING_WINDOW_LOG"
			if status, c := checked(t, url, query); status != 200 || c.Degraded {
				t.Fatalf("%d %+v", status, c)
			}
			must.Do(t, redis.Kill())
			eventually(t, "the store is known to be unreachable", func() bool {
				get(t, url+apipath.Check+"?key=other")
				return strings.Contains(log.String(), "the store is unreachable")
			})
			for _, left := range test.left {
				status, c := checked(t, url, query)
				if status != test.status || status == 200 && (!c.Degraded || c.Source != "failure-policy" || c.Remaining != int64(left)) {
					t.Errorf("a check: %d %+v, want status %d, %d left", status, c, test.status, left)
				}
			}
			status, body := get(t, url+apipath.Readiness)
			var health rest.Health
			if err := json.Unmarshal([]byte(body), &health); err != nil || status != test.health || health.Status != test.up ||
				health.Components["server"].Status != "UP" || health.Components["rules"].Status != "UP" || health.Components["store"].Status != "DOWN" {
				t.Errorf("readiness: %d %s, %v", status, body, err)
			}
			if status, body := get(t, url+apipath.Liveness); status != 200 {
				t.Errorf("liveness: %d %s", status, body)
			}
			if status, body := get(t, url+apipath.Remaining+"?key=k"); status != 503 {
				t.Errorf("remaining: %d %s", status, body)
			}
			_, metrics := get(t, url+apipath.Metrics)
			for _, want := range []string{test.answer, `rate_limiter_store_shards{state="unreachable"} 1` + "\n"} {
				if !strings.Contains(metrics, want) || strings.Contains(metrics, test.answer+"0\n") {
					t.Errorf("the metrics do not say %s", want)
				}
			}
			redis.Restart(t)
			eventually(t, "exact decisions", func() bool {
				status, c := checked(t, url, "key=another")
				return status == 200 && !c.Degraded
			})
			// The server has forgotten, and is charged nothing of what the mode admitted.
			if status, body := get(t, url+apipath.Remaining+"?"+query); status != 200 || !strings.Contains(body, `"remaining":100,`) {
				t.Errorf("remaining afterwards: %d %s", status, body)
			}
			if status, body := get(t, url+apipath.Readiness); status != 200 || strings.Contains(body, "DOWN") {
				t.Errorf("readiness afterwards: %d %s", status, body)
			}
			awaitLog(t, log, "the store can be reached again")
			text := log.String()
			if !regexp.MustCompile(`the store can be reached again" after=[0-9]\S*s decided_without=[1-9][0-9]*\n`).MatchString(text) {
				t.Errorf("the log does not say after how long, and how many decisions were made:\n%s", text)
			}
			if strings.Count(text, "the store is unreachable") != 1 || strings.Count(text, "the store can be reached again") != 1 || strings.Contains(text, "shard=") {
				t.Errorf("the log, want a line for each change:\n%s", text)
			}
		})
	}
}

// Processes that share a store share its limits while it is unreachable, as many as there were.
func TestInstancesAreCounted(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	args := []string{"--store", redis.URL(), "--store-timeout=100ms", "--on-store-failure", "local", "--instances", "auto"}
	url, log := start(t, args...)
	start(t, args...)
	eventually(t, "both are counted", func() bool {
		reply, err := redis.Do("ZCARD", "rate_limiter:instances")
		return err == nil && reply == int64(2)
	})
	// The first to come hears of the second with its next heartbeat.
	eventually(t, "the share is half", func() bool {
		must.Do(t, redis.Pause())
		eventually(t, "the store is unreachable", func() bool {
			_, c := checked(t, url, "key=k")
			return c.Degraded
		})
		_, c := checked(t, url, "key=other")
		must.Do(t, redis.Resume())
		return c.Degraded && c.Limit == 50
	})
	if strings.Contains(log.String(), "panic") {
		t.Error(log)
	}
}
