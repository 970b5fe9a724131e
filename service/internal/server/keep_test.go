package server_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/server"
)

// keeping is a service with policies for classes of traffic that share one.
func keeping(t *testing.T) *fixture {
	t.Helper()
	return newFixture(t, func(c *server.Config) {
		for _, limit := range []stint.Limit{
			stint.TokenBucket(10, stint.PerSecond(1)), stint.LeakyBucket(10, stint.PerSecond(1)), stint.FixedWindow(10, time.Minute),
			stint.SlidingWindowLog(10, time.Minute), stint.SlidingWindowCounter(10, time.Minute),
		} {
			c.Policies[limit.Algorithm.String()] = []stint.Limit{limit}
		}
		c.Policies["llm"] = []stint.Limit{stint.Concurrency(5).WithCost(1).Named("places"), stint.FixedWindow(100, time.Hour).Named("tokens")}
	})
}

// A batch job that keeps 4 of 10 is denied when 4 are left. A critical request is admitted then.
func TestKeep(t *testing.T) {
	f := keeping(t)
	for _, algorithm := range stint.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			query := "?key=k&policy=" + algorithm.String()
			job, critical := query+"&keep=4", query+"&keep=0"
			for left := int64(5); left >= 0; left-- {
				got := f.get(check + job)
				if c := got.check(); got.status != 200 || c.Remaining != left || c.Limit != 10 || got.header.Get("X-RateLimit-Remaining") != fmt.Sprint(left) {
					t.Fatalf("a job with %d left for it: %d %s", left, got.status, got.body)
				}
			}
			look := f.remaining(job[1:])
			if look.Allowed || look.Remaining != 0 || look.RetryAfterMicros == 0 {
				t.Errorf("a job's look: %+v", look)
			}
			denied := f.get(check + job)
			if c := denied.check(); denied.status != 429 || c.Reason != "limit" || c.RetryAfterMicros != look.RetryAfterMicros || denied.header.Get("Retry-After") == "" {
				t.Errorf("a job: %d %s", denied.status, denied.body)
			}
			if left := f.remaining(critical[1:]); !left.Allowed || left.Remaining != 4 {
				t.Errorf("a critical look: %+v", left)
			}
			body := `{"key":"k","policy":"` + algorithm.String() + `"`
			if got := f.post(check, body+`,"permits":3}`); got.status != 200 || got.check().Remaining != 1 {
				t.Errorf("a critical request: %d %s", got.status, got.body)
			}
			if got := f.post(check, body+`,"keep":4}`); got.status != 429 {
				t.Errorf("a job: %d %s", got.status, got.body)
			}
		})
	}
}

// Elements of a batch have keeps of their own.
func TestKeepInBatch(t *testing.T) {
	f := keeping(t)
	got := f.post(check, `[{"key":"k","policy":"FIXED_WINDOW","permits":6,"keep":4},{"key":"k","policy":"FIXED_WINDOW","keep":4},
		{"key":"k","policy":"FIXED_WINDOW","permits":4},{"key":"k","policy":"FIXED_WINDOW"}]`)
	var answers []api.CheckResponse
	got.into(&answers)
	for i, allowed := range []bool{true, false, true, false} {
		if answers[i].Allowed != allowed || answers[i].Remaining != 0 {
			t.Errorf("element %d: %+v, want allowed %t, 0 left", i, answers[i], allowed)
		}
	}
}

// A cost above what keep leaves of the limit is never admitted.
func TestKeepNever(t *testing.T) {
	f := keeping(t)
	for _, query := range []string{"keep=10", "keep=4&permits=7", "keep=10&permits=10"} {
		got := f.get(check + "?key=k&policy=FIXED_WINDOW&" + query)
		if c := got.check(); got.status != 429 || c.RetryAfterSeconds != -1 || c.RetryAfterMicros != -1 || c.Reason != "never" || got.header.Get("Retry-After") != "" {
			t.Errorf("%s: %d %s %v", query, got.status, got.body, got.header)
		}
	}
	if left := f.remaining("key=k&policy=FIXED_WINDOW"); left.Remaining != 10 {
		t.Errorf("denials took something: %+v", left)
	}
}

// The details are those of the lower limits: what is kept counts as used, and nobody says that it is queued.
func TestKeepDetails(t *testing.T) {
	f := keeping(t)
	got := f.get(check + "?details=true&key=k&policy=LEAKY_BUCKET&permits=2&keep=4").check()
	if d := got.Details[0]; d.Limit != 10 || d.Remaining != 4 || d.Used != 6 || d.QueueSize != nil {
		t.Errorf("%+v", d)
	}
	if d := f.remaining("details=true&key=k&policy=LEAKY_BUCKET").Details[0]; d.Used != 2 || d.QueueSize == nil || *d.QueueSize != 2 {
		t.Errorf("%+v", d)
	}
}

// A hold leaves to others what it keeps when it begins. How it ends has nothing to do with that.
func TestKeepOfHolds(t *testing.T) {
	f := keeping(t)
	job := func(id string, permits int) string {
		return fmt.Sprintf(`{"id":%q,"key":"k","policy":"llm","permits":%d,"keep":2}`, id, permits)
	}
	for _, id := range []string{"a", "b", "c"} {
		f.hold(apipath.Reserve, job(id, 10), http.StatusOK)
	}
	if d, _ := f.hold(apipath.Reserve, job("d", 10), http.StatusTooManyRequests); d.LimitName != "places" || d.Remaining != 0 || d.Reason != "limit" {
		t.Errorf("a job beyond the places that it may have: %+v", d)
	}
	if again, _ := f.hold(apipath.Reserve, job("a", 10), http.StatusOK); !again.Replayed {
		t.Errorf("renewed: %+v", again)
	}
	critical, _ := f.hold(apipath.Reserve, `{"id":"e","key":"k","policy":"llm","permits":60}`, http.StatusOK)
	if critical.Remaining != 1 {
		t.Errorf("critical: %+v", critical)
	}
	if _, end := f.hold(apipath.Commit, `{"id":"a","key":"k","policy":"llm","permits":12}`, http.StatusOK); end.Applied != 2 {
		t.Errorf("commit: %+v", end)
	}
	if _, end := f.hold(apipath.Cancel, `{"id":"b","key":"k","policy":"llm"}`, http.StatusOK); end.Applied != -10 {
		t.Errorf("cancel: %+v", end)
	}
	if never, _ := f.hold(apipath.Reserve, job("f", 99), http.StatusTooManyRequests); never.RetryAfterSeconds != -1 || never.Reason != "never" || never.LimitName != "tokens" {
		t.Errorf("more than it may ever have: %+v", never)
	}
}

// Without the store, a request is admitted if its cost is not above what keep leaves of the limit.
func TestKeepWithoutStore(t *testing.T) {
	for _, mode := range []failover.Mode{failover.Open, failover.Local} {
		f := newFixture(t, surviving(t, mode))
		f.store.fail(stint.ErrUnavailable)
		if got := f.get(check + "?key=k&keep=40&permits=60"); got.status != 200 || !got.check().Degraded {
			t.Errorf("%v: %d %s", mode, got.status, got.body)
		}
		if got := f.get(check + "?key=k&keep=40&permits=61"); got.status != 429 || got.check().RetryAfterSeconds != -1 {
			t.Errorf("%v: %d %s", mode, got.status, got.body)
		}
	}
}
