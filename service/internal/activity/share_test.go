package activity_test

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/service/internal/activity"
)

// evaluator runs scripts in a Redis of the test's own.
func evaluator(t *testing.T) activity.Eval {
	t.Helper()
	conn := must.Get(rueidis.Dial(rueidis.Config{URL: testredis.Start(t).URL()}))(t)
	t.Cleanup(conn.Close)
	return func(ctx context.Context, source, key string, args []string) (string, error) {
		digest := sha1.Sum([]byte(source)) //nolint:gosec // as above
		if err := conn.Ready(ctx); err != nil {
			return "", err
		}
		return conn.Eval(ctx, &redisconn.Script{Source: source, Digest: hex.EncodeToString(digest[:])}, []string{key}, args)
	}
}

// pair are two processes that share a Redis.
func pair(t *testing.T) (eval activity.Eval, a, b *service) {
	t.Helper()
	eval = evaluator(t)
	a = newService(t, activity.Config{Process: activity.Process{Name: "a"}, Eval: eval})
	b = newService(t, activity.Config{Process: activity.Process{Name: "b"}, Eval: eval})
	return eval, a, b
}

const activityKey = "rate_limiter:activity"

// askAll asks a process for denials, and has the others answer as soon as they are asked.
func askAll(a *service, eval activity.Eval, target string, others ...*service) (d activity.Denials) {
	a.t.Helper()
	var answering sync.WaitGroup
	defer answering.Wait()
	answering.Go(func() {
		awaitField(a.t, eval, "?")
		for _, other := range others {
			other.advance(time.Second) // else it would show what it knows
			_ = other.ask(http.MethodGet, "/api/v1/processes")
		}
	})
	return get[activity.Denials](a, target)
}

// awaitField waits until a field of the hash is there, and returns it.
func awaitField(t testing.TB, eval activity.Eval, field string) string {
	for deadline := time.Now().Add(time.Minute); ; {
		text, err := eval(t.Context(), "return redis.call('HGET', KEYS[1], ARGV[1]) or ''", activityKey, []string{field})
		if text != "" {
			return text
		}
		if err != nil || time.Now().After(deadline) {
			t.Errorf("there is no field %s: %v", field, err)
			return ""
		}
	}
}

