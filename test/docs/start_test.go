package docs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9" //nolint:depguard // docs/start.md shows a program that has a go-redis client

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore/goredis"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// get asks a handler as a user, and prints the status and the fields of the answer.
func get(handler http.Handler, user string) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/hello", nil)
	if user != "" {
		r.SetBasicAuth(user, "secret")
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Values("X-RateLimit-Remaining"), w.Header().Values("Retry-After"), strings.TrimSpace(w.Body.String()))
}

func Example_handler() {
	limiter := must.Get(stint.New(stillStore(), "api", stint.TokenBucket(2, stint.PerMinute(2))))(example{})
	hello := func(w http.ResponseWriter, r *http.Request) {
		user, _, ok := r.BasicAuth()
		if !ok {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		decision, err := limiter.Allow(r.Context(), user)
		if err != nil { // the store could not decide; a denial is not an error
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		httplimit.WriteHeaders(w.Header(), limiter.Policy(), decision)
		if !decision.Allowed {
			http.Error(w, "too many requests", http.StatusTooManyRequests)
			return
		}
		//nolint:gosec // as text/plain it is no script
		_, _ = fmt.Fprintln(w, "hello", user)
	}
	for _, user := range []string{"ann", "ann", "ann", "bob", ""} {
		get(http.HandlerFunc(hello), user)
	}
	// Output:
	// 200 [1] [] hello ann
	// 200 [0] [] hello ann
	// 429 [0] [30] too many requests
	// 200 [1] [] hello bob
	// 401 [] [] who are you?
}

func Example_middleware() {
	limiter := must.Get(stint.New(stillStore(), "api", stint.TokenBucket(100, stint.PerSecond(10))))(example{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	handler := httplimit.PerAddress(limiter).Wrap(mux)
	get(handler, "")
	// Output: 200 [99] [] hello
}

func Example_clients() {
	limiter := must.Get(stint.New(newStore(), "api", stint.TokenBucket(100, stint.PerDay(100))))(example{})
	clients := must.Get(
		clientip.New(clientip.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}))(example{})
	limit := must.Get(httplimit.New(httplimit.Config{Limiter: limiter, Clients: clients}))(example{})
	for _, client := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.1"} {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
		r.RemoteAddr = "10.1.2.3:4567"
		r.Header.Set("X-Forwarded-For", client)
		w := httptest.NewRecorder()
		limit.Wrap(http.NotFoundHandler()).ServeHTTP(w, r)
		fmt.Println(client, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 192.0.2.1 99
	// 192.0.2.2 99
	// 192.0.2.1 98
}

func Example_redis() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	store := must.Get(rueidis.Open(rueidis.Config{URL: "redis://" + server.Addr(), Failover: patient}))(example{})
	if err := store.Ready(ctx); err != nil { // connected, so that the first decision takes one round trip
		log.Print(err) // and not log.Fatal: the store admits meanwhile, and goes on connecting
	}
	defer store.Close()
	limiter := must.Get(stint.New(store, "api", stint.TokenBucket(100, stint.PerDay(100))))(example{})
	decision, err := limiter.Allow(context.Background(), "user:42")
	fmt.Println(decision, err)
	// Output: allowed, 99 of 100 left <nil>
}

func Example_goredis() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	store := must.Get(goredis.Open(client, goredis.Config{Failover: patient}))(example{})
	if err := store.Ready(ctx); err != nil { // connected, so that the first decision takes one round trip
		log.Print(err) // and not log.Fatal: the store admits meanwhile, and goes on connecting
	}
	defer store.Close()
	fmt.Println(store.Down())
	// Output: []
}

func Example_failover() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	url := "redis://" + server.Addr()
	config := rueidis.Config{URL: url, Failover: failover.Config{Mode: failover.Local, Timeout: 50 * time.Millisecond}}
	config.Failover.Timeout = time.Minute // since the machine that runs this may be busy
	store := must.Get(rueidis.Open(config))(example{})
	defer store.Close()
	must.Do(example{}, store.Ready(ctx))
	limiter := must.Get(stint.New(store, "login", stint.TokenBucket(5, stint.PerDay(5))))(example{})
	decision, err := limiter.Allow(context.Background(), "192.0.2.1")
	fmt.Println(decision, err)
	// Output: allowed, 4 of 5 left <nil>
}

func Example_plan() {
	limiter := must.Get(stint.New(stillStore(), "api", stint.TokenBucket(100, stint.PerSecond(10))))(example{})
	plan := stint.TokenBucket(5000, stint.PerSecond(500))
	gold := must.Get(limiter.With(plan))(example{})
	decision, err := gold.Allow(context.Background(), "user:42")
	fmt.Println(decision, err)
	// Output: allowed, 4999 of 5000 left <nil>
}

func TestOnePerMinute(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	synctest.Test(t, func(t *testing.T) {
		limiter := must.Get(stint.New(newStore(), "api", stint.TokenBucket(1, stint.PerMinute(1))))(t)
		handler := httplimit.PerAddress(limiter).Wrap(mux)
		for _, want := range []int{200, 429, 200} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/hello", nil))
			if w.Code != want {
				t.Errorf("status %d; want %d", w.Code, want)
			}
			//nolint:forbidigo // in a synctest bubble
			time.Sleep(30 * time.Second) // passes at once
		}
	})
}

func TestByAClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := memstore.New(memstore.Config{Now: func() time.Time { return now }})
	limiter := must.Get(stint.New(store, "api", stint.CalendarWindow(1, stint.CalendarDay, "Europe/Berlin")))(t)
	for _, hours := range []int{0, 23, 0} { // one o'clock in Berlin, midnight, midnight
		now = now.Add(time.Duration(hours) * time.Hour)
		decision := must.Get(limiter.Allow(t.Context(), "ann"))(t)
		t.Log(now, decision)
	}
	if decision, err := limiter.Peek(t.Context(), "ann"); err != nil || decision.Allowed || decision.RetryAfter != 24*time.Hour {
		t.Errorf("%v, %v; want a wait of a day", decision, err)
	}
}

// A counter of 2 a minute tells a client that used both at second 15 to wait for 75 seconds; a log, 60.
func Example_logOrCounter() {
	at := time.Date(2026, 1, 1, 0, 0, 15, 0, time.UTC)
	store := memstore.New(memstore.Config{Now: func() time.Time { return at }})
	for _, limit := range []stint.Limit{
		stint.SlidingWindowCounter(2, time.Minute),
		stint.SlidingWindowLog(2, time.Minute),
	} {
		limiter := must.Get(stint.New(store, limit.Algorithm.String(), limit))(example{})
		var decision stint.Decision
		for range 3 {
			decision = must.Get(limiter.Allow(context.Background(), "ann"))(example{})
		}
		fmt.Println(limit.Algorithm, "retry after", decision.RetryAfter)
	}
	// Output:
	// SLIDING_WINDOW_COUNTER retry after 1m15s
	// SLIDING_WINDOW_LOG retry after 1m0s
}

func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		jobs := make(chan string, 100)
		for range cap(jobs) {
			jobs <- "a mail"
		}
		close(jobs)
		var mu sync.Mutex
		var sent []time.Time
		send := func(string) {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, time.Now())
		}
		limiter := must.Get(stint.New(newStore(), "mail", stint.LeakyBucket(8, stint.PerSecond(50))))(t)
		var workers sync.WaitGroup
		for range 8 {
			workers.Go(func() {
				for job := range jobs {
					if _, err := limiter.Wait(ctx, "smtp.example.com"); err != nil {
						return // ctx has ended
					}
					send(job)
				}
			})
		}
		workers.Wait()
		if len(sent) != 100 {
			t.Fatalf("%d jobs were done; want 100", len(sent))
		}
		for i := range sent[1:] {
			if gap := sent[i+1].Sub(sent[i]); gap != 20*time.Millisecond {
				t.Errorf("job %d came %s after the one before; want 20ms", i+1, gap)
			}
		}
	})
}

// An anonymous request has an empty key, which no limit takes.
func TestEmptyKey(t *testing.T) {
	limiter := must.Get(stint.New(newStore(), "api", stint.TokenBucket(1, stint.PerMinute(1))))(t)
	if _, err := limiter.Allow(t.Context(), ""); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("an empty key: %v; want ErrInvalid", err)
	}
}
