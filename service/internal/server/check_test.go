package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/server"
)

const check = apipath.Check

func TestConcurrentChecks(t *testing.T) {
	f := newFixture(t, nil)
	var admitted, denied atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 40 {
				recorder := httptest.NewRecorder()
				f.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, check+"?key=hot&algorithm=FIXED_WINDOW", nil))
				var c api.CheckResponse
				if err := json.Unmarshal(recorder.Body.Bytes(), &c); err != nil || c.Key != "hot" {
					t.Errorf("request %d: %v %s", i, err, recorder.Body)
				}
				if remaining := recorder.Result().Header.Get("X-RateLimit-Remaining"); remaining != fmt.Sprint(c.Remaining) {
					t.Errorf("header says %s, body %d", remaining, c.Remaining)
				}
				if recorder.Code == 200 {
					admitted.Add(1)
				} else {
					denied.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() != 100 || denied.Load() != 220 {
		t.Errorf("admitted %d, denied %d, want 100 and 220", admitted.Load(), denied.Load())
	}
}

// admitsAll is a store whose failure policy admits one key without asking a limit.
type admitsAll struct{ stint.Store }

func (s *admitsAll) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if op.Key != "k" {
		return s.Store.Decide(ctx, op)
	}
	return stint.Decision{Allowed: true, Degraded: true, Source: stint.SourceFailurePolicy, Limit: 100, Remaining: 100}, nil
}

// A failure policy that asks no limit has no details, nor those of the answer before.
func TestDetailsOfAFailurePolicy(t *testing.T) {
	f := newFixture(t, func(c *server.Config) { c.Store = &admitsAll{c.Store} })
	f.get(check + "?key=other&permits=30&details=true")
	if got := f.get(check + "?key=k&details=true"); !got.check().Degraded || strings.Contains(got.body, "details") {
		t.Errorf("%+v", got)
	}
}