// Each process shows what both know, and says whether a figure is its own or of all.
func TestShared(t *testing.T) {
	eval := evaluator(t)
	a := newService(t, activity.Config{Process: activity.Process{Name: "a", Version: "v1"}, Eval: eval})
	a.RulesChanged("7", "added api", nil)
	b := newService(t, activity.Config{Process: activity.Process{Name: "b"}, Eval: eval})
	a.see(5, "api", "alice", activity.Admitted)
	a.see(3, "api", "bob", activity.Denied)
	b.see(7, "api", "alice", activity.Admitted)
	b.see(2, "api", "bob", activity.Denied)
	b.see(1, "login", "carol", activity.Denied)
	for _, s := range []*service{a, b} {
		s.advance(time.Second)
		_ = get[activity.Processes](s, "/api/v1/processes") // which tells the other
		s.advance(time.Second)
	}
	for name, s := range map[string]*service{"a": a, "b": b} {
		other := map[string]*service{"a": b, "b": a}[name]
		processes := get[activity.Processes](s, "/api/v1/processes")
		if processes.Scope != activity.ScopeAll || len(processes.Processes) != 2 || processes.Processes[0].Name != name || !processes.Processes[0].Self || processes.Processes[1].Self {
			t.Fatalf("%s sees %+v", name, processes)
		}
		for _, p := range processes.Processes {
			if p.Name == "a" && (p.Version != "v1" || p.Revision != "7" || p.Rates.Scope != activity.ScopeProcess || p.Rates.Admitted == 0) {
				t.Errorf("%s sees %+v", name, p)
			}
		}
		top := get[activity.Top](s, "/api/v1/top")
		if want := (activity.TopItem{Rule: "api", Client: "alice", Count: 12}); top.Scope != activity.ScopeAll || top.Processes != 2 || top.Clients[0] != want {
			t.Errorf("%s sees %+v", name, top)
		}
		if want := (activity.TopItem{Rule: "api", Client: "bob", Count: 5}); top.Denied[0] != want || len(top.Denied) != 2 {
			t.Errorf("%s sees denied %+v", name, top.Denied)
		}
		if d := askAll(s, eval, "/api/v1/denials?rule=api", other); d.Scope != activity.ScopeAll || d.Processes != 2 || len(d.Denials) != 1 || d.Denials[0].Count != 5 {
			t.Errorf("%s sees %+v", name, d)
		}
		if d := askAll(s, eval, "/api/v1/denials?rule=login", other); len(d.Denials) != 1 || d.Denials[0].Process != "b" {
			t.Errorf("%s sees %+v", name, d.Denials)
		}
		if stats := get[activity.Stats](s, "/api/v1/stats"); stats.Scope != activity.ScopeProcess || stats.All.Scope != activity.ScopeAll || stats.All.Processes != 2 {
			t.Errorf("%s sees rates %+v", name, stats.All)
		}
	}
	// A process that was killed is gone when it was silent for 8 seconds; here its summary is made so old.
	const ages = `local v = redis.call('HGET', KEYS[1], ARGV[1])
		local at, rest = string.match(v, '^(%d+)(.*)$')
		redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', at - ARGV[2]) .. rest)
		return 'aged'`
	for micros, want := range map[string]int{"1000000": 2, "8000000": 1} {
		must.Get(eval(t.Context(), ages, activityKey, []string{"b", micros}))(t)
		a.advance(time.Second)
		if got := get[activity.Processes](a, "/api/v1/processes"); len(got.Processes) != want || got.Scope != activity.ScopeAll {
			t.Errorf("after %s µs there are %d processes, want %d", micros, len(got.Processes), want)
		}
		b.advance(time.Second)
		_ = get[activity.Processes](b, "/api/v1/processes")
	}
	// One that ends is gone at once.
	ctx, end := context.WithCancel(t.Context())
	end()
	b.Run(ctx)
	a.advance(time.Second)
	if got := get[activity.Processes](a, "/api/v1/processes"); len(got.Processes) != 1 {
		t.Errorf("after one has ended there are %d processes", len(got.Processes))
	}
}

// What all processes decided in the last five minutes is counted together, by rule; what is older is not.
func TestCountsOfAll(t *testing.T) {
	_, a, b := pair(t)
	a.see(1000, "api", "alice", activity.Denied)
	a.advance(5 * time.Minute)
	b.advance(5 * time.Minute)
	a.see(5, "api", "alice", activity.Admitted)
	a.see(3, "api", "bob", activity.Denied)
	a.see(2, "shy", "bob", activity.ShadowDenied)
	b.advance(time.Second)
	b.see(7, "api", "alice", activity.Admitted)
	b.see(2, "api", "bob", activity.Denied)
	b.see(1, "api", "carol", activity.Denied)
	b.see(9, "login", "carol", activity.Denied)
	degraded := decisionAt(b.At(), "login", "dora", activity.Admitted)
	degraded.Decision.Degraded = true
	b.Observe(t.Context(), &degraded)
	_ = get[activity.Processes](a, "/api/v1/processes") // which tells the other
	b.advance(time.Second)
	top := get[activity.Top](b, "/api/v1/top")
	if want := (activity.Counts{Admitted: 13, Denied: 15, ShadowDenied: 2, Degraded: 1}); top.Total != want || top.Scope != activity.ScopeAll || top.At != b.At() {
		t.Errorf("the total is %+v, want %+v (%s, at %d)", top.Total, want, top.Scope, top.At)
	}
	want := []activity.RuleCounts{
		{Rule: "login", Counts: activity.Counts{Admitted: 1, Denied: 9}, DeniedClients: 1},
		{Rule: "api", Counts: activity.Counts{Admitted: 12, Denied: 6}, DeniedClients: 2},
		{Rule: "shy", Counts: activity.Counts{ShadowDenied: 2}},
	}
	for i := range top.Rules {
		top.Rules[i].Near = 0 // these decisions say nothing of what is left
	}
	if !slices.Equal(top.Rules, want) {
		t.Errorf("the rules are %+v, want %+v", top.Rules, want)
	}
}

