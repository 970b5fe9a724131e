package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/server"
)

// admitsAll is a store whose failure policy admits one key without asking a limit.
type admitsAll struct{ stint.Store }

func (s *admitsAll) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if op.Key != "k" {
		return s.Store.Decide(ctx, op)
	}
	return stint.Decision{Allowed: true, Degraded: true, Source: stint.SourceFailurePolicy, Limit: 100, Remaining: 100}, nil
}

// TestDetails: with details=true every answer says what each limit says by itself. The store's time is half a second into
// second 10 of a minute.
func TestDetails(t *testing.T) {
	f := newFixture(t, nil)
	if got := f.get(check + "?key=none&policy=pair"); strings.Contains(got.body, "details") {
		t.Errorf("details that nobody asked for: %s", got.body)
	}
	const minute = int64(start) - 10_500_000
	type window struct{ used, start int64 }
	for algorithm, want := range map[string]window{
		"TOKEN_BUCKET": {30, 0}, "LEAKY_BUCKET": {30, 0}, "FIXED_WINDOW": {30, minute},
		"SLIDING_WINDOW_LOG": {30, int64(start) - 60_000_000}, "SLIDING_WINDOW_COUNTER": {30, minute},
	} {
		got := f.get(check + "?details=true&key=k&permits=30&algorithm=" + algorithm).check()
		if len(got.Details) != 1 {
			t.Fatalf("%s: %+v", algorithm, got)
		}
		d := got.Details[0]
		if d.Algorithm != algorithm || !d.Allowed || d.Limit != 100 || d.Remaining != 70 || d.Used != want.used || d.WindowStart != want.start {
			t.Errorf("%s: %+v, want %+v", algorithm, d, want)
		}
		if queue := d.QueueSize; (queue != nil) != (algorithm == "LEAKY_BUCKET") || queue != nil && *queue != 30 {
			t.Errorf("%s: a queue of %v", algorithm, queue)
		}
	}

	first := newFixture(t, func(c *server.Config) {
		c.Policies["first"] = []stint.Limit{stint.FixedWindow(5, time.Minute).FromFirst()}
	})
	for _, path := range []string{apipath.Remaining, check, check} {
		d := first.get(path + "?key=k&policy=first&details=true").check().Details[0]
		if d.WindowStart != int64(start) {
			t.Errorf("%s: %+v, want a window that begins at %d", path, d, int64(start))
		}
	}

	for range 3 {
		f.get(check + "?key=k&policy=pair")
	}
	each := func(details []api.LimitDetails) {
		t.Helper()
		if len(details) != 2 || !details[0].Allowed || details[0].Remaining != 2 || details[1].Allowed || details[1].Name != "quick" || details[1].RetryAfterMicros != 1_000_000 {
			t.Errorf("of a policy whose second limit denies: %+v", details)
		}
	}
	each(f.get(check + "?key=k&policy=pair&details=true").check().Details)
	each(f.remaining("key=k&policy=pair&details=true").Details)
	each(f.post(check+"?details=true", `{"key":"k","policy":"pair"}`).check().Details)
	var batch []api.CheckResponse
	f.post(check+"?details=true", `[{"key":"k","policy":"pair"},{"key":"k","policy":"pair"}]`).into(&batch)
	each(batch[0].Details)
	each(batch[1].Details)

	var evaluated api.EvaluateResponse
	if err := json.Unmarshal([]byte(f.post(evaluate+"?details=true", `{"path":"/user","attributes":{"userId":"ann"}}`).body), &evaluated); err != nil || len(evaluated.Details) == 0 {
		t.Errorf("an evaluation: %+v, %v", evaluated, err)
	}

	open := newFixture(t, func(c *server.Config) { c.Store = &admitsAll{c.Store} })
	open.get(check + "?key=other&permits=30") // whose outcome must not be told
	if got := open.get(check + "?key=k&details=true").check(); !got.Degraded || got.Details != nil {
		t.Errorf("a failure policy that asks no limit: %+v", got)
	}

	f.get(check+"?key=k&details=yes").problem(400, `details is "yes"; allowed: true or false`)
	f.post(check+"?key=k", `{}`).problem(400, `the query is "key=k"; allowed: details=true`)
	f.post(apipath.Settle+"?details=true", `{"permits":1}`).problem(400, "allowed: none")
}
