package migrate_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	libredis "github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

// byUlule admits two requests in ten seconds.
func byUlule() http.Handler {
	store := memory.NewStoreWithOptions(limiter.StoreOptions{Prefix: "test"}) // without a goroutine that cleans
	limit := limiter.New(store, limiter.Rate{Limit: 2, Period: 10 * time.Second})
	return stdlib.NewMiddleware(limit).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// byStint does so, too.
func byStint(t *testing.T) http.Handler {
	t.Helper()
	limiter := must.Get(stint.New(newStore(), "api", stint.FixedWindow(2, 10*time.Second)))(t)
	return httplimit.PerAddress(limiter).Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// from asks a handler from an address.
func from(t *testing.T, handler http.Handler, address string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr = address
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// ulule's window begins with a client's first request, and stint's at a multiple of its length.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight
		ulule, ours := byUlule(), byStint(t)
		began := time.Now()
		for _, step := range []struct {
			at          time.Duration
			ulule, ours int
		}{
			{7 * time.Second, 200, 200},
			{8 * time.Second, 200, 200},
			{9 * time.Second, 429, 429},
			{10 * time.Second, 429, 200},
			{16 * time.Second, 429, 200},
			{18 * time.Second, 200, 429},
			{20 * time.Second, 200, 200},
		} {
			//nolint:forbidigo // in a synctest bubble
			time.Sleep(step.at - time.Since(began))
			if code := from(t, ulule, "192.0.2.1:1").Code; code != step.ulule {
				t.Errorf("ulule after %s: %d; want %d", step.at, code, step.ulule)
			}
			if code := from(t, ours, "192.0.2.1:1").Code; code != step.ours {
				t.Errorf("stint after %s: %d; want %d", step.at, code, step.ours)
			}
		}
	})
}

// What a denied client gets.
func TestDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ulule, ours := byUlule(), byStint(t)
		var denials []*httptest.ResponseRecorder
		for _, handler := range []http.Handler{ulule, ours} {
			from(t, handler, "192.0.2.1:1")
			from(t, handler, "192.0.2.1:1")
			denials = append(denials, from(t, handler, "192.0.2.1:1"))
		}
		fields := func(w *httptest.ResponseRecorder) (names []string) {
			for name := range w.Header() {
				if strings.Contains(name, "Ratelimit") || name == "Retry-After" {
					names = append(names, strings.ToLower(name))
				}
			}
			slices.Sort(names)
			return names
		}
		theirs, mine := denials[0], denials[1]
		common := []string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}
		if got := fields(theirs); !slices.Equal(got, common) || theirs.Body.String() != "Limit exceeded\n" {
			t.Errorf("ulule: %q, %q", got, theirs.Body)
		}
		var problem map[string]any
		err := json.Unmarshal(mine.Body.Bytes(), &problem)
		if got := fields(mine); !slices.Equal(got, append([]string{"ratelimit", "ratelimit-policy", "retry-after"}, common...)) || err != nil {
			t.Errorf("stint: %q, %q, %v", got, mine.Body, err)
		}
	})
}

func TestRouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router := http.NewServeMux()
		router.HandleFunc("POST /login", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
		limiter := must.Get(stint.New(newStore(), "api", stint.TokenBucket(100, stint.PerSecond(10))))(t)
		handler := httplimit.PerAddress(limiter).Wrap(router)
		expect(t, statuses(t, handler, 101), http.StatusOK)
	})
}

// login refuses every password.
var login = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })

// loginsByUlule limits logins by address and by user.
func loginsByUlule() http.Handler {
	mux, store := http.NewServeMux(), memory.NewStore()
	byIP := stdlib.NewMiddleware(limiter.New(store, limiter.Rate{Limit: 5, Period: time.Minute}))
	byUser := stdlib.NewMiddleware(limiter.New(store, limiter.Rate{Limit: 20, Period: time.Hour}),
		stdlib.WithKeyGetter(func(r *http.Request) string { return "user:" + r.FormValue("user") }))
	mux.Handle("POST /login", byIP.Handler(byUser.Handler(login)))
	return mux
}

