package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
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

// hello is a handler that says so.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func wrap(t testing.TB, config httplimit.Config, next http.Handler) http.Handler {
	t.Helper()
	m := must.Get(httplimit.New(config))(t)
	return m.Wrap(next)
}

// ask sends a request of a peer.
func ask(t testing.TB, h http.Handler, peer string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	return send(h, r)
}

func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
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
	if w.Code != status || p.Status != status || p.Type != "about:blank" || p.Title != http.StatusText(status) || !strings.Contains(p.Detail, detail) {
		t.Errorf("%d %s, want %d and %q", w.Code, w.Body, status, detail)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type is %q", got)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q", got)
	}
}

func TestMiddleware(t *testing.T) {
	h := wrap(t, httplimit.Config{Limiter: limiter(t, stint.FixedWindow(1, time.Minute))}, hello)
	w := ask(t, h, "192.0.2.1:1000")
	if w.Code != http.StatusOK || w.Body.String() != "hello" {
		t.Errorf("the first request: %d %q", w.Code, w.Body)
	}
	fields := map[string]string{
		"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1790000040",
		"RateLimit-Policy": `"default";q=1;w=60`, "RateLimit": `"default";r=0;t=40`,
	}
	expect(t, w.Header(), fields)

	w = ask(t, h, "192.0.2.1:2000") // the port does not identify a client
	expectProblem(t, w, http.StatusTooManyRequests, "exceeded")
	fields["Retry-After"] = "40"
	expect(t, w.Header(), fields)

	if w = ask(t, h, "192.0.2.2:1000"); w.Code != http.StatusOK {
		t.Errorf("another client: %d", w.Code)
	}
}

// Every limit has an item of its own, and the answer of one request does not show in
// another's.
func TestMiddlewareOfSeveralLimits(t *testing.T) {
	h := wrap(t, httplimit.Config{Limiter: limiter(t,
		stint.SlidingWindowLog(10, time.Minute).Named("minute"), stint.SlidingWindowLog(2, 3*time.Second).Named("burst"),
	)}, hello)
	for _, want := range []string{
		`"minute";r=9;t=60, "burst";r=1;t=3`, `"minute";r=8;t=60, "burst";r=0;t=3`, `"minute";r=8;t=60, "burst";r=0;t=3`,
	} {
		if got := ask(t, h, "192.0.2.1:1").Header().Get("RateLimit"); got != want {
			t.Errorf("RateLimit is %s, want %s", got, want)
		}
	}
}

func TestMiddlewareKeys(t *testing.T) {
	trusting, err := clientip.New(clientip.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	user := func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }
	type request struct{ peer, field, value string }
	for name, test := range map[string]struct {
		config  httplimit.Config
		first   request
		second  request
		allowed bool // whether the second is of another client
	}{
		"nobody is trusted": {
			httplimit.Config{},
			request{"10.0.0.1:1", "X-Forwarded-For", "192.0.2.1"},
			request{"10.0.0.1:1", "X-Forwarded-For", "192.0.2.2"},
			false,
		},
		"a proxy is trusted": {
			httplimit.Config{Clients: trusting},
			request{"10.0.0.1:1", "X-Forwarded-For", "192.0.2.1"},
			request{"10.0.0.1:1", "X-Forwarded-For", "192.0.2.2"},
			true,
		},
		"a network of IPv6 is one client": {
			httplimit.Config{},
			request{"[2001:db8::1]:1", "", ""},
			request{"[2001:db8::2]:1", "", ""},
			false,
		},
		"one user, two peers": {
			httplimit.Config{Key: user},
			request{"192.0.2.1:1", "User", "ann"},
			request{"192.0.2.2:1", "User", "ann"},
			false,
		},
		"two users, one peer": {
			httplimit.Config{Key: user},
			request{"192.0.2.1:1", "User", "ann"},
			request{"192.0.2.1:1", "User", "ben"},
			true,
		},
	} {
		test.config.Limiter = limiter(t, stint.FixedWindow(1, time.Minute))
		h := wrap(t, test.config, hello)
		var last *httptest.ResponseRecorder
		for _, request := range []request{test.first, test.second} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr = request.peer
			r.Header.Set(request.field, request.value)
			last = send(h, r)
		}
		if got := last.Code == http.StatusOK; got != test.allowed {
			t.Errorf("%s: the second request is admitted: %v, want %v", name, got, test.allowed)
		}
	}
}

func TestMiddlewareCost(t *testing.T) {
	cost := int64(3)
	h := wrap(t, httplimit.Config{
		Limiter: limiter(t, stint.FixedWindow(10, time.Minute)),
		Cost:    func(*http.Request) (int64, error) { return cost, nil },
	}, hello)
	if got := ask(t, h, "192.0.2.1:1").Header().Get("X-RateLimit-Remaining"); got != "7" {
		t.Errorf("%s remain, want 7", got)
	}
	cost = 11
	w := ask(t, h, "192.0.2.1:1")
	if _, told := w.Header()["Retry-After"]; w.Code != http.StatusTooManyRequests || told {
		t.Errorf("a cost above the limit: %d, Retry-After told: %v; no wait will do", w.Code, told)
	}
}

