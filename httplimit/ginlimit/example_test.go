package ginlimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/httplimit/ginlimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// Plain limits: two requests a minute for each client address.
func ExampleHandler() {
	gin.SetMode(gin.ReleaseMode)
	limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.SlidingWindowCounter(2, time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter})
	if err != nil {
		log.Fatal(err)
	}
	router := gin.New()
	router.Use(ginlimit.Handler(limit))
	router.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello") })

	for range 3 {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/hello", nil))
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 200
	// 429
}

// Rules: two requests a minute for each user, whom an earlier handler has found.
func ExampleContext() {
	gin.SetMode(gin.ReleaseMode)
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
			if c, ok := ginlimit.Context(r); ok {
				q.User = c.GetString(gin.AuthUserKey)
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	router := gin.New()
	router.Use(gin.BasicAuth(gin.Accounts{"ann": "secret", "bob": "secret"}), ginlimit.Handler(limit))
	router.GET("/hello", func(c *gin.Context) { c.String(http.StatusOK, "hello") })

	for _, user := range []string{"ann", "ann", "bob", "ann"} {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/hello", nil)
		r.SetBasicAuth(user, "secret")
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		fmt.Println(user, w.Code)
	}
	// Output:
	// ann 200
	// ann 200
	// bob 200
	// ann 429
}
