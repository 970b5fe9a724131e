package httplimit_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// hijackable is a recorder whose connection a handler can have.
type hijackable struct{ *httptest.ResponseRecorder }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// A request counts as what it was answered with: as what was begun, whatever its client does then.
func TestCountedStatus(t *testing.T) {
	gone := func(r *http.Request) { r.Context().Value(leaveKey{}).(context.CancelFunc)() }
	for name, test := range map[string]struct {
		handler func(w http.ResponseWriter, r *http.Request)
		want    int
	}{
		"nothing":            {func(http.ResponseWriter, *http.Request) {}, 200},
		"a body":             {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, 200},
		"a copied body":      {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("x")) }, 200},
		"401":                {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 401},
		"401, then 500":      {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); w.WriteHeader(500) }, 401},
		"a hint, then 403":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(403) }, 403},
		"a flush, then 401":  {func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush(); w.WriteHeader(401) }, 200},
		"a panic":            {func(http.ResponseWriter, *http.Request) { panic("no") }, 500},
		"401, then a panic":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); panic("no") }, 500},
		"gives up":           {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 500},
		"401, then gives up": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401); panic(http.ErrAbortHandler) }, 401},
		"its client is gone": {func(_ http.ResponseWriter, r *http.Request) { gone(r) }, 499},
		"gone, gives up":     {func(_ http.ResponseWriter, r *http.Request) { gone(r); panic(http.ErrAbortHandler) }, 499},
		"401, then gone":     {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401); gone(r) }, 401},
		"an upgrade": {func(w http.ResponseWriter, _ *http.Request) {
			_, _, _ = http.NewResponseController(w).Hijack()
		}, 101},
		"an upgrade with its status": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusSwitchingProtocols)
			_, _, _ = w.(http.Hijacker).Hijack()
		}, 101},
		"a broken body, then 401": {func(w http.ResponseWriter, _ *http.Request) {
			if _, err := io.Copy(w, iotest.ErrReader(io.ErrUnexpectedEOF)); err != nil {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}, 401},
		"a long body that breaks, then 401": {func(w http.ResponseWriter, _ *http.Request) {
			body := io.MultiReader(strings.NewReader(strings.Repeat("x", 10_000)), iotest.ErrReader(io.ErrUnexpectedEOF))
			if n, err := io.Copy(w, io.LimitReader(body, 20_000)); err != nil && n == 10_000 {
				w.WriteHeader(http.StatusUnauthorized)
			}
		}, 200},
		"an end of the goroutine": {func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, 500},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := limiterOn(t, memstore.New(memstore.Config{}), stint.FixedWindow(5, 24*time.Hour).FromFirst())
				got := 0
				h := wrap(t, httplimit.Config{Limiter: limiter, Count: func(status int) bool {
					got = status
					return status == 401
				}}, http.HandlerFunc(test.handler))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				r := httptest.NewRequestWithContext(context.WithValue(ctx, leaveKey{}, leave), http.MethodPost, "/login", http.NoBody)
				var served sync.WaitGroup
				served.Go(func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(hijackable{httptest.NewRecorder()}, r)
				})
				served.Wait()
				d, err := limiter.Peek(t.Context(), "192.0.2.1")
				want := int64(5)
				if test.want == 401 {
					want = 4
				}
				if err != nil || got != test.want || d.Remaining != want {
					t.Errorf("it counts as %d, want %d; %v, %v", got, test.want, d, err)
				}
			})
		})
	}
}

type leaveKey struct{}

// Five failed logins: who fails five times is denied for as long as the window lasts, and who succeeds is not counted.
// By rules it is the same.
func TestFailedLogins(t *testing.T) {
	log := stint.SlidingWindowLog(5, 15*time.Minute)
	plain := func(t *testing.T, store stint.Store) httplimit.Config {
		t.Helper()
		return httplimit.Config{Limiter: limiterOn(t, store, log), Count: func(status int) bool { return status == 401 }}
	}
	byRules := func(t *testing.T, store stint.Store) httplimit.Config {
		t.Helper()
		login := rules.Rule{ID: "login", Scope: []string{rules.PerIP}, Limits: []stint.Limit{log}}
		login.Count.Status = []int{401}
		return httplimit.Config{Rules: enforced(t, store, login), Reserve: &stint.Hold{}}
	}
	for name, config := range map[string]func(*testing.T, stint.Store) httplimit.Config{"plain": plain, "by rules": byRules} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				finish := make(chan struct{})
				h := wrap(t, config(t, memstore.New(memstore.Config{})), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/slow" {
						<-finish
					}
					if r.URL.Path != "/right" {
						w.WriteHeader(http.StatusUnauthorized)
					}
				}))
				want := func(path string, status int, retry string) {
					t.Helper()
					if w := get(t.Context(), h, path); w.Code != status || w.Header().Get("Retry-After") != retry {
						t.Errorf("%s is answered %d, Retry-After %q; want %d, %q", path, w.Code, w.Header().Get("Retry-After"), status, retry)
					}
				}
				for range 10 {
					want("/right", 200, "")
				}
				for range 3 {
					want("/wrong", 401, "")
				}
				var slow sync.WaitGroup
				for range 2 {
					slow.Go(func() { get(t.Context(), h, "/slow") })
				}
				synctest.Wait()
				want("/right", 429, "1") // by what is under way alone
				close(finish)
				slow.Wait()
				want("/right", 429, "900")
				time.Sleep(15 * time.Minute) //nolint:forbidigo // the bubble's time
				want("/right", 200, "")
			})
		})
	}
}
