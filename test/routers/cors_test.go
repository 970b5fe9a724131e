package routers_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
)

// Where CORS stands outside of the limit, preflights end there and take nothing, and a denial has the fields by which a
// page may read it. Inside of it, preflights take and denials are unreadable; with SkipPreflights, they take nothing.
func TestCORS(t *testing.T) {
	cors := middleware.CORSWithConfig(middleware.CORSConfig{
		AllowOrigins: []string{"https://app.example"}, ExposeHeaders: []string{"Retry-After", "RateLimit"},
	})
	for _, test := range []struct {
		name          string
		outside, skip bool
		statuses      []int // of four preflights, and of three requests
		readable      bool
	}{
		{"outside", true, false, []int{204, 204, 204, 204, 202, 202, 429}, true},
		{"outside, skipping", true, true, []int{204, 204, 204, 204, 202, 202, 429}, true},
		{"inside", false, false, []int{204, 204, 429, 429, 429, 429, 429}, false},
		{"inside, skipping", false, true, []int{204, 204, 204, 204, 202, 202, 429}, false},
	} {
		limit := plain(t, 2, test.skip)
		order := []echo.MiddlewareFunc{cors, echo.WrapMiddleware(limit.Wrap)}
		if !test.outside {
			slices.Reverse(order)
		}
		e := echo.New()
		e.Use(order...)
		e.PUT("/", echo.WrapHandler(http.HandlerFunc(accept)))
		var got []int
		var last http.Header
		for i := range 7 {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil)
			if i < 4 {
				r.Method = http.MethodOptions
				r.Header.Set("Access-Control-Request-Method", http.MethodPut)
			}
			r.Header.Set("Origin", "https://app.example")
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			got, last = append(got, w.Code), w.Header()
		}
		if !slices.Equal(got, test.statuses) {
			t.Errorf("%s: %v, want %v", test.name, got, test.statuses)
		}
		readable := last.Get("Access-Control-Allow-Origin") == "https://app.example" && last.Get("Access-Control-Expose-Headers") == "Retry-After,RateLimit"
		if readable != test.readable || last.Get("Retry-After") == "" {
			t.Errorf("%s: a page may read the denial: %v, want %v: %v", test.name, readable, test.readable, last)
		}
	}
}

// Only what is a preflight is skipped.
func TestSkippedPreflights(t *testing.T) {
	handler := plain(t, 1, true).Wrap(http.HandlerFunc(accept))
	for _, test := range []struct {
		method, origin, asks string
		status               int
	}{
		{"OPTIONS", "https://app.example", "PUT", 202},
		{"OPTIONS", "https://app.example", "", 202}, // takes
		{"OPTIONS", "", "PUT", 429},
		{"GET", "https://app.example", "PUT", 429},
		{"OPTIONS", "null", "PUT", 202},
	} {
		r := httptest.NewRequestWithContext(t.Context(), test.method, "/", nil)
		for name, value := range map[string]string{"Origin": test.origin, "Access-Control-Request-Method": test.asks} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != test.status {
			t.Errorf("%+v: %d", test, w.Code)
		}
		if skipped := test.method == "OPTIONS" && test.origin != "" && test.asks != ""; skipped != (w.Header().Get("RateLimit") == "") {
			t.Errorf("%+v has the fields %v", test, w.Header())
		}
	}
}
