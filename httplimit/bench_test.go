package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// discard is a response writer that keeps nothing but its header, as net/http does
// it between a handler's start and its end.
type discard struct{ header http.Header }

func (w *discard) Header() http.Header            { return w.header }
func (w *discard) Write(text []byte) (int, error) { return len(text), nil }
func (w *discard) WriteHeader(int)                {}

// variants are a handler by itself and behind limits that admit or deny everything.
func variants(t testing.TB) map[string]http.Handler {
	t.Helper()
	config := func(limit stint.Limit, fields httplimit.Fields) httplimit.Config {
		return httplimit.Config{Limiter: limiterOn(t, memstore.New(memstore.Config{}), limit), Fields: fields}
	}
	byRules := func(limit stint.Limit, fields httplimit.Fields) http.Handler {
		rule := rules.Rule{ID: "r", Scope: []string{rules.PerIP}, Limits: []stint.Limit{limit}}
		return wrap(t, httplimit.Config{Rules: enforced(t, memstore.New(memstore.Config{}), rule), Fields: fields}, hello)
	}
	plenty, little := stint.TokenBucket(1e9, stint.PerSecond(1e9)), stint.TokenBucket(1, stint.PerDay(1))
	return map[string]http.Handler{
		"handler=bare":                 hello,
		"handler=wrapped/fields=all":   wrap(t, config(plenty, httplimit.AllFields), hello),
		"handler=wrapped/fields=x":     wrap(t, config(plenty, httplimit.XRateLimit), hello),
		"handler=wrapped/fields=none":  wrap(t, config(plenty, httplimit.NoFields), hello),
		"handler=denied/fields=all":    wrap(t, config(little, httplimit.AllFields), hello),
		"handler=denied/fields=none":   wrap(t, config(little, httplimit.NoFields), hello),
		"handler=ruled/fields=all":     byRules(plenty, httplimit.AllFields),
		"handler=ruled/fields=x":       byRules(plenty, httplimit.XRateLimit),
		"handler=ruled/fields=none":    byRules(plenty, httplimit.NoFields),
		"handler=overruled/fields=all": byRules(little, httplimit.AllFields),
	}
}

func BenchmarkMiddleware(b *testing.B) {
	for name, h := range variants(b) {
		b.Run(name, func(b *testing.B) {
			w := &discard{header: http.Header{}}
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}

// A request allocates for its fields their text and the array that holds it, and nothing else,
// whether plain limits decide or a rule.
func TestMiddlewareAllocates(t *testing.T) {
	handlers := variants(t)
	bare := allocs(t, handlers["handler=bare"])
	for name, budget := range map[string]float64{
		"handler=wrapped/fields=all": 2, "handler=wrapped/fields=x": 2, "handler=denied/fields=all": 2, "handler=wrapped/fields=none": 0,
		"handler=ruled/fields=all": 2, "handler=ruled/fields=x": 2, "handler=overruled/fields=all": 2, "handler=ruled/fields=none": 0,
	} {
		if raceEnabled {
			budget += 2 // the race detector makes pools forget
		}
		if got := allocs(t, handlers[name]) - bare; got > budget {
			t.Errorf("%s allocates %v times, want at most %v", name, got, budget)
		}
	}
}

func allocs(t *testing.T, h http.Handler) float64 {
	w := &discard{header: http.Header{}}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	h.ServeHTTP(w, r)
	return testing.AllocsPerRun(1000, func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	})
}
