package docs_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

// Users of the page's middleware have limits of their own, others those of their addresses, and a denial is what the page shows.
func TestByUser(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello", func(http.ResponseWriter, *http.Request) {})
	authenticate := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, _, ok := r.BasicAuth(); ok {
				r = r.WithContext(context.WithValue(r.Context(), userKey{}, user))
			}
			next.ServeHTTP(w, r)
		})
	}
	clients := must.Get(clientip.New(clientip.Config{}))(t)
	limiter := must.Get(stint.New(stillStore(), "api", stint.TokenBucket(1, stint.PerMinute(1))))(t)
	limit := must.Get(httplimit.New(httplimit.Config{
		Limiter: limiter,
		Key: func(r *http.Request) (string, error) {
			if user, ok := r.Context().Value(userKey{}).(string); ok {
				return "user:" + user, nil
			}
			return "ip:" + clients.Key(r.RemoteAddr, r.Header), nil
		},
	}))(t)
	handler := authenticate(limit.Wrap(mux)) // the limit comes after the check of the token
	var got []int
	var w *httptest.ResponseRecorder
	for _, user := range []string{"ann", "bob", "", "", "ann"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/hello", nil)
		if user != "" {
			r.SetBasicAuth(user, "secret")
		}
		w = httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		got = append(got, w.Code)
	}
	if want := []int{200, 200, 200, 429, 429}; !slices.Equal(got, want) {
		t.Errorf("statuses %v; want %v", got, want)
	}
	shown := blocks(t, "docs/middleware.md", "json")
	if len(shown) != 1 || shown[0] != w.Body.String()+"\n" {
		t.Errorf("the page shows %q; the body is %q", shown, w.Body)
	}
	for _, field := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit-Policy", "RateLimit", "Retry-After"} {
		if w.Header().Get(field) == "" {
			t.Errorf("a denial lacks %s", field)
		}
	}
}

// One rule counts each method of a service by itself.
func TestEachMethod(t *testing.T) {
	set := must.Get(file.ParseSet(grpcPage, []byte(blocks(t, grpcPage, "yaml")[1]), rules.Options{}))(t)
	limiter, _ := byRules(t, set)
	for _, method := range []string{"Lend", "Follow"} {
		r := rules.Request{Method: "POST", Path: "/library.v1.Books/" + method, User: "ann"}
		expectAtOnce(t, limiter, r, 9, "each by itself")
	}
}
