package migrate_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// newStore is a store in memory.
func newStore() *memstore.Store { return memstore.New(memstore.Config{}) }

// statuses asks a handler n times, by POST with a form, and returns the statuses.
func statuses(t *testing.T, handler http.Handler, n int) []int {
	t.Helper()
	var all []int
	for range n {
		form := strings.NewReader(url.Values{"user": {"ann"}}.Encode())
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", form)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		all = append(all, w.Code)
	}
	return all
}

// expect fails the test unless the last of statuses is 429 and all before are the handler's.
func expect(t *testing.T, all []int, handlers int) {
	t.Helper()
	for i, status := range all {
		if want := map[bool]int{true: http.StatusTooManyRequests, false: handlers}[i == len(all)-1]; status != want {
			t.Fatalf("statuses are %d; want %d times %d, then 429", all, len(all)-1, handlers)
		}
	}
}

// The old limiter decides, and the new one is asked beside it, until it knows what clients have used.
func TestBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, now := map[string]*rate.Limiter{}, time.Now()
		allowOld := func(user string) bool {
			if old[user] == nil {
				old[user] = rate.NewLimiter(rate.Every(time.Hour), 2)
				old[user].AllowN(now, 1) // since before it was begun
			}
			return old[user].Allow()
		}
		limiter := must.Get(stint.New(newStore(), "api", stint.TokenBucket(2, stint.PerHour(1))))(t)
		differ := 0
		allow := func(ctx context.Context, user string) bool {
			allowed := allowOld(user)
			decision, err := limiter.Allow(ctx, user)
			if err != nil || decision.Allowed != allowed {
				differ++ // or write it into the log
			}
			return allowed
		}
		for i, want := range []int{0, 1, 1, 1} { // the state of stint begins fresh, and is the same from the second hour on
			allow(t.Context(), "ann")
			if i > 0 {
				//nolint:forbidigo // in a synctest bubble
				time.Sleep(2 * time.Hour)
			}
			if differ != want {
				t.Errorf("after %d requests %d answers differ; want %d", i+1, differ, want)
			}
		}
	})
}

// What was used of a quota can be charged when the state begins fresh.
func TestCarryOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, used := t.Context(), map[string]int64{"ann": 900, "ben": 30}
		limiter := must.Get(stint.New(newStore(), "quota", stint.CalendarWindow(1000, stint.CalendarMonth, "")))(t)
		for user, permits := range used { // what the old limiter counted this month
			if _, err := limiter.Settle(ctx, user, permits); err != nil {
				t.Fatal(err)
			}
		}
		for user, permits := range used {
			if decision, err := limiter.Peek(ctx, user); err != nil || decision.Remaining != 1000-permits {
				t.Errorf("%s: %v, %v", user, decision, err)
			}
		}
	})
}

// hello says hello at every path.
func hello() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	return mux
}

// ask asks a handler as a proxy does that got the request from a client.
func ask(t *testing.T, handler http.Handler, peer, method, path, client string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	r.RemoteAddr = peer + ":1"
	r.Header.Set("X-Forwarded-For", client)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}