// What costs nothing is admitted by nobody's leave.
func TestMiddlewareCostOfNothing(t *testing.T) {
	h := wrap(t, httplimit.Config{
		Limiter: limiterOn(t, failing{err: stint.ErrUnavailable}, stint.FixedWindow(10, time.Minute)),
		Key:     func(*http.Request) (string, error) { return "", errors.New("nobody") },
		Cost:    func(*http.Request) (int64, error) { return 0, nil },
	}, hello)
	if w := ask(t, h, "192.0.2.1:1"); w.Code != http.StatusOK || w.Body.String() != "hello" || len(w.Header()["Ratelimit"]) != 0 {
		t.Errorf("%d %s with %v", w.Code, w.Body, w.Header())
	}
}

// A program that forgot its limiter lets nobody through, and says why.
func TestPerAddressWithoutLimiter(t *testing.T) {
	answer := httptest.NewRecorder()
	httplimit.PerAddress(nil).Wrap(http.NotFoundHandler()).ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), "made by stint.New") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

// Failed is told why a request got neither the handler's answer nor a denial, once and before the
// answer.
func TestMiddlewareFailed(t *testing.T) {
	nobody := errors.New("nobody")
	for _, test := range []struct {
		name string
		key  error
		cost int64
		err  error // of the store
		want error
	}{
		{"no key", nobody, 1, nil, nobody},
		{"a negative cost", nil, -1, nil, stint.ErrInvalid},
		{"no store", nil, 1, stint.ErrUnavailable, stint.ErrUnavailable},
		{"admitted", nil, 1, nil, nil},
		{"denied", nil, 2, nil, nil},
	} {
		var store stint.Store = memstore.New(memstore.Config{Now: still})
		if test.err != nil {
			store = failing{err: test.err}
		}
		w := httptest.NewRecorder()
		var told []error
		h := wrap(t, httplimit.Config{
			Limiter: limiterOn(t, store, stint.FixedWindow(1, time.Minute)),
			Key:     func(*http.Request) (string, error) { return "k", test.key },
			Cost:    func(*http.Request) (int64, error) { return test.cost, nil },
			Failed: func(r *http.Request, err error) {
				if r.URL.Path != "/" || w.Body.Len() > 0 {
					t.Errorf("%s: told of %s after %q", test.name, r.URL.Path, w.Body)
				}
				told = append(told, err)
			},
		}, hello)
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if len(told) != 1 && test.want != nil || len(told) > 0 && !errors.Is(told[0], test.want) {
			t.Errorf("%s: told %v, want %v", test.name, told, test.want)
		}
	}
}

func TestMiddlewareUnfit(t *testing.T) {
	secret := errors.New("column 7 of table sessions")
	for name, test := range map[string]struct {
		key    string
		keyErr error
		cost   int64
		err    error
		detail string
	}{
		"no key":             {key: "", cost: 1, detail: "allowed: 1 to 256 bytes"},
		"a key too long":     {key: strings.Repeat("k", 257), cost: 1, detail: "allowed: 1 to 256 bytes"},
		"the key is at odds": {keyErr: stint.Invalid("User", "", "a name"), cost: 1, detail: `User is ""; allowed: a name`},
		"the key fails":      {keyErr: secret, cost: 1, detail: "does not say"},
		"a negative cost":    {key: "k", cost: -1, detail: "allowed: 1 or more"},
		"the cost fails":     {key: "k", err: secret, detail: "does not say"},
	} {
		for _, fields := range []httplimit.Fields{0, httplimit.NoFields} {
			config := httplimit.Config{
				Limiter: limiter(t, stint.FixedWindow(10, time.Minute)),
				Key:     func(*http.Request) (string, error) { return test.key, test.keyErr },
				Cost:    func(*http.Request) (int64, error) { return test.cost, test.err },
				Fields:  fields,
			}
			w := ask(t, wrap(t, config, hello), "192.0.2.1:1")
			expectProblem(t, w, http.StatusBadRequest, test.detail)
			if strings.Contains(w.Body.String(), "sessions") {
				t.Errorf("%s: the answer shows what is inside: %s", name, w.Body)
			}
			config.Undecided = func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, err.Error(), http.StatusUnauthorized)
			}
			if w := ask(t, wrap(t, config, hello), "192.0.2.1:1"); w.Code != http.StatusUnauthorized {
				t.Errorf("%s: its own handler answers %d %s", name, w.Code, w.Body)
			}
		}
	}
}

// A failing store decides nothing; a degraded one admits or refuses, and its word has
// no fields.
type failing struct {
	stint.Store
	decision stint.Decision
	err      error
}

func (f failing) Decide(context.Context, stint.Op) (stint.Decision, error) { return f.decision, f.err }

