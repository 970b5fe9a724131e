package fiberlimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/gofiber/fiber/v3/middleware/timeout"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/httplimit/fiberlimit"
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

// server has one route, which tells its parameter; calls counts how often it was reached.
func server(config fiber.Config, calls *int, middleware ...any) *fiber.App {
	app := fiber.New(config)
	for _, m := range middleware {
		app.Use(m)
	}
	app.Get("/users/:id", func(c fiber.Ctx) error {
		*calls++
		return c.Status(http.StatusAccepted).SendString("user " + c.Params("id"))
	})
	return app
}

// get asks for a path, and returns the response with its body.
func get(t testing.TB, app *fiber.App, path string, fields ...string) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com:80/", nil)
	r.RequestURI = path // as it is, well formed or not
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	response := must.Get(app.Test(r, fiber.TestConfig{}))(t)
	body, err := io.ReadAll(response.Body)
	must.Do(t, errors.Join(err, response.Body.Close()))
	return response, string(body)
}

func status(t testing.TB, app *fiber.App, path string, fields ...string) int {
	t.Helper()
	response, _ := get(t, app, path, fields...) //nolint:bodyclose // get has closed it
	return response.StatusCode
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
			app := server(fiber.Config{}, &calls, fiberlimit.Handler(limit))
			for _, remaining := range []string{"1", "0"} {
				response, body := get(t, app, "/users/7")
				if response.StatusCode != http.StatusAccepted || body != "user 7" || response.Header.Get("X-RateLimit-Remaining") != remaining {
					t.Errorf("admitted: %d %q %v, want %s left", response.StatusCode, body, response.Header, remaining)
				}
			}
			response, body := get(t, app, "/users/7")
			header := response.Header
			if response.StatusCode != http.StatusTooManyRequests || header.Get("Retry-After") != "40" || header.Get("RateLimit") != `"default";r=0;t=40` ||
				header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, "exceeded") {
				t.Errorf("denied: %d %q %v", response.StatusCode, body, header)
			}
			if calls != 2 {
				t.Errorf("the handler was called %d times, want 2", calls)
			}
		})
	}
}

// Rules see the path that fiber routes, so that no spelling leads around them.
func TestPaths(t *testing.T) {
	for _, test := range []struct {
		config fiber.Config
		path   string
		routed int
		denied bool // by a rule for /users/ann
	}{
		{fiber.Config{}, "/users/ann", http.StatusAccepted, true},
		{fiber.Config{}, "/Users/ANN", http.StatusAccepted, true},
		{fiber.Config{}, "/users/ann/?x=1", http.StatusAccepted, true},
		{fiber.Config{}, "/users/%61nn", http.StatusAccepted, true},
		{fiber.Config{}, "/users/bob", http.StatusAccepted, false},
		{fiber.Config{CaseSensitive: true}, "/users/Ann", http.StatusAccepted, false},
		{fiber.Config{CaseSensitive: true}, "/Users/ann", http.StatusNotFound, false},
		{fiber.Config{UnescapePath: true}, "/us%65rs/%41nn", http.StatusAccepted, true},
		{fiber.Config{UnescapePath: true}, "/users/%2561nn", http.StatusAccepted, false},
		{fiber.Config{}, "/users/%zz", http.StatusAccepted, false},
	} {
		banned := rules.Rule{ID: "ann", Match: rules.Match{Paths: []string{"/users/ann"}}, Scope: []string{rules.Global}, Banned: true}
		calls := 0
		if got := status(t, server(test.config, &calls), test.path); got != test.routed {
			t.Errorf("%s without rules: %d, want %d", test.path, got, test.routed)
		}
		want := test.routed
		if test.denied {
			want = http.StatusTooManyRequests
		}
		app := server(test.config, &calls, fiberlimit.Handler(ruled(t, httplimit.Config{}, banned)))
		if got := status(t, app, test.path); got != want {
			t.Errorf("%s: %d, want %d", test.path, got, want)
		}
	}
}

// The functions of the configuration see what net/http would show them.
func TestRequest(t *testing.T) {
	var seen *http.Request
	limit := ruled(t, httplimit.Config{Describe: func(r *http.Request, _ *rules.Request) error {
		seen = r.Clone(t.Context())
		return nil
	}})
	calls := 0
	app := server(fiber.Config{}, &calls, fiberlimit.Handler(limit))
	status(t, app, "/users/a%20b?q=1", "X-Plan: free", "X-Many: 1", "X-Many: 2")
	if seen.Method != http.MethodGet || seen.Host != "example.com:80" || seen.URL.Path != "/users/a b" || seen.URL.RawQuery != "q=1" ||
		seen.URL.EscapedPath() != "/users/a%20b" || seen.RemoteAddr != "0.0.0.0:0" || seen.RequestURI == "" {
		t.Errorf("the request is %+v", seen)
	}
	if got := seen.Header; got.Get("X-Plan") != "free" || len(got["X-Many"]) != 2 || got["X-Many"][1] != "2" || got["Host"] != nil {
		t.Errorf("the header is %v", got)
	}
	status(t, app, "/users/1")
	if got := seen.Header; got.Get("X-Plan") != "" {
		t.Errorf("the header of the next request is %v", got)
	}
}

