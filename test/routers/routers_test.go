package routers_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// still is a clock that stands at 1,790,000,000 Unix seconds.
func still() time.Time { return time.UnixMicro(1_790_000_000_000_000) }

// plain counts all requests of an address.
func plain(t testing.TB, limit int64, skipPreflights bool) *httplimit.Middleware {
	t.Helper()
	limiter := must.Get(stint.New(memstore.New(memstore.Config{Now: still}), "test", stint.FixedWindow(limit, time.Minute)))(t)
	return must.Get(httplimit.New(httplimit.Config{Limiter: limiter, SkipPreflights: skipPreflights}))(t)
}

// perUser counts each user of the path.
func perUser(t testing.TB) *httplimit.Middleware {
	t.Helper()
	return ruled(t, rules.Rule{
		ID: "user", Match: rules.Match{Paths: []string{"/users/{id}"}}, Scope: []string{rules.Custom("id")}, Missing: rules.MissingDeny,
		Limits: []stint.Limit{stint.FixedWindow(2, time.Minute)},
	})
}

func ruled(t testing.TB, list ...rules.Rule) *httplimit.Middleware {
	t.Helper()
	set := must.Get(rules.Compile(list, rules.Options{}))(t)
	limiter := must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: still}), Set: set}))(t)
	return must.Get(httplimit.New(httplimit.Config{Rules: limiter}))(t)
}

// routers make a handler of a limit and of routes, which call handle with the router's own parameter. Paths are written as
// chi writes them.
var routers = map[string]func(limit wrap, handle handler, paths ...string) http.Handler{
	"ServeMux": func(limit wrap, handle handler, paths ...string) http.Handler {
		mux := http.NewServeMux()
		for _, path := range paths {
			mux.HandleFunc("GET "+strings.TrimSuffix(path, "*"), func(w http.ResponseWriter, r *http.Request) {
				handle(w, r.PathValue("id"))
			})
		}
		return limit(mux)
	},
	"chi": func(limit wrap, handle handler, paths ...string) http.Handler {
		r := chi.NewRouter()
		r.Use(limit)
		for _, path := range paths {
			r.Get(path, func(w http.ResponseWriter, r *http.Request) { handle(w, chi.URLParam(r, "id")) })
		}
		return r
	},
	"echo": func(limit wrap, handle handler, paths ...string) http.Handler {
		e := echo.New()
		e.Use(echo.WrapMiddleware(limit))
		for _, path := range paths {
			e.GET(strings.NewReplacer("{", ":", "}", "").Replace(path), func(c *echo.Context) error {
				handle(c.Response(), c.Param("id"))
				return nil
			})
		}
		return e
	},
}

type (
	wrap    = func(http.Handler) http.Handler
	handler = func(w http.ResponseWriter, id string)
)

func get(t testing.TB, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.RemoteAddr = "192.0.2.1:1000"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Two are admitted and reach their route, the third is denied and reaches nothing.
func TestRouters(t *testing.T) {
	for name, router := range routers {
		for kind, limit := range map[string]*httplimit.Middleware{"plain": plain(t, 2, false), "rules": perUser(t)} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				var reached []string
				h := router(limit.Wrap, func(w http.ResponseWriter, id string) {
					reached = append(reached, id)
					accept(w, nil)
				}, "/users/{id}", "/free")
				for _, remaining := range []string{"1", "0"} {
					if w := get(t, h, "/users/7"); w.Code != http.StatusAccepted || w.Header().Get("X-RateLimit-Remaining") != remaining {
						t.Errorf("admitted: %d %v, want %s left", w.Code, w.Header(), remaining)
					}
				}
				w := get(t, h, "/users/7")
				if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "40" || w.Header().Get("RateLimit") != `"default";r=0;t=40` ||
					w.Header().Get("Content-Type") != "application/problem+json" || !strings.Contains(w.Body.String(), "exceeded") {
					t.Errorf("denied: %d %q %v", w.Code, w.Body, w.Header())
				}
				if got := strings.Join(reached, " "); got != "7 7" {
					t.Errorf("the route was reached with %q, want twice 7", got)
				}
			})
		}
	}
}

// A rule's path means what the router's does: its parameter tells users apart, other routes are
// free, and no spelling that the router takes for the same leads around the rule.
func TestPaths(t *testing.T) {
	for name, router := range routers {
		t.Run(name, func(t *testing.T) {
			h := router(perUser(t).Wrap, accepted, "/users/{id}", "/free")
			for _, step := range []struct {
				path   string
				status int
			}{
				{"/users/ann", http.StatusAccepted},
				{"/users/%61nn", http.StatusAccepted},
				{"/users/ann?x=1", http.StatusTooManyRequests},
				{"/users/%61%6e%6E", http.StatusTooManyRequests},
				{"/users/bob", http.StatusAccepted},
				{"/free", http.StatusAccepted},
				{"/free", http.StatusAccepted},
				{"/free", http.StatusAccepted},
			} {
				if w := get(t, h, step.path); w.Code != step.status {
					t.Errorf("%s: %d, want %d", step.path, w.Code, step.status)
				}
			}
		})
	}
}

func accept(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }

func accepted(w http.ResponseWriter, _ string) { accept(w, nil) }

// Routers differ in what they make of dots, slashes and backslashes in a path. Wherever one serves
// a route, the rules of the route's pattern hold.
func TestSpellings(t *testing.T) {
	for name, router := range routers {
		served := 0
		for _, test := range []struct{ pattern, paths string }{
			{"/api/**", `/api/x /api/../x /api/%2e%2e/x /api/%2e./../x /api/..%2Fx /api/..\x /api/.. /api/x%2F..%2F..`},
			{"/users/{id}", `/users/a /users/a%2Fb /users/a\b /users/a%5Cb /users/.. /users/%2e /users/a%2Fb"\c`},
			{"/users/{name}/login", `/users/a/login /users/a%5Cb/login /users/a%2Fb/login /users//login /users/../login /users/%2e%2e/login /users/a%2F"/login`},
		} {
			rule := rules.Rule{
				ID: "a", Match: rules.Match{Paths: []string{test.pattern}}, Scope: []string{rules.Global},
				Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)},
			}
			paths := strings.Fields(test.paths)
			routes := []string{"/api/*", "/users/{id}", "/users/{name}/login"}
			free := router(func(h http.Handler) http.Handler { return h }, accepted, routes...)
			limited := router(ruled(t, rule).Wrap, accepted, routes...)
			if w := raw(t, limited, paths[0]); w.Code != http.StatusAccepted {
				t.Fatalf("%s: %s: %d", name, paths[0], w.Code)
			}
			for _, path := range paths {
				if raw(t, free, path).Code != http.StatusAccepted {
					continue // the router does not route it so
				}
				served++
				if w := raw(t, limited, path); w.Code != http.StatusTooManyRequests {
					t.Errorf("%s: %s reaches the route of %s: %d", name, path, test.pattern, w.Code)
				}
			}
		}
		if served < 10 {
			t.Errorf("%s serves only %d of the spellings", name, served)
		}
	}
}

// raw asks for a path as a server reads it from a connection.
func raw(t testing.TB, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	text := "GET " + path + " HTTP/1.1\r\nHost: example.com\r\n\r\n"
	r := must.Get(http.ReadRequest(bufio.NewReader(strings.NewReader(text))))(t)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
