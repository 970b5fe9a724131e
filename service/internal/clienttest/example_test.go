package clienttest

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server"
)

// exampleService is a service whose clock stands still, so that the output is the
// same at every run.
func exampleService() (string, func()) {
	config := server.DefaultConfig()
	still := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	config.Store = memstore.New(memstore.Config{Now: still})
	config.API.Open = true
	config.Policies = map[string][]stint.Limit{"push": {stint.SlidingWindowLog(2, 3*time.Second)}}
	s, err := server.New(config)
	if err != nil {
		log.Fatal(err)
	}
	listening := httptest.NewServer(s.Handler())
	return listening.URL, listening.Close
}

// A limiter that goes through the service; with another store in its place it would
// ask Redis itself.
func ExampleOpen() {
	url, stop := exampleService()
	defer stop()
	store, err := client.Open(url, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	push, err := stint.NewPolicy("push", stint.SlidingWindowLog(2, 3*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := stint.NewLimiter(stint.Config{Store: store, Policy: push})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		d, err := limiter.Allow(context.Background(), "phone:7")
		fmt.Println(d.Allowed, "remaining", d.Remaining, "retry after", d.RetryAfter, err)
	}
	// Output:
	// true remaining 1 retry after 0s <nil>
	// true remaining 0 retry after 0s <nil>
	// false remaining 0 retry after 3s <nil>
}

func ExampleClient_Check() {
	url, stop := exampleService()
	defer stop()
	c, err := client.Open(url, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	answer, err := c.Check(context.Background(), api.Request{Key: "user:123", Algorithm: "TOKEN_BUCKET", Permits: 5})
	fmt.Println(answer.Message, answer.Remaining, "of", answer.Limit, err)
	// Output: Request allowed 95 of 100 <nil>
}
