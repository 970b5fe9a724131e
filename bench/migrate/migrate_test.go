package migrate_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/goredis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

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

func TestUsersByTime(t *testing.T) {
	var mu sync.Mutex
	limiters := map[string]*rate.Limiter{} // grows for ever
	allow := func(user string) bool {
		mu.Lock()
		defer mu.Unlock()
		if limiters[user] == nil {
			limiters[user] = rate.NewLimiter(10, 100)
		}
		return limiters[user].Allow()
	}
	for range 100 {
		if !allow("ann") {
			t.Fatal("denied within the burst")
		}
	}
}

func TestUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(100, stint.PerSecond(10)))
		if err != nil {
			t.Fatal(err)
		}
		allow := func(ctx context.Context, user string) bool {
			decision, err := limiter.Allow(ctx, user)
			return err == nil && decision.Allowed
		}
		for i := range 101 {
			if allowed := allow(t.Context(), "ann"); allowed != (i < 100) {
				t.Fatalf("request %d: allowed %v", i, allowed)
			}
		}
	})
}

func TestRedisRate(t *testing.T) {
	ctx, client := t.Context(), redis.NewClient(&redis.Options{Addr: testredis.Start(t).Addr()})
	defer func() { _ = client.Close() }()

	limiter := redis_rate.NewLimiter(client)
	result, err := limiter.Allow(ctx, "user:42", redis_rate.PerMinute(10))
	if err != nil {
		t.Fatal(err)
	}
	if result.Allowed == 0 {
		t.Log("try again in", result.RetryAfter)
	}
	if result.Allowed != 1 {
		t.Errorf("admitted are %d permits", result.Allowed)
	}
}

func TestOnGoRedis(t *testing.T) {
	ctx, client := t.Context(), redis.NewClient(&redis.Options{Addr: testredis.Start(t).Addr()})
	defer func() { _ = client.Close() }()

	store, err := goredis.Open(client, redisstore.Options{}, failover.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Ready(ctx); err != nil { // connected, so that the first decision takes one round trip
		log.Print(err) // and not log.Fatal: the store admits meanwhile, and goes on connecting
	}
	defer store.Close()
	limiter, err := stint.New(store, "api", stint.TokenBucket(10, stint.PerMinute(10)))
	if err != nil {
		t.Fatal(err)
	}
	decision, err := limiter.Allow(ctx, "user:42")
	if err != nil {
		t.Fatal(err)
	}
	if !decision.Allowed {
		t.Log("try again in", decision.RetryAfter)
	}
	if !decision.Allowed || decision.Remaining != 9 {
		t.Errorf("%v; want 9 left", decision)
	}
}

func TestWorkerByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, jobs, began := t.Context(), make([]int, 11), time.Now()
		do := func(int) {}
		limiter := rate.NewLimiter(50, 1)
		for _, job := range jobs {
			if err := limiter.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			do(job)
		}
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("11 jobs took %s", took)
		}
	})
}

func TestWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, jobs, began := t.Context(), make([]int, 11), time.Now()
		do := func(int) {}
		limiter, err := stint.New(memstore.New(memstore.Config{}), "mail", stint.TokenBucket(1, stint.PerSecond(50)))
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range jobs {
			if _, err := limiter.Wait(ctx, "smtp.example.com"); err != nil {
				t.Fatal(err)
			}
			do(job)
		}
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("11 jobs took %s", took)
		}
	})
}

var errBusy = errors.New("over the limit")

// complete is a model that always uses 1,050 tokens.
func complete(context.Context, string) (string, int, error) { return "yes", 1050, nil }

func TestModelByTime(t *testing.T) {
	limiter, estimate := rate.NewLimiter(rate.Every(time.Minute/1000), 1000), 200
	ask := func(ctx context.Context, prompt string) (string, error) {
		if !limiter.AllowN(time.Now(), estimate) {
			return "", errBusy
		}
		answer, tokens, err := complete(ctx, prompt)
		limiter.ReserveN(time.Now(), tokens-estimate) // above the burst it charges nothing
		return answer, err
	}
	if answer, err := ask(t.Context(), "is it?"); answer != "yes" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	if _, err := ask(t.Context(), "is it?"); !errors.Is(err, errBusy) {
		t.Errorf("%v; want %v", err, errBusy)
	}
	if limiter.ReserveN(time.Now(), 1001).OK() {
		t.Error("more than the burst was charged")
	}
}

func TestRouterByUlule(t *testing.T) {
	router := http.NewServeMux()
	router.HandleFunc("POST /login", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	limit := limiter.New(memory.NewStore(), limiter.Rate{Limit: 100, Period: 10 * time.Second})
	handler := stdlib.NewMiddleware(limit).Handler(router)
	expect(t, statuses(t, handler, 101), http.StatusOK)
}

func TestRouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router := http.NewServeMux()
		router.HandleFunc("POST /login", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
		limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(100, stint.PerSecond(10)))
		if err != nil {
			t.Fatal(err)
		}
		handler := httplimit.PerAddress(limiter).Wrap(router)
		expect(t, statuses(t, handler, 101), http.StatusOK)
	})
}

// login refuses every password.
var login = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })

func TestLoginByUlule(t *testing.T) {
	mux, store := http.NewServeMux(), memory.NewStore()
	byIP := stdlib.NewMiddleware(limiter.New(store, limiter.Rate{Limit: 5, Period: time.Minute}))
	byUser := stdlib.NewMiddleware(limiter.New(store, limiter.Rate{Limit: 20, Period: time.Hour}),
		stdlib.WithKeyGetter(func(r *http.Request) string { return "user:" + r.FormValue("user") }))
	mux.Handle("POST /login", byIP.Handler(byUser.Handler(login)))
	expect(t, statuses(t, mux, 6), http.StatusUnauthorized)
}

func TestLogin(t *testing.T) {
	page, err := os.ReadFile("../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	if shown == nil {
		t.Fatal("the page shows no rules")
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("rules.yaml", shown[1], 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	set, err := file.ReadSet("rules.yaml", rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.NewRules(httplimit.RulesConfig{
		Limiter:  limiter,
		Describe: func(r *http.Request, q *rules.Request) error { q.User = r.FormValue("user"); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	mux.Handle("POST /login", limit.Wrap(login))
	expect(t, statuses(t, mux, 6), http.StatusUnauthorized)
}

func TestClockByTime(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	limiter := rate.NewLimiter(rate.Every(time.Minute), 1)
	for i, want := range []bool{true, false, true} { // after 0, 30 and 60 seconds
		if limiter.AllowN(now.Add(time.Duration(i)*30*time.Second), 1) != want {
			t.Error(i)
		}
	}
}

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(1, stint.PerMinute(1)))
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{true, false, true} { // after 0, 30 and 60 seconds
			if decision, err := limiter.Allow(t.Context(), "ann"); err != nil || decision.Allowed != want {
				t.Error(i, decision, err)
			}
			//nolint:forbidigo // in a synctest bubble
			time.Sleep(30 * time.Second) // passes at once
		}
	})
}
