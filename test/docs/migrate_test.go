package docs_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testseed"
	"github.com/stint-go/stint/rules"
)

// A limitModel decides a client's requests as another limiter does, in the order of their times, and says how long one
// waits that it admits.
type limitModel func(now time.Duration) (allowed bool, delay time.Duration)

// asNginx is limit_req: excess is in thousandths of a request, rate in such a second
// (ngx_http_limit_req_module.c, ngx_http_limit_req_lookup and ngx_http_limit_req_account).
func asNginx(rate, burst int64, delays bool) limitModel {
	known, excess, last := false, int64(0), int64(0)
	return func(now time.Duration) (bool, time.Duration) {
		ms := now.Milliseconds()
		next := max(0, excess-rate*(ms-last)/1000+1000)
		if !known {
			known, next = true, 0
		} else if next > burst*1000 {
			return false, 0
		}
		excess, last = next, ms
		if !delays {
			return true, 0
		}
		return true, time.Duration(excess*1000/rate) * time.Millisecond
	}
}

// asKong is the plugin rate-limiting: it looks at the usage of all windows, and then counts in all of them
// (handler.lua, get_usage and increment).
func asKong(limits map[time.Duration]int64) limitModel {
	type window struct {
		length time.Duration
		number int64
	}
	usage := map[window]int64{}
	return func(now time.Duration) (bool, time.Duration) {
		for length, limit := range limits {
			if limit-usage[window{length, int64(now / length)}] <= 0 {
				return false, 0
			}
		}
		for length := range limits {
			usage[window{length, int64(now / length)}]++
		}
		return true, 0
	}
}

// asExpress is the MemoryStore of express-rate-limit (memory-store.ts, increment), asked by its middleware.
func asExpress(limit int, window time.Duration) limitModel {
	hits, reset := 0, time.Duration(0)
	return func(now time.Duration) (bool, time.Duration) {
		if reset <= now {
			hits, reset = 0, now+window
		}
		hits++
		return hits <= limit, 0
	}
}

// asDjangoREST is SimpleRateThrottle of Django REST framework (throttling.py, allow_request).
func asDjangoREST(requests int, duration time.Duration) limitModel {
	var history []time.Duration // the oldest first
	return func(now time.Duration) (bool, time.Duration) {
		for len(history) > 0 && history[0] <= now-duration {
			history = history[1:]
		}
		if len(history) >= requests {
			return false, 0
		}
		history = append(history, now)
		return true, 0
	}
}

// asCaddy is the ring of caddy-ratelimit (ringbuffer.go, allowed), which was never used at first.
func asCaddy(events int, window time.Duration) limitModel {
	ring, cursor := make([]time.Duration, events), 0
	for i := range ring {
		ring[i] = -window - 1
	}
	return func(now time.Duration) (bool, time.Duration) {
		if now-ring[cursor] <= window {
			return false, 0
		}
		ring[cursor] = now
		cursor = (cursor + 1) % len(ring)
		return true, 0
	}
}

// Where a page says that its rules decide as another limiter does, they do, on random traffic: a client asks in bursts
// with pauses, at multiples of step.
func TestSameDecisions(t *testing.T) {
	seed := testseed.Seed()
	minute := map[time.Duration]int64{time.Second: 5, time.Minute: 100, time.Hour: 1000}
	for name, test := range map[string]struct {
		page, path string
		model      limitModel
		step       time.Duration // of which pauses are multiples
		pause      time.Duration // the longest
	}{
		"nginx, nodelay": {"nginx", "/search", asNginx(10_000, 20, false), time.Millisecond, 500 * time.Millisecond},
		"nginx, delay":   {"nginx", "/feed", asNginx(10_000, 20, true), time.Millisecond, 500 * time.Millisecond},
		"Kong":           {"kong", "/", asKong(minute), time.Microsecond, 10 * time.Second},
		"Express":        {"express-rate-limit", "/", asExpress(100, time.Minute), time.Millisecond, 3 * time.Second},
		"DRF":            {"flask-and-django", "/", asDjangoREST(100, time.Minute), time.Millisecond, 3 * time.Second},
		// A minute is no multiple of 7 microseconds, so that no event is exactly one window old.
		"Caddy": {"caddy", "/", asCaddy(100, time.Minute), 7 * time.Microsecond, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			limiter, clock := byRules(t, shownRules(t, "docs/migrate/"+test.page+".md", 0))
			chance := rand.New(rand.NewPCG(seed, 0))
			start, v, counts := still(), new(enforce.Verdict), map[bool]int{}
			for range 50_000 {
				if chance.IntN(3) == 0 {
					steps := chance.Int64N(int64(test.pause / test.step))
					clock.Advance(time.Duration(steps) * test.step)
				}
				now := clock.Now().Sub(start)
				request := rules.Request{Method: "GET", Path: test.path, Address: "192.0.2.1", User: "ann"}
				must.Do(t, limiter.Decide(t.Context(), &request, v))
				allowed, delay := test.model(now)
				counts[allowed]++
				if v.Allowed != allowed || allowed && v.Decision.Delay != delay {
					t.Fatalf("SEED=%d: after %v stint says %v and a delay of %v, the other %v and %v", seed, now, v.Allowed, v.Decision.Delay, allowed, delay)
				}
			}
			if counts[true] < 500 || counts[false] < 500 {
				t.Errorf("SEED=%d: %d requests were admitted and %d denied, too few to compare", seed, counts[true], counts[false])
			}
		})
	}
}

// The short pages have at most 350 words, a document of rules, and say by what they know the other limiter.
func TestShortPages(t *testing.T) {
	short := 0
	for name, page := range read(t, "docs/migrate/*.md") {
		if !strings.Contains(page, "\n## What differs\n") {
			continue // one with tasks
		}
		short++
		_ = shownRules(t, name, 0)
		if words := len(strings.Fields(page)); words > 350 {
			t.Errorf("%s has %d words; at most 350", name, words)
		}
		if !strings.Contains(page, "its documents") && !strings.Contains(page, "a model of its") {
			t.Errorf("%s does not say how it knows", name)
		}
	}
	if short < 14 {
		t.Errorf("only %d short pages were found", short)
	}
}