// A handler of the configuration may answer by fiber's context, and the fields of the limit are with it.
func TestAnswersOfFiber(t *testing.T) {
	answer := func(r *http.Request) {
		c, _ := fiberlimit.Context(r)
		if err := c.Status(http.StatusTeapot).JSON(map[string]string{"error": "slow down"}); err != nil {
			t.Error(err)
		}
	}
	unfit := errors.New("unfit")
	for name, test := range map[string]struct {
		config httplimit.Config
		left   string
	}{
		"Denied": {httplimit.Config{
			Cost:   func(*http.Request) (int64, error) { return 3, nil },
			Denied: func(_ http.ResponseWriter, r *http.Request, _ *enforce.Verdict) { answer(r) },
		}, "2"},
		"Undecided, unfit": {httplimit.Config{
			Cost:      func(*http.Request) (int64, error) { return 0, unfit },
			Undecided: func(_ http.ResponseWriter, r *http.Request, _ error) { answer(r) },
		}, ""},
		"Undecided": {httplimit.Config{
			Undecided: func(_ http.ResponseWriter, r *http.Request, _ error) { answer(r) },
		}, ""},
	} {
		calls := 0
		limit := plain(t, test.config)
		cut := func(c fiber.Ctx) error {
			if name == "Undecided" {
				ended, end := context.WithCancel(c.Context())
				end()
				c.SetContext(ended)
			}
			return c.Next()
		}
		response, body := get(t, server(fiber.Config{}, &calls, cut, fiberlimit.Handler(limit)), "/users/1")
		if response.StatusCode != http.StatusTeapot || body != `{"error":"slow down"}` || calls != 0 ||
			!strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") || response.Header.Get("X-RateLimit-Remaining") != test.left {
			t.Errorf("%s: %d %q %v, handler called %d times", name, response.StatusCode, body, response.Header, calls)
		}
	}
}

// Many at once never see each other's requests.
func TestConcurrently(t *testing.T) {
	limit := ruled(t, httplimit.Config{Describe: func(r *http.Request, q *rules.Request) error {
		if want := strings.TrimPrefix(r.URL.Path, "/users/"); r.Header.Get("User") != want {
			t.Errorf("the request of %s has the header of %s", want, r.Header.Get("User"))
		}
		return nil
	}}, perUser())
	app := fiber.New()
	app.Use(fiberlimit.Handler(limit))
	app.Get("/users/:id", func(c fiber.Ctx) error { return c.SendString(c.Params("id")) })
	done := make(chan bool)
	for i := range 8 {
		go func() {
			defer func() { done <- true }()
			user := string(rune('a' + i))
			for n := range 20 {
				want := http.StatusTooManyRequests
				if n < 2 {
					want = http.StatusOK
				}
				if got := status(t, app, "/users/"+user, "User: "+user); got != want {
					t.Errorf("request %d of %s: %d, want %d", n, user, got, want)
				}
			}
		}()
	}
	for range 8 {
		<-done
	}
}

// newHolding is an app with one place and 1000 tokens, of which each request holds 50 and a fixed 1 of 100 requests. left
// tells what is left of the three.
func newHolding(t *testing.T, handler fiber.Handler, outer ...any) (app *fiber.App, left func() string) {
	t.Helper()
	store := memstore.New(memstore.Config{Now: still})
	limits := []stint.Limit{
		stint.Concurrency(1).Named("places").WithCost(1), stint.FixedWindow(100, 24*time.Hour).FromFirst().Named("requests").WithCost(1),
		stint.FixedWindow(1000, 24*time.Hour).FromFirst().Named("tokens"),
	}
	limiter := must.Get(stint.New(store, "api", limits...))(t)
	m := must.Get(httplimit.New(httplimit.Config{
		Limiter: limiter, Reserve: &stint.Hold{},
		Key: func(*http.Request) (string, error) { return "k", nil },
		Cost: func(r *http.Request) (int64, error) {
			if r.URL.Path == "/health" {
				return 0, nil
			}
			return 50, nil
		},
		Failed: func(r *http.Request, err error) { t.Errorf("the end of %s %v: %v", r.URL, r.Header, err) },
	}))(t)
	app = fiber.New()
	for _, h := range append(outer, fiberlimit.Handler(m)) {
		app.Use(h)
	}
	app.Get("/*", handler)
	return app, func() string {
		each := make([]stint.Outcome, len(limits))
		op := stint.Op{Verb: stint.VerbPeek, Claim: stint.Claim{Key: "k", Policy: limiter.Policy(), Permits: 1}, Each: each}
		must.Get(store.Decide(t.Context(), op))(t)
		return fmt.Sprint(each[0].Remaining, each[1].Remaining, each[2].Remaining)
	}
}