// The last hour of all processes is added up in steps, up to the last one that has ended in all of them.
func TestHourOfAll(t *testing.T) {
	_, a, b := pair(t)
	first := int64(a.At()/1e6) / 15 * 15
	a.see(1, "api", "alice", activity.Admitted)
	b.see(2, "api", "alice", activity.Denied)
	for _, s := range []*service{a, b} {
		s.advance(30 * time.Second)
	}
	b.see(4, "shy", "bob", activity.ShadowDenied)
	a.see(3, "api", "bob", activity.Denied)
	a.advance(14 * time.Second)
	_ = get[activity.Processes](a, "/api/v1/processes")
	b.advance(31 * time.Second) // two steps ahead of what a has told
	_ = get[activity.Processes](b, "/api/v1/processes")
	h := get[activity.Top](b, "/api/v1/top").Series
	end := int64(a.At()/1e6) / 15 * 15
	if h.Step != 15 || len(h.Admitted) != 239 || h.From+15*239 != end {
		t.Fatalf("the series has %d steps of %d s from %d on, which do not end at %d", len(h.Admitted), h.Step, h.From, end)
	}
	at := func(counts []uint32, second int64) uint32 { return counts[(second-h.From)/15] }
	if at(h.Admitted, first) != 1 || at(h.Denied, first) != 2 || at(h.Denied, first+30) != 3 || at(h.ShadowDenied, first+30) != 4 {
		t.Errorf("the series is %+v", h)
	}
	if sum(h.Admitted)+sum(h.Denied)+sum(h.ShadowDenied) != 10 || sum(h.Degraded) != 0 {
		t.Errorf("together there are %d, %d and %d", sum(h.Admitted), sum(h.Denied), sum(h.ShadowDenied))
	}
}

// While Redis does not answer, figures are this process's, and say so, and denials that others were not asked.
func TestSharedWithoutRedis(t *testing.T) {
	for name, eval := range map[string]activity.Eval{
		"away": func(context.Context, string, string, []string) (string, error) {
			return "", errors.New("no connection")
		},
		"garbage": func(context.Context, string, string, []string) (string, error) { return "[{", nil },
		"none":    nil,
	} {
		s := newService(t, activity.Config{Eval: eval})
		s.see(5, "api", "alice", activity.Admitted)
		s.see(1, "login", "victim", activity.Denied)
		top := get[activity.Top](s, "/api/v1/top")
		if top.Scope != activity.ScopeProcess || top.Processes != 1 || top.Clients[0].Count != 5 {
			t.Errorf("%s: the top is %+v", name, top)
		}
		p := get[activity.Processes](s, "/api/v1/processes")
		if p.Scope != activity.ScopeProcess || len(p.Processes) != 1 {
			t.Errorf("%s: the processes are %+v", name, p)
		}
		d := get[activity.Denials](s, "/api/v1/denials")
		if d.Unasked != (eval != nil) || d.Scope != activity.ScopeProcess || d.Processes != 1 || len(d.Denials) != 1 {
			t.Errorf("%s: the answer is %+v", name, d)
		}
	}
}

// A client that one list lacks may have as many requests as that list's least.
func TestMergedBounds(t *testing.T) {
	_, a, b := pair(t)
	truth := map[string]int64{}
	for i := range 300 {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26))
		a.see(300-i, "api", name, activity.Admitted)
		b.see(i, "api", name, activity.Admitted)
		truth[name] = 300
	}
	a.see(1000, "api", "both", activity.Admitted)
	b.see(1000, "api", "both", activity.Admitted)
	_ = get[activity.Processes](a, "/api/v1/processes")
	top := get[activity.Top](b, "/api/v1/top?limit=100")
	if len(top.Clients) != 100 {
		t.Fatalf("%d clients", len(top.Clients))
	}
	if want := (activity.TopItem{Rule: "api", Client: "both", Count: 2000}); top.Clients[0] != want {
		t.Errorf("the first is %+v, want %+v", top.Clients[0], want)
	}
	top.Clients = top.Clients[1:]
	for _, item := range top.Clients {
		if item.Count < truth[item.Client] || item.Count-item.Error > truth[item.Client] {
			t.Errorf("%+v, want %d within the bounds", item, truth[item.Client])
		}
	}
}
