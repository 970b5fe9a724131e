package activity_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/activity"
)

// Each process answers for what it alone knows: pairs are added up, and a client of the one is found through the other. What a client is
// called goes from process to process as a hash, and nothing of a question stays.
func TestQuestions(t *testing.T) {
	eval, a, b := pair(t)
	b.see(2, "login", "victim", activity.Denied)
	for i := range 5_000 {
		b.see(1, "api", fmt.Sprint("one of many ", i), activity.Denied)
	}
	a.advance(time.Minute)
	a.see(3, "login", "victim", activity.Denied)
	_ = get[activity.Processes](b, "/api/v1/processes") // which tells a

	var asked string
	spying := func(ctx context.Context, script, key string, args []string) (string, error) {
		if len(args) > 2 && args[0] == "ask" {
			asked = args[2]
		}
		return eval(ctx, script, key, args)
	}
	c := newService(t, activity.Config{Process: activity.Process{Name: "c"}, Eval: spying})
	_ = get[activity.Processes](a, "/api/v1/processes")
	d := askAll(c, eval, "/api/v1/denials?client=victim", a, b)
	if d.Processes != 3 || len(d.Silent) != 0 || d.Kept != 5_002 || len(d.Denials) != 1 {
		t.Fatalf("the answer is %+v", d)
	}
	if v := d.Denials[0]; v.Count != 5 || v.First != b.At()-1e6 || v.At != a.At()-1e6 || v.Process != "a" {
		t.Errorf("the victim has %+v", v)
	}
	if asked == "" || strings.Contains(asked, "victim") {
		t.Errorf("the question is %s", asked)
	}
	d = askAll(c, eval, "/api/v1/denials?limit=1000", a, b)
	if !d.More || len(d.Denials) < 100 || len(d.Denials) > 999 || d.Denials[0].Client != "victim" {
		t.Errorf("%d denials, more: %v", len(d.Denials), d.More) // an answer has 64 KiB
	}
	fields, err := eval(t.Context(), "return table.concat(redis.call('HKEYS', KEYS[1]), ' ')", activityKey, nil)
	if left := strings.Fields(fields); err != nil || len(left) != 3 || slices.ContainsFunc(left, func(f string) bool { return len(f) > 1 }) {
		t.Errorf("fields that stay: %s, %v", fields, err)
	}
}

// What an ended process denied is lost: of what was denied since then alone none is missing. Clients that differ in bytes that
// are no UTF-8 stay two, a summary that is no JSON spoils no other, and a question that makes the hash anew lets it end.
func TestSharedWithStrangers(t *testing.T) {
	eval, a, b := pair(t)
	b.see(1, "login", "\xfe", activity.Denied)
	b.see(1, "login", "\xff", activity.Denied)
	_ = get[activity.Processes](b, "/api/v1/processes")
	const put = `local time = redis.call('TIME')
		local at = time[1] * 1000000 + time[2]
		redis.call('HSET', KEYS[1], 'stranger', string.format('%.0f ', at) .. 'no JSON')
		redis.call('HSET', KEYS[1], 'dead', string.format('%.0f ', at - 9000000) .. '{}')
		return string.format('%.0f', at - 1000000)`
	ended := must.Get(eval(t.Context(), put, activityKey, nil))(t)
	d := askAll(a, eval, "/api/v1/denials", b)
	if len(d.Denials) != 2 || d.Processes != 2 || d.Denials[0].Client+d.Denials[1].Client != `\xff\xfe` {
		t.Errorf("the answer is %+v", d)
	}
	if after, _ := strconv.ParseInt(ended, 10, 64); int64(d.From) < after {
		t.Errorf("none is missing since %v, and a process ended about %v", d.From, ended)
	}
	must.Get(eval(t.Context(), "return tostring(redis.call('DEL', KEYS[1]))", activityKey, nil))(t)
	c := newService(t, activity.Config{Process: activity.Process{Name: "c"}, Eval: func(
		ctx context.Context, script, key string, args []string,
	) (string, error) {
		if args[0] == "end" {
			return "", nil // it dies
		}
		if args[0] == "ask" {
			_, _ = eval(ctx, "return tostring(redis.call('DEL', KEYS[1]))", key, nil)
		}
		return eval(ctx, script, key, args)
	}})
	_ = get[activity.Processes](b, "/api/v1/processes")
	b.advance(2 * time.Second)
	_ = get[activity.Processes](b, "/api/v1/processes")
	var waiting sync.WaitGroup
	waiting.Go(func() {
		awaitField(t, eval, "?")
		c.advance(4 * time.Second)
	})
	_ = get[activity.Denials](c, "/api/v1/denials")
	waiting.Wait()
	life, err := eval(t.Context(), "return tostring(redis.call('PTTL', KEYS[1]))", activityKey, nil)
	if n, _ := strconv.Atoi(life); err != nil || n <= 0 {
		t.Errorf("the hash lives for %s ms, %v", life, err)
	}
}

// A process that does not answer within 4 seconds is named.
func TestSilentProcess(t *testing.T) {
	eval, a, b := pair(t)
	a.see(1, "login", "victim", activity.Denied)
	_ = get[activity.Processes](b, "/api/v1/processes")
	var waiting sync.WaitGroup
	waiting.Go(func() {
		awaitField(t, eval, "?")
		a.advance(4 * time.Second)
	})
	d := get[activity.Denials](a, "/api/v1/denials")
	waiting.Wait()
	if d.Scope != activity.ScopeAll || d.Processes != 2 || !slices.Equal(d.Silent, []string{"b"}) || len(d.Denials) != 1 {
		t.Errorf("the answer is %+v", d)
	}
}

