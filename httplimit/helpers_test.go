package httplimit_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// still is a clock that stands at 1,790,000,000 Unix seconds.
func still() time.Time { return time.UnixMicro(1_790_000_000_000_000) }

func limiter(t testing.TB, limits ...stint.Limit) *stint.Limiter {
	t.Helper()
	return limiterOn(t, memstore.New(memstore.Config{Now: still}), limits...)
}

func limiterOn(t testing.TB, store stint.Store, limits ...stint.Limit) *stint.Limiter {
	t.Helper()
	return must.Get(stint.New(store, "test", limits...))(t)
}

func enforced(t testing.TB, store stint.Store, list ...rules.Rule) *enforce.Limiter {
	t.Helper()
	set := must.Get(rules.Compile(list, rules.Options{}))(t)
	return must.Get(enforce.New(enforce.Config{Store: store, Set: set}))(t)
}

// standing enforces rules in memory where time stands still.
func standing(t testing.TB, list ...rules.Rule) *enforce.Limiter {
	t.Helper()
	return enforced(t, memstore.New(memstore.Config{Now: still}), list...)
}

// perMinute is a rule of a limit that admits so many a minute.
func perMinute(id string, n int64, scope ...string) rules.Rule {
	r := rules.Rule{ID: id, Scope: scope, Limits: []stint.Limit{stint.FixedWindow(n, time.Minute)}}
	if !slices.Contains(scope, rules.Global) {
		r.Missing = rules.MissingSkip
	}
	return r
}

// ways limit each address alike, by plain limits and by a rule.
func ways(t testing.TB, store stint.Store, limit stint.Limit) map[string]httplimit.Config {
	t.Helper()
	rule := rules.Rule{ID: "r", Scope: []string{rules.PerIP}, Limits: []stint.Limit{limit}}
	return map[string]httplimit.Config{
		"plain": {Limiter: limiterOn(t, store, limit)}, "rules": {Rules: enforced(t, store, rule)},
	}
}

// hello is a handler that says so.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func wrap(t testing.TB, config httplimit.Config, next http.Handler) http.Handler {
	t.Helper()
	return must.Get(httplimit.New(config))(t).Wrap(next)
}

// request is one of a peer, with header fields given as "Name: value".
func request(t testing.TB, method, target string, fields ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	return r
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// get asks for a path. The handler may panic.
func get(ctx context.Context, h http.Handler, path string) (w *httptest.ResponseRecorder) {
	w = httptest.NewRecorder()
	defer func() { _ = recover() }()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody))
	return w
}

// expectProblem holds an answer to RFC 9457, sections 3 and 3.1.
func expectProblem(t *testing.T, w *httptest.ResponseRecorder, status int, detail string) {
	t.Helper()
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%d %q: %v", w.Code, w.Body, err)
	}
	if w.Code != status || p.Status != status || p.Type != "about:blank" || p.Title != http.StatusText(status) ||
		!strings.Contains(p.Detail, detail) {
		t.Errorf("%d %s, want %d and %q", w.Code, w.Body, status, detail)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type is %q", got)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q", got)
	}
}

// A failing store decides nothing, or answers as a failure policy does, whose answers have no fields.
type failing struct {
	stint.Store
	decision stint.Decision
	err      error
}

func (f failing) Decide(context.Context, stint.Op) (stint.Decision, error) { return f.decision, f.err }

func (f failing) Take(context.Context, *stint.Policy, string, int64) (stint.Decision, error) {
	return f.decision, f.err
}