// What a request holds is committed with what its handler says it cost, whatever becomes of the handler.
func TestHandlerHolds(t *testing.T) {
	for name, test := range map[string]struct {
		handler fiber.Handler
		status  int
		left    string
	}{
		"says its cost": {func(c fiber.Ctx) error {
			httplimit.Cost(c.Context()).Set(20)
			return c.SendStatus(http.StatusAccepted)
		}, 202, "1 99 980"},
		"never ran": {func(c fiber.Ctx) error { httplimit.Cost(c.Context()).Cancel(); return nil }, 200, "1 100 1000"},
		"fails": {func(c fiber.Ctx) error {
			httplimit.Cost(c.Context()).Set(5)
			return fiber.ErrBadGateway
		}, 502, "1 99 995"},
		"fails, says nothing": {func(fiber.Ctx) error { return fiber.ErrBadGateway }, 502, "1 99 950"},
		"panics":              {func(c fiber.Ctx) error { httplimit.Cost(c.Context()).Set(6); panic("no") }, 500, "1 99 994"},
	} {
		t.Run(name, func(t *testing.T) {
			var within, after error
			app, left := newHolding(t, func(c fiber.Ctx) error { within = c.Context().Err(); return test.handler(c) },
				func(c fiber.Ctx) error { err := c.Next(); after = c.Context().Err(); return err }, recover.New())
			if got := status(t, app, "/"); got != test.status {
				t.Errorf("status %d, want %d", got, test.status)
			}
			if got := left(); got != test.left {
				t.Errorf("%s are left, want %s", got, test.left)
			}
			if within != nil || after != nil { // the handlers' context ends with the hold, that of those around it does not
				t.Errorf("the context within: %v, after: %v", within, after)
			}
		})
	}
}

// While a handler runs, its place is taken. A request that costs nothing holds nothing.
func TestHandlerHoldsAPlace(t *testing.T) {
	var app *fiber.App
	app, left := newHolding(t, func(c fiber.Ctx) error {
		if c.Path() == "/outer" {
			if got := status(t, app, "/inner"); got != http.StatusTooManyRequests {
				t.Errorf("a second gets %d", got)
			}
			if got := status(t, app, "/health"); got != http.StatusOK {
				t.Errorf("a request that costs nothing gets %d", got)
			}
			return nil
		}
		if httplimit.Cost(c.Context()).Hold() != nil {
			t.Errorf("%s holds", c.Path())
		}
		return nil
	})
	for _, want := range []string{"1 99 950", "1 98 900"} {
		if got := status(t, app, "/outer"); got != http.StatusOK || left() != want {
			t.Errorf("status %d, %s are left, want %s", got, left(), want)
		}
	}
}

// A handler that fiber's timeout leaves behind goes on with a context that nobody changes.
func TestHandlerHoldsUntilATimeout(t *testing.T) {
	for inTime := false; !inTime; { // a busy machine may begin the handler after its time
		var set atomic.Bool
		gone, done := make(chan struct{}), make(chan struct{})
		app, left := newHolding(t, timeout.New(func(c fiber.Ctx) error {
			defer close(done)
			for {
				select {
				case <-gone:
					return nil
				default:
					httplimit.Cost(c.Context()).Set(7)
					if c.Context().Err() == nil {
						set.Store(true)
					}
				}
			}
		}, timeout.Config{Timeout: 200 * time.Millisecond}))
		got := status(t, app, "/")
		if inTime = set.Load(); inTime && (got != http.StatusRequestTimeout || left() != "1 99 993") {
			t.Errorf("status %d, %s are left", got, left())
		}
		close(gone)
		<-done
	}
}

// A handler is told which limits mark its request, whether requests hold what they cost or take it; those around it
// keep their context.
func TestHandlerIsToldOfMarks(t *testing.T) {
	for name, reserve := range map[string]*stint.Hold{"takes": nil, "holds": {}} {
		soft := rules.Rule{
			ID: "soft", Scope: []string{rules.Global}, OnExceed: rules.Mark, Limits: []stint.Limit{stint.FixedWindow(2, time.Minute)},
		}
		var told []string
		tell := func(c fiber.Ctx) { told = append(told, fmt.Sprint(httplimit.Exceeded(c.Context()))) }
		app := fiber.New()
		app.Use(func(c fiber.Ctx) error {
			err := c.Next()
			tell(c)
			return err
		}, fiberlimit.Handler(ruled(t, httplimit.Config{Reserve: reserve}, soft)))
		app.Get("/", func(c fiber.Ctx) error {
			tell(c)
			return nil
		})
		for range 3 {
			status(t, app, "/")
		}
		if want := []string{"[]", "[]", "[]", "[]", "[{soft  2 40s}]", "[]"}; !slices.Equal(told, want) {
			t.Errorf("%s: the handlers are told %q, want %q", name, told, want)
		}
	}
}

