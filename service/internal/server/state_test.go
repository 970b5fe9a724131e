package server_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/service/internal/server"
)

func (f *fixture) remaining(query string) api.RemainingResponse {
	f.t.Helper()
	var left api.RemainingResponse
	got := f.get(apipath.Remaining + "?" + query)
	if got.status != http.StatusOK {
		f.t.Fatalf("remaining: %d %s", got.status, got.body)
	}
	got.into(&left)
	return left
}

// TestRemainingTellsWhatACheckWould: whatever the limits and the cost, it is what the check
// after it is told.
func TestRemainingTellsWhatACheckWould(t *testing.T) {
	f := newFixture(t, func(c *server.Config) {
		c.Policies["paced"] = []stint.Limit{
			stint.SlidingWindowLog(10, time.Minute).WithMinInterval(time.Second),
			stint.SlidingWindowLog(2, 3*time.Second).Named("burst"),
		}
	})
	claims := []string{"policy=paced", "policy=pair", "policy=pair&permits=3", "policy=leak", "policy=leak&permits=2", "policy=pair&keep=2"}
	for _, algorithm := range notation.Algorithms() {
		claims = append(claims, "algorithm="+algorithm.String(), "permits=45&algorithm="+algorithm.String(), "keep=60&algorithm="+algorithm.String())
	}
	denied, delayed := 0, 0
	for range 6 {
		for _, claim := range claims {
			look := f.remaining("key=k&" + claim)
			told := f.get(check + "?key=k&" + claim).check()
			if !told.Allowed && told.RetryAfterMicros > 0 {
				denied++
			}
			if told.DelayMicros > 0 {
				delayed++
			}
			if look.Allowed != told.Allowed || look.RetryAfterSeconds != told.RetryAfterSeconds || look.RetryAfterMicros != told.RetryAfterMicros ||
				look.DelayMicros != told.DelayMicros || look.At != told.At || look.Source != told.Source || look.Key != "k" || look.Policy != told.Policy {
				t.Errorf("%s: a look tells %+v, and a check %+v", claim, look, told)
			}
			if !told.Allowed && (look.Algorithm != told.Algorithm || look.Limit != told.Limit || look.Remaining != told.Remaining ||
				look.ResetAfterSeconds != told.ResetAfterSeconds || look.ResetAfterMicros != told.ResetAfterMicros) {
				t.Errorf("%s: a look tells %+v, and a denial %+v", claim, look, told)
			}
		}
		f.store.advance(300 * time.Millisecond)
	}
	if denied < 20 || delayed < 5 {
		t.Errorf("%d checks were denied and %d delayed: too few to tell", denied, delayed)
	}
}