// logins does the same by the rules of the page.
func logins(t *testing.T) http.Handler {
	t.Helper()
	page := must.Get(os.ReadFile("../../docs/migrate/ulule.md"))(t)
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page shows no rules")
	}
	t.Chdir(t.TempDir())
	must.Do(t, os.WriteFile("rules.yaml", shown[1], 0o600))
	mux := http.NewServeMux()
	set := must.Get(file.ReadSet("rules.yaml", rules.Options{}))(t)
	limiter := must.Get(enforce.New(enforce.Config{Store: newStore(), Set: set}))(t)
	limit := must.Get(httplimit.New(httplimit.Config{
		Rules:    limiter,
		Describe: func(r *http.Request, q *rules.Request) error { q.User = r.FormValue("user"); return nil },
	}))(t)
	mux.Handle("POST /login", limit.Wrap(login))
	return mux
}

func TestLogin(t *testing.T) {
	expect(t, statuses(t, loginsByUlule(), 6), http.StatusUnauthorized)
	expect(t, statuses(t, logins(t), 6), http.StatusUnauthorized)
}

// loginBy asks a handler for a login by POST, and returns the status.
func loginBy(t *testing.T, handler http.Handler, address, user string) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", strings.NewReader("user="+user))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = address + ":1"
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Code
}

// A request that the user's limit denies counts for the address with ulule, and not with stint.
func TestDeniedByTheOther(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.Handler
		ben     int
	}{"ulule": {loginsByUlule(), http.StatusTooManyRequests}, "stint": {logins(t), http.StatusUnauthorized}} {
		t.Run(name, func(t *testing.T) {
			for i := range 25 { // ann has 20 an hour, an address 5 a minute
				want := map[bool]int{true: http.StatusUnauthorized, false: http.StatusTooManyRequests}[i < 20]
				if code := loginBy(t, c.handler, "192.0.2."+strconv.Itoa(1+i/5), "ann"); code != want {
					t.Fatalf("request %d of ann: %d; want %d", i, code, want)
				}
			}
			if code := loginBy(t, c.handler, "192.0.2.5", "ben"); code != c.ben {
				t.Errorf("ben, from the last address of ann: %d; want %d", code, c.ben)
			}
		})
	}
}

// Increment counts what it denies. AllowN takes nothing then.
func TestIncrement(t *testing.T) {
	ctx := t.Context()
	theirs := limiter.New(memory.NewStore(), limiter.Rate{Limit: 5, Period: time.Hour})
	ours := must.Get(stint.New(newStore(), "api", stint.TokenBucket(5, stint.PerDay(1))))(t)
	for i, n := range []int64{3, 3, 1} {
		state, err := theirs.Increment(ctx, "ann", n)
		if err != nil || state.Reached != (i > 0) {
			t.Errorf("ulule, request %d: %+v, %v", i, state, err)
		}
		decision, err := ours.AllowN(ctx, "ann", n)
		if err != nil || decision.Allowed != (i != 1) {
			t.Errorf("stint, request %d: %v, %v", i, decision, err)
		}
	}
}

// Peek tells with ulule whether the limit has been exceeded, and with stint whether a request would be.
func TestPeek(t *testing.T) {
	ctx := t.Context()
	theirs := limiter.New(memory.NewStore(), limiter.Rate{Limit: 1, Period: time.Hour})
	ours := must.Get(stint.New(newStore(), "api", stint.TokenBucket(1, stint.PerDay(1))))(t)
	must.Get(theirs.Get(ctx, "ann"))(t)
	must.Get(ours.Allow(ctx, "ann"))(t)
	if state, err := theirs.Peek(ctx, "ann"); err != nil || state.Reached || state.Remaining != 0 {
		t.Errorf("ulule: %+v, %v", state, err)
	}
	if decision, err := ours.Peek(ctx, "ann"); err != nil || decision.Allowed || decision.Remaining != 0 {
		t.Errorf("stint: %v, %v", decision, err)
	}
}

// If its store fails, ulule's middleware panics, unless it has an error handler.
func TestStoreFails(t *testing.T) {
	client := libredis.NewClient(&libredis.Options{Addr: testredis.Start(t).Addr()})
	store := must.Get(redis.NewStore(client))(t)
	must.Do(t, client.Close())
	handler := stdlib.NewMiddleware(limiter.New(store, limiter.Rate{Limit: 2, Period: time.Hour})).Handler(login)
	defer func() {
		if recover() == nil {
			t.Error("it did not panic")
		}
	}()
	from(t, handler, "192.0.2.1:1")
}
