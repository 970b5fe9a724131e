package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

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