// Wherever fiber serves a route, the rules of the route's pattern hold.
func TestSpellings(t *testing.T) {
	for _, unescape := range []bool{false, true} {
		served := 0
		for _, test := range []struct{ pattern, paths string }{
			{"/api/**", `/api/x /api/../x /api/%2e%2e/x /api/..%2Fx /api/..\x /api/.. /api/x%2F..%2F..`},
			{"/users/{id}", `/users/a /users/a%2Fb /users/a\b /users/a%5Cb /users/.. /users/%2e`},
			{"/users/{name}/login", `/users/a/login /users/a%5Cb/login /users/a%2Fb/login /users//login /users/../login /users/%2e%2e/login`},
		} {
			paths := strings.Fields(test.paths)
			config := fiber.Config{UnescapePath: unescape}
			free, limited := routed(config), routed(config, fiberlimit.Handler(ruled(t, httplimit.Config{}, rules.Rule{
				ID: "a", Match: rules.Match{Paths: []string{test.pattern}}, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)},
			})))
			if got := status(t, limited, paths[0]); got != http.StatusAccepted {
				t.Fatalf("%s: %d", paths[0], got)
			}
			for _, path := range paths {
				if status(t, free, path) != http.StatusAccepted {
					continue // fiber does not route it so
				}
				served++
				if got := status(t, limited, path); got != http.StatusTooManyRequests {
					t.Errorf("%s reaches the route of %s: %d (unescaped: %v)", path, test.pattern, got, unescape)
				}
			}
		}
		if served < 10 {
			t.Errorf("fiber serves only %d of the spellings (unescaped: %v)", served, unescape)
		}
	}
}

// routed has a route for each of the patterns of TestSpellings.
func routed(config fiber.Config, middleware ...any) *fiber.App {
	app := fiber.New(config)
	for _, m := range middleware {
		app.Use(m)
	}
	for _, path := range []string{"/api/*", "/users/:id", "/users/:name/login"} {
		app.Get(path, func(c fiber.Ctx) error { return c.SendStatus(http.StatusAccepted) })
	}
	return app
}

// What an earlier handler has put into fiber's context says whom a request counts for, and which limiter it has, or
// that it has none. Denied may write no more than fields.
func TestLimiterOf(t *testing.T) {
	base := must.Get(stint.New(memstore.New(memstore.Config{Now: still}), "plans", stint.FixedWindow(1, time.Minute)))(t)
	limit := must.Get(httplimit.New(httplimit.Config{
		LimiterOf: fiberlimit.From(func(c fiber.Ctx) (*stint.Limiter, error) {
			if limits := fiber.Locals[int64](c, "limit"); limits > 0 {
				return base.With(stint.FixedWindow(limits, time.Minute))
			}
			return nil, nil
		}),
		Key: func(r *http.Request) (string, error) {
			c, ok := fiberlimit.Context(r)
			if !ok {
				t.Error("no context")
			}
			return fiber.Locals[string](c, "user"), nil
		},
		Denied: func(w http.ResponseWriter, _ *http.Request, _ *enforce.Verdict) {
			w.Header().Add("Denied", "1")
			w.Header().Add("Denied", "2")
		},
	}))(t)
	for limits, want := range map[int64]int{2: 2, 3: 3, 0: 5} {
		calls := 0
		app := server(fiber.Config{}, &calls, func(c fiber.Ctx) error {
			c.Locals("limit", limits)
			c.Locals("user", strings.Repeat("u", int(limits)+1))
			return c.Next()
		}, fiberlimit.Handler(limit))
		for range 4 {
			status(t, app, "/users/1")
		}
		response, body := get(t, app, "/users/1")
		if denied := len(response.Header["Denied"]); want < 5 && (response.StatusCode != 200 || body != "" || denied != 2) {
			t.Errorf("denied: %d %q %v", response.StatusCode, body, response.Header)
		}
		if calls != want {
			t.Errorf("%d requests were admitted by a limit of %d, want %d", calls, limits, want)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil) // not by fiber
	answer := httptest.NewRecorder()
	limit.Wrap(http.NotFoundHandler()).ServeHTTP(answer, r)
	if _, ok := fiberlimit.Context(r); ok || answer.Code != http.StatusServiceUnavailable {
		t.Errorf("a request that is not fiber's gets %d, and has a context of fiber's: %t", answer.Code, ok)
	}
}
