package fiberlimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/httplimit/fiberlimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// Plain limits: two requests a minute for each client address.
func ExampleHandler() {
	limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.SlidingWindowCounter(2, time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter})
	if err != nil {
		log.Fatal(err)
	}
	app := fiber.New()
	app.Use(fiberlimit.Handler(limit))
	app.Get("/hello", func(c fiber.Ctx) error { return c.SendString("hello") })

	for range 3 {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/hello", nil)
		response, err := app.Test(r, fiber.TestConfig{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(response.StatusCode, response.Body.Close())
	}
	// Output:
	// 200 <nil>
	// 200 <nil>
	// 429 <nil>
}

// Rules: two requests a minute for each user, whom an earlier handler has found.
func ExampleContext() {
	set, err := rules.Compile([]rules.Rule{{
		ID: "user", Scope: []string{rules.PerUser}, Missing: rules.MissingIP,
		Limits: []stint.Limit{stint.SlidingWindowCounter(2, time.Minute)},
	}}, rules.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{
		Rules: limiter,
		Describe: func(r *http.Request, q *rules.Request) error {
			if c, ok := fiberlimit.Context(r); ok {
				q.User = fiber.Locals[string](c, "user")
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		c.Locals("user", "ann") // who is logged in
		return c.Next()
	}, fiberlimit.Handler(limit))
	app.Get("/hello", func(c fiber.Ctx) error { return c.SendString("hello") })

	for range 3 {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/hello", nil)
		response, err := app.Test(r, fiber.TestConfig{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(response.StatusCode, response.Header.Get("X-RateLimit-Remaining"), "left", response.Body.Close())
	}
	// Output:
	// 200 1 left <nil>
	// 200 0 left <nil>
	// 429 0 left <nil>
}
