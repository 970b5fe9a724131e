package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// Two requests a minute for each client address. The clock stands still, so that the
// output is the same at every run; leave Now out.
func ExampleMiddleware_Wrap() {
	limiter, err := stint.New(memstore.New(memstore.Config{Now: still}), "api", stint.SlidingWindowCounter(2, time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	clients, err := clientip.New(clientip.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Clients: clients})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	handler := limit.Wrap(mux) // a router's Use takes limit.Wrap as it is

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/hello", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit"), "retry after", w.Header().Values("Retry-After"))
		fmt.Println(w.Body)
	}
	// Output:
	// 200 "default";r=1;t=100 retry after []
	// hello
	// 200 "default";r=0;t=70 retry after []
	// hello
	// 429 "default";r=0;t=70 retry after [70]
	// {"type":"about:blank","title":"Too Many Requests","status":429,"detail":"the rate limit is exceeded"}
}

// The key may be anything that the request says, here the user who is logged in.
func ExampleNew() {
	limiter, err := stint.New(memstore.New(memstore.Config{Now: still}), "api", stint.TokenBucket(100, stint.PerSecond(10)))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Key: func(r *http.Request) (string, error) {
			user, _, known := r.BasicAuth()
			if !known {
				return "", stint.Invalid("Authorization", "no Basic credentials", "a user's name and password")
			}
			return "user:" + user, nil
		},
		Fields: httplimit.XRateLimit | httplimit.RetryAfter,
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := limit.Wrap(http.NotFoundHandler())

	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)

	r.SetBasicAuth("ann", "secret")
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"), "left")
	// Output:
	// 400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"Authorization is \"no Basic credentials\"; allowed: a user's name and password"}
	// 404 99 left
}

// A client that makes two calls a second to each host, and none to a host that asks
// for a pause.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()

	limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(2, stint.PerSecond(2)))
	if err != nil {
		log.Fatal(err)
	}
	transport, err := httplimit.NewTransport(httplimit.TransportConfig{Limiter: limiter})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for range 2 {
		response, err := client.Get(server.URL) //nolint:noctx // the client's timeout bounds it
		var refused *httplimit.RefusedError
		switch {
		case errors.As(err, &refused):
			fmt.Println("not sent; the server said so:", refused.Server, "- too late:", errors.Is(err, stint.ErrDeadline))
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(response.Status)
			_ = response.Body.Close()
		}
	}
	// Output:
	// 429 Too Many Requests
	// not sent; the server said so: true - too late: true
}

// A handler that asks a limiter itself tells the client what the limiter said.
func ExampleWriteHeaders() {
	limiter, err := stint.New(memstore.New(memstore.Config{Now: still}), "api", stint.FixedWindow(1, time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	search := func(w http.ResponseWriter, r *http.Request) {
		d, err := limiter.Allow(r.Context(), r.URL.Query().Get("q"))
		if err != nil {
			http.Error(w, "the limiter is unavailable", http.StatusServiceUnavailable)
			return
		}
		httplimit.WriteHeaders(w.Header(), limiter.Policy(), d)
		if !d.Allowed {
			http.Error(w, "this was searched for too often", http.StatusTooManyRequests)
			return
		}
		_, _ = io.WriteString(w, "found\n")
	}
	for range 2 {
		w := httptest.NewRecorder()
		search(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/search?q=stint", nil))
		fmt.Print(w.Code, " ", w.Header().Get("X-RateLimit-Remaining"), " of ", w.Header().Get("X-RateLimit-Limit"), ": ", w.Body)
	}
	// Output:
	// 200 0 of 1: found
	// 429 0 of 1: this was searched for too often
}

// Each plan has limits of its own, and one has none.
func ExampleConfig_limiterOf() {
	limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.FixedWindow(1, time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{
		LimiterOf: func(r *http.Request) (*stint.Limiter, error) {
			switch r.Header.Get("Plan") { // of a program that knows its users by their tokens
			case "unlimited":
				return nil, nil //nolint:nilnil // it is what says so
			case "pro":
				return limiter.With(stint.FixedWindow(3, time.Hour))
			default:
				return limiter, nil
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := limit.Wrap(http.NotFoundHandler())
	for _, plan := range []string{"free", "free", "pro", "unlimited"} {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
		r.Header.Set("Plan", plan)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(plan, w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// free 404 0
	// free 429 0
	// pro 404 1
	// unlimited 404
}

// Two logins a minute for each address, and a thousand requests an hour for each user.
func ExampleNew_rules() {
	set, err := rules.Compile([]rules.Rule{
		{
			ID: "login", Match: rules.Match{Methods: []string{"POST"}, Paths: []string{"/users/{name}/login"}},
			Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.SlidingWindowCounter(2, time.Minute)},
		},
		{
			ID: "user", Scope: []string{rules.PerUser}, Missing: rules.MissingSkip,
			Limits: []stint.Limit{stint.TokenBucket(1000, stint.PerHour(1000))},
		},
	}, rules.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: still}), Set: set})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{
		Rules: limiter,
		Describe: func(r *http.Request, q *rules.Request) error {
			q.User, _, _ = r.BasicAuth()
			return nil
		},
		Decided: func(r *http.Request, v *enforce.Verdict) {
			if !v.Allowed {
				fmt.Println(r.URL.Path, "denied by", v.Rule.ID, "of", v.Matched)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := limit.Wrap(http.NotFoundHandler())

	for range 3 {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/users/ann/login", nil)
		r.SetBasicAuth("ann", "secret")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit"), "retry after", w.Header().Values("Retry-After"))
	}
	limiter.Swap(nil) // no rules any more; a source of rules does this when they change
	w := httptest.NewRecorder()
	_, end, admitted := limit.Begin(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil))
	end(http.StatusOK)
	fmt.Println(admitted)
	// Output:
	// 404 "default";r=1;t=100 retry after []
	// 404 "default";r=0;t=70 retry after []
	// /users/ann/login denied by login of [login user]
	// 429 "default";r=0;t=70 retry after [70]
	// true
}

// A client whose calls to each host are paced, and of which none may delete anything.
func ExampleTransportConfig_rules() {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	set, err := rules.Compile([]rules.Rule{
		{
			ID: "pace", Scope: []string{rules.Custom("host")}, Missing: rules.MissingDeny,
			Limits: []stint.Limit{stint.TokenBucket(5, stint.PerSecond(5))}, OnExceed: rules.Wait, MaxWait: time.Minute,
		},
		{ID: "no-deletions", Match: rules.Match{Methods: []string{"DELETE"}}, Scope: []string{rules.Global}, Banned: true},
	}, rules.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set})
	if err != nil {
		log.Fatal(err)
	}
	transport, err := httplimit.NewTransport(httplimit.TransportConfig{Rules: limiter})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		r, err := http.NewRequestWithContext(context.Background(), method, server.URL, nil)
		if err != nil {
			log.Fatal(err)
		}
		response, err := client.Do(r)
		var refused *httplimit.RefusedError
		switch {
		case errors.As(err, &refused):
			fmt.Println("not sent, by rule", refused.Rule)
		case err != nil:
			fmt.Println(err)
		default:
			fmt.Println(response.Status)
			_ = response.Body.Close()
		}
	}
	// Output:
	// 404 Not Found
	// not sent, by rule no-deletions
}
