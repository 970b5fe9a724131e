package ginlimit_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/httplimit/ginlimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// still is a clock that stands at 1,790,000,000 Unix seconds.
func still() time.Time { return time.UnixMicro(1_790_000_000_000_000) }

func plain(t testing.TB, config httplimit.Config) *httplimit.Middleware {
	t.Helper()
	store := memstore.New(memstore.Config{Now: still})
	config.Limiter = must.Get(stint.New(store, "test", stint.FixedWindow(2, time.Minute)))(t)
	return must.Get(httplimit.New(config))(t)
}

func ruled(t testing.TB, config httplimit.Config, list ...rules.Rule) *httplimit.Middleware {
	t.Helper()
	set := must.Get(rules.Compile(list, rules.Options{}))(t)
	config.Rules = must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: still}), Set: set}))(t)
	return must.Get(httplimit.New(config))(t)
}

// engine has one route, which tells its parameter; calls counts how often it was reached.
func engine(calls *int, middleware ...gin.HandlerFunc) *gin.Engine {
	e := gin.New()
	e.Use(middleware...)
	e.GET("/users/:id", func(c *gin.Context) {
		*calls++
		c.String(http.StatusAccepted, "user %s", c.Param("id"))
	})
	return e
}

func get(t testing.TB, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.RemoteAddr = "192.0.2.1:1000"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func perUser() rules.Rule {
	return rules.Rule{
		ID: "user", Match: rules.Match{Paths: []string{"/users/{id}"}}, Scope: []string{rules.Custom("id")}, Missing: rules.MissingDeny,
		Limits: []stint.Limit{stint.FixedWindow(2, time.Minute)},
	}
}

func TestHandler(t *testing.T) {
	for name, limit := range map[string]*httplimit.Middleware{
		"plain": plain(t, httplimit.Config{}), "rules": ruled(t, httplimit.Config{}, perUser()),
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			h := engine(&calls, ginlimit.Handler(limit))
			for _, remaining := range []string{"1", "0"} {
				w := get(t, h, "/users/7")
				left := w.Header().Get("X-RateLimit-Remaining")
				if w.Code != http.StatusAccepted || w.Body.String() != "user 7" || left != remaining {
					t.Errorf("admitted: %d %q %v, want %s left", w.Code, w.Body, w.Header(), remaining)
				}
			}
			w := get(t, h, "/users/7")
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "40" || w.Header().Get("RateLimit") != `"default";r=0;t=40` ||
				w.Header().Get("Content-Type") != "application/problem+json" || !strings.Contains(w.Body.String(), "exceeded") {
				t.Errorf("denied: %d %q %v", w.Code, w.Body, w.Header())
			}
			if calls != 2 {
				t.Errorf("the handler was called %d times, want 2", calls)
			}
		})
	}
}

// A denied request reaches no later middleware, and an earlier one sees its status.
func TestHandlerAborts(t *testing.T) {
	var statuses []int
	calls, later := 0, 0
	e := engine(&calls, func(c *gin.Context) {
		c.Next()
		statuses = append(statuses, c.Writer.Status())
	}, ginlimit.Handler(plain(t, httplimit.Config{})), func(*gin.Context) { later++ })
	for range 3 {
		get(t, e, "/users/1")
	}
	if later != 2 || len(statuses) != 3 || statuses[2] != http.StatusTooManyRequests {
		t.Errorf("the later middleware ran %d times, the earlier one saw %v", later, statuses)
	}
}

// A handler for denials that only sets a status is followed by nothing of gin's.
func TestHandlerWithoutBody(t *testing.T) {
	calls := 0
	limit := ruled(t, httplimit.Config{Denied: func(w http.ResponseWriter, _ *http.Request, v *enforce.Verdict) {
		w.Header().Set("Rule", v.Rule.ID)
		w.WriteHeader(http.StatusForbidden)
	}}, rules.Rule{ID: "nobody", Scope: []string{rules.Global}, Banned: true})
	if w := get(t, engine(&calls, ginlimit.Handler(limit)), "/users/1"); w.Code != http.StatusForbidden || w.Header().Get("Rule") != "nobody" || w.Body.Len() > 0 || calls > 0 {
		t.Errorf("%d %v %q, handler called %d times", w.Code, w.Header(), w.Body, calls)
	}
}