func TestMiddlewareWithoutStore(t *testing.T) {
	away := failing{err: stint.ErrUnavailable}
	h := wrap(t, httplimit.Config{Limiter: limiterOn(t, away, stint.FixedWindow(1, time.Minute))}, hello)
	w := ask(t, h, "192.0.2.1:1")
	expectProblem(t, w, http.StatusServiceUnavailable, "could not be decided")
	expect(t, w.Header(), nil)

	for allowed, status := range map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests} {
		store := failing{decision: stint.Decision{Allowed: allowed, Degraded: true, Limit: 1, RetryAfter: time.Second}}
		h := wrap(t, httplimit.Config{Limiter: limiterOn(t, store, stint.FixedWindow(1, time.Minute))}, hello)
		w := ask(t, h, "192.0.2.1:1")
		if w.Code != status {
			t.Errorf("degraded, admitted %v: %d", allowed, w.Code)
		}
		expect(t, w.Header(), nil)
	}
}

func TestMiddlewareHandlers(t *testing.T) {
	config := httplimit.Config{Limiter: limiter(t, stint.FixedWindow(1, time.Minute)), Denied: func(w http.ResponseWriter, _ *http.Request, v *enforce.Verdict) {
		w.Header().Set("Left", v.Decision.String())
		w.WriteHeader(418)
	}, Undecided: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(420) }}
	h := wrap(t, config, hello)
	ask(t, h, "192.0.2.1:1")
	if w := ask(t, h, "192.0.2.1:1"); w.Code != 418 || w.Header().Get("Retry-After") != "40" || w.Header().Get("Left") != "denied, 0 of 1 left, retry after 40s" {
		t.Errorf("denied: %d %v", w.Code, w.Header())
	}
	config.Limiter = limiterOn(t, failing{err: stint.ErrUnavailable}, stint.FixedWindow(1, time.Minute))
	if w := ask(t, wrap(t, config, hello), "192.0.2.1:1"); w.Code != 420 {
		t.Errorf("unavailable: %d", w.Code)
	}
}

func TestMiddlewareFields(t *testing.T) {
	for fields, want := range map[httplimit.Fields]int{
		httplimit.NoFields: 0, httplimit.RetryAfter: 0, httplimit.XRateLimit: 3, httplimit.IETF: 2, 0: 5,
	} {
		h := wrap(t, httplimit.Config{Limiter: limiter(t, stint.FixedWindow(1, time.Minute)), Fields: fields},
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if header := ask(t, h, "192.0.2.1:1").Header(); len(header) != want {
			t.Errorf("fields %d: %v, want %d of them", fields, header, want)
		}
	}
}

// A leaky bucket's turns are kept: a request that comes early is held.
func TestMiddlewareHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var served []time.Duration
		h := wrap(t, httplimit.Config{Limiter: limiterOn(t, memstore.New(memstore.Config{}), stint.LeakyBucket(3, stint.PerSecond(5)))},
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = append(served, time.Since(start)) }))
		ask(t, h, "192.0.2.1:1")
		ask(t, h, "192.0.2.1:1")
		if len(served) != 2 || served[0] != 0 || served[1] != 200*time.Millisecond {
			t.Errorf("served at %v, want 0 and 200ms", served)
		}

		// Those that end before their turn take none, and are told when it would be.
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			r.RemoteAddr = "192.0.2.1:1"
			w := send(h, r)
			expectProblem(t, w, http.StatusTooManyRequests, "")
			if after, left := w.Header().Get("Retry-After"), w.Header().Get("X-RateLimit-Remaining"); after != "1" || left != "2" {
				t.Errorf("retry after %s, %s left; want 1 and 2", after, left)
			}
		}
		if len(served) != 2 || time.Since(start) != 200*time.Millisecond {
			t.Errorf("a request that ends after 50ms was served (%v), or held until %v", served, time.Since(start))
		}

		// The next turn is after 400ms. Who goes away is held for no longer either.
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, leave)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.RemoteAddr = "192.0.2.1:1"
		expectProblem(t, send(h, r), http.StatusServiceUnavailable, "")
		if len(served) != 2 || time.Since(start) != 300*time.Millisecond {
			t.Errorf("a request that was given up after 100ms was served (%v), or held until %v", served, time.Since(start))
		}
	})
}

func TestNewRefuses(t *testing.T) {
	clients := must.Get(clientip.New(clientip.Config{}))(t)
	_, err := httplimit.New(httplimit.Config{
		Key: func(*http.Request) (string, error) { return "k", nil }, Clients: clients, Fields: 1 << 5,
	})
	for _, param := range []string{"Limiter is", "Clients is", "Fields is 32"} {
		if err == nil || !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), param) {
			t.Errorf("the error does not say what the %s: %v", param, err)
		}
	}
	for _, fields := range []httplimit.Fields{httplimit.NoFields | httplimit.IETF166, 1 << 3, 1 << 4} {
		if _, err := httplimit.New(httplimit.Config{Limiter: limiter(t, stint.FixedWindow(1, time.Minute)), Fields: fields}); err == nil {
			t.Errorf("the fields %d are taken", fields)
		}
	}
	_, err = httplimit.New(httplimit.Config{Limiter: limiter(t, stint.FixedWindow(1, time.Minute)), Fields: httplimit.NoFields | httplimit.IETF})
	if !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("none and some fields: %v", err)
	}
}
