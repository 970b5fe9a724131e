package httplimit_test

import (
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

// Two failed logins of an address in a quarter of an hour. Successful ones are not counted.
func ExampleMiddleware_failedLogins() {
	limiter, err := stint.New(memstore.New(memstore.Config{Now: still}), "login", stint.SlidingWindowLog(2, 15*time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Count:   func(status int) bool { return status == http.StatusUnauthorized || status == http.StatusForbidden },
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := limit.Wrap(http.HandlerFunc(checkPassword))

	for _, password := range []string{"wrong", "right", "wrong", "right"} {
		fmt.Println(try(handler, password))
	}
	// Output:
	// 401
	// 200
	// 401
	// 429
}

// The same by a rule.
func ExampleMiddleware_failedLoginsByRules() {
	set, err := rules.Compile([]rules.Rule{{
		ID: "failed-logins", Match: rules.Match{Paths: []string{"/login"}}, Scope: []string{rules.PerIP},
		Limits: []stint.Limit{stint.SlidingWindowLog(2, 15*time.Minute)},
		Count:  rules.Count{Status: []int{401, 403}},
	}}, rules.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: still}), Set: set})
	if err != nil {
		log.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{Rules: limiter, Reserve: &stint.Hold{}}) // without Reserve the rule is left out
	if err != nil {
		log.Fatal(err)
	}
	handler := limit.Wrap(http.HandlerFunc(checkPassword))

	for _, password := range []string{"wrong", "right", "wrong", "right"} {
		fmt.Println(try(handler, password))
	}
	// Output:
	// 401
	// 200
	// 401
	// 429
}

func checkPassword(w http.ResponseWriter, r *http.Request) {
	if _, password, _ := r.BasicAuth(); password != "right" {
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func try(handler http.Handler, password string) (status int) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/login", http.NoBody) //nolint:noctx // an example
	r.SetBasicAuth("ann", password)
	handler.ServeHTTP(w, r)
	return w.Code
}