// Wherever gin serves a route, the rules of the route's pattern hold.
func TestSpellings(t *testing.T) {
	served := 0
	for _, test := range []struct{ pattern, paths string }{
		{"/api/**", `/api/x /api/../x /api/%2e%2e/x /api/..%2Fx /api/..\x /api/.. /api/x%2F..%2F..`},
		{"/users/{id}", `/users/a /users/a%2Fb /users/a\b /users/a%5Cb /users/.. /users/%2e`},
		{"/users/{name}/login", `/users/a/login /users/a%5Cb/login /users/a%2Fb/login /users//login /users/../login /users/%2e%2e/login`},
	} {
		paths := strings.Fields(test.paths)
		free, limited := routed(), routed(ginlimit.Handler(ruled(t, httplimit.Config{}, rules.Rule{
			ID: "a", Match: rules.Match{Paths: []string{test.pattern}}, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)},
		})))
		if w := raw(t, limited, paths[0]); w.Code != http.StatusAccepted {
			t.Fatalf("%s: %d", paths[0], w.Code)
		}
		for _, path := range paths {
			if raw(t, free, path).Code != http.StatusAccepted {
				continue // gin does not route it so
			}
			served++
			if w := raw(t, limited, path); w.Code != http.StatusTooManyRequests {
				t.Errorf("%s reaches the route of %s: %d", path, test.pattern, w.Code)
			}
		}
	}
	if served < 10 {
		t.Errorf("gin serves only %d of the spellings", served)
	}
}