// Questions of a process that died are gone after 8 seconds, with their answers. Until then no more than 32 are asked.
func TestAbandonedQuestions(t *testing.T) {
	eval, a, b := pair(t)
	const put = `local time = redis.call('TIME')
		local at = string.format('%.0f', time[1] * 1000000 + time[2] - ARGV[1])
		local open = ''
		for i = 1, 32 do
			open = open .. '\n' .. 'Q' .. i .. ' ' .. at .. ' {"asker":"dead","limit":1}'
			redis.call('HSET', KEYS[1], '!Q' .. i, '\n{}')
		end
		redis.call('HSET', KEYS[1], '?', open)
		return ''`
	for _, age := range []string{"0", "9000000"} {
		must.Get(eval(t.Context(), put, activityKey, []string{age}))(t)
		b.advance(time.Second)
		_ = get[activity.Processes](b, "/api/v1/processes")
		if age == "0" {
			answers := awaitField(t, eval, "!Q7")
			if !strings.Contains(answers, `"process":"b"`) {
				t.Errorf("the answers are %q", answers)
			}
			a.refused(http.MethodGet, "/api/v1/denials", http.StatusServiceUnavailable, "32 questions", "scope=process")
		}
	}
	left, err := eval(t.Context(), "return table.concat(redis.call('HKEYS', KEYS[1]), ' ')", activityKey, nil)
	if err != nil || strings.ContainsAny(left, "?!") {
		t.Errorf("left are %s, %v", left, err)
	}
}

// A question that no process of ours asks, as it would cost too much, is not answered; the others are.
func TestHostileQuestions(t *testing.T) {
	eval := evaluator(t)
	b := newService(t, activity.Config{Process: activity.Process{Name: "b"}, Eval: eval})
	b.see(3, "login", "victim", activity.Denied)
	long := strings.Repeat("x", 4000)
	open := ""
	for i, text := range []string{
		`{"asker":"m","limit":-1}`, `{"asker":"m","limit":9223372036854775807}`, `{"asker":"m","limit":0}`,
		`{"asker":"m","limit":1,"query":{"clients":["` + long + `"]}}`,
		`{"asker":"m","limit":1,"query":{"salt":"` + long + `","clients":["x"]}}`,
		`{"asker":"m","limit":1,"query":{"text":"` + long + `"}}`,
		`{"asker":"m","limit":1,"query":{"clients":[` + strings.Repeat(`"",`, 100) + `""]}}`,
		`{"asker":"m","limit":"1"}`, `no JSON`, `{"asker":"m","limit":1}`,
	} {
		open += fmt.Sprintf("\nQ%d NOW %s", i, text)
	}
	const put = `local time = redis.call('TIME')
		local at = string.format('%.0f', time[1] * 1000000 + time[2])
		redis.call('HSET', KEYS[1], '?', (string.gsub(ARGV[1], 'NOW', at)))
		return ''`
	must.Get(eval(t.Context(), put, activityKey, []string{open}))(t)
	if p := get[activity.Processes](b, "/api/v1/processes"); p.Scope != activity.ScopeAll {
		t.Errorf("of processes that share a store, only %+v is shown", p)
	}
	_ = awaitField(t, eval, "!Q9")
	for i := range 9 {
		got, err := eval(t.Context(), "return redis.call('HGET', KEYS[1], ARGV[1]) or ''", activityKey, []string{fmt.Sprintf("!Q%d", i)})
		if err != nil || got != "" {
			t.Errorf("question %d is answered by %s, %v", i, got, err)
		}
	}
}

// If Redis goes away between a question and its answers, all of them together take a second: pages of this process wait for it.
func TestAnswersOnSilentRedis(t *testing.T) {
	open := map[string]any{}
	for i := range 32 {
		open[fmt.Sprint("Q", i)] = `{"asker":"m","limit":1}`
	}
	reply := must.Get(json.Marshal(map[string]any{"all": []any{}, "open": open}))(t)
	eval := func(ctx context.Context, _, _ string, args []string) (string, error) {
		if args[0] != "answer" {
			return string(reply), nil
		}
		<-ctx.Done()
		return "", ctx.Err()
	}
	synctest.Test(t, func(t *testing.T) {
		s, began := newService(t, activity.Config{Eval: eval}), time.Now()
		_ = get[activity.Processes](s, "/api/v1/processes")
		if took := time.Since(began); took > time.Second {
			t.Errorf("it takes %v", took)
		}
	})
}

// Answers are read once, however long another process is awaited.
func TestAnswersAreReadOnce(t *testing.T) {
	eval := evaluator(t)
	b := newService(t, activity.Config{Process: activity.Process{Name: "b"}, Eval: eval})
	silent := newService(t, activity.Config{Process: activity.Process{Name: "silent"}, Eval: eval})
	for i := range 500 {
		b.see(1, "api", fmt.Sprint("one of many ", i), activity.Denied)
	}
	_ = get[activity.Processes](b, "/api/v1/processes")
	_ = get[activity.Processes](silent, "/api/v1/processes")
	var a *service
	full, reads := 0, 0
	a = newService(t, activity.Config{
		Process: activity.Process{Name: "a"},
		Eval: func(ctx context.Context, script, key string, args []string) (string, error) {
			reply, err := eval(ctx, script, key, args)
			if args[0] == "read" {
				if reply != "" {
					full++
				}
				if full > 0 {
					reads++
				}
				if reads == 3 {
					a.advance(4 * time.Second)
				}
			}
			return reply, err
		},
	})
	d := askAll(a, eval, "/api/v1/denials?limit=100", b)
	if full != 1 || len(d.Denials) != 100 || !slices.Equal(d.Silent, []string{"silent"}) {
		t.Errorf("%d of %d reads have answers; %d denials, silent: %v", full, reads, len(d.Denials), d.Silent)
	}
}