// routed has a route for each of the patterns of TestSpellings.
func routed(middleware ...gin.HandlerFunc) *gin.Engine {
	e := gin.New()
	e.Use(middleware...)
	for _, path := range []string{"/api/*rest", "/users/:id", "/users/:id/login"} {
		e.GET(path, func(c *gin.Context) { c.Status(http.StatusAccepted) })
	}
	return e
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

// A middleware that holds does so until gin's handlers are done, and commits what they say.
func TestHandlerHolds(t *testing.T) {
	limiter := must.Get(stint.New(memstore.New(memstore.Config{Now: still}), "api",
		stint.Concurrency(1).Named("places").WithCost(1), stint.FixedWindow(100, 24*time.Hour).FromFirst().Named("tokens")))(t)
	m := must.Get(httplimit.New(httplimit.Config{
		Limiter: limiter, Reserve: &stint.Hold{}, Cost: func(*http.Request) (int64, error) { return 50, nil },
	}))(t)
	g := gin.New()
	g.Use(ginlimit.Handler(m))
	depth := 0
	g.GET("/*path", func(c *gin.Context) {
		if depth++; depth == 1 {
			if inner := get(t, g, "/inner"); inner.Code != http.StatusTooManyRequests {
				t.Errorf("a second gets %d", inner.Code)
			}
		}
		httplimit.Cost(c.Request.Context()).Set(20)
		c.Status(http.StatusNoContent)
	})
	for i, want := range []int{204, 204, 204, 429} {
		if w := get(t, g, "/"); w.Code != want {
			t.Errorf("request %d gets %d, want %d", i, w.Code, want)
		}
	}
}

// A handler is told which limits mark its request, whether requests hold what they cost or take it.
func TestHandlerIsToldOfMarks(t *testing.T) {
	for name, reserve := range map[string]*stint.Hold{"takes": nil, "holds": {}} {
		soft := perUser()
		soft.Scope, soft.OnExceed = []string{rules.PerIP}, rules.Mark
		var told []string
		g := gin.New()
		g.Use(ginlimit.Handler(ruled(t, httplimit.Config{Reserve: reserve}, soft)))
		g.GET("/users/:id", func(c *gin.Context) {
			told = append(told, fmt.Sprint(httplimit.Exceeded(c.Request.Context())))
		})
		for range 3 {
			get(t, g, "/users/1")
		}
		if want := []string{"[]", "[]", "[{user  2 40s}]"}; !slices.Equal(told, want) {
			t.Errorf("%s: the handler is told %q, want %q", name, told, want)
		}
	}
}

// What an earlier handler has put into gin's context says whom a request counts for, and which limiter it has, or
// that it has none.
func TestLimiterOf(t *testing.T) {
	base := must.Get(stint.New(memstore.New(memstore.Config{Now: still}), "plans", stint.FixedWindow(1, time.Minute)))(t)
	limit := must.Get(httplimit.New(httplimit.Config{
		LimiterOf: ginlimit.From(func(c *gin.Context) (*stint.Limiter, error) {
			if limits := c.GetInt64("limit"); limits > 0 {
				return base.With(stint.FixedWindow(limits, time.Minute))
			}
			return nil, nil
		}),
		Key: func(r *http.Request) (string, error) {
			c, ok := ginlimit.Context(r)
			if !ok {
				t.Error("no context")
			}
			return c.GetString("user"), nil
		},
	}))(t)
	for limits, want := range map[int64]int{2: 2, 3: 3, 0: 5} {
		calls := 0
		e := engine(&calls, func(c *gin.Context) {
			c.Set("limit", limits)
			c.Set("user", strings.Repeat("u", int(limits)+1))
		}, ginlimit.Handler(limit))
		for range 5 {
			get(t, e, "/users/1")
		}
		if calls != want {
			t.Errorf("%d requests were admitted by a limit of %d, want %d", calls, limits, want)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil) // not by gin
	answer := httptest.NewRecorder()
	limit.Wrap(http.NotFoundHandler()).ServeHTTP(answer, r)
	if _, ok := ginlimit.Context(r); ok || answer.Code != http.StatusServiceUnavailable {
		t.Errorf("a request that is not gin's gets %d, and has a context of gin's: %t", answer.Code, ok)
	}
}

// A request counts as what gin answers it with, also where a handler sets the status alone.
func TestHandlerCounts(t *testing.T) {
	for path, want := range map[string]int64{"none": 200, "status": 401, "abort": 403, "written": 404, "panic": 500, "hijack": 101} {
		var got atomic.Int64
		taken := make(chan net.Conn, 1)
		limit := plain(t, httplimit.Config{Count: func(status int) bool {
			got.Store(int64(status))
			return status >= 400
		}})
		e := gin.New()
		e.Use(gin.CustomRecovery(func(*gin.Context, any) {}), ginlimit.Handler(limit))
		e.GET("/none", func(*gin.Context) {})
		e.GET("/status", func(c *gin.Context) { c.Status(401) })
		e.GET("/abort", func(c *gin.Context) { c.AbortWithStatus(403) })
		e.GET("/written", func(c *gin.Context) { c.String(404, "x") })
		e.GET("/panic", func(*gin.Context) { panic("no") })
		e.GET("/hijack", func(c *gin.Context) {
			conn, _, err := c.Writer.Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			taken <- conn
		})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			e.ServeHTTP(w, r)
			select {
			case conn := <-taken: // so that the client goes on when the request has been counted
				_ = conn.Close()
			default:
			}
		}))
		ask := func(path string) (status int) {
			r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/"+path, http.NoBody))(t)
			w, err := server.Client().Do(r)
			if err != nil {
				return 0 // of a hijacked connection
			}
			_ = w.Body.Close()
			return w.StatusCode
		}
		ask(path)
		ask(path)
		if got := got.Load(); got != want {
			t.Errorf("%s counts as %d, want %d", path, got, want)
		}
		if denied := ask("none") == http.StatusTooManyRequests; denied != (want >= 400) {
			t.Errorf("after %s twice a request is denied: %v", path, denied)
		}
		server.Close()
	}
}
