package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// Plain limits and rules admit, deny and tell alike. Rules see the request, however it is spelled.
func TestMiddleware(t *testing.T) {
	login := perMinute("login", 1, rules.PerIP)
	login.Match = rules.Match{
		Methods: []string{http.MethodPost}, Paths: []string{"/users/{id}/login"}, Hosts: []string{"*.example.com"},
	}
	for name, config := range map[string]httplimit.Config{
		"plain": {Limiter: limiter(t, stint.FixedWindow(1, time.Minute))}, "rules": {Rules: standing(t, login)},
	} {
		t.Run(name, func(t *testing.T) {
			h := wrap(t, config, hello)
			r := request(t, http.MethodPost, "http://API.example.com:80/users//7/./login?x=1")
			w := send(h, r)
			if w.Code != http.StatusOK || w.Body.String() != "hello" {
				t.Errorf("the first request: %d %q", w.Code, w.Body)
			}
			fields := map[string]string{
				"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1790000040",
				"RateLimit-Policy": `"default";q=1;w=60`, "RateLimit": `"default";r=0;t=40`,
			}
			expect(t, w.Header(), fields)

			r.RemoteAddr = "192.0.2.1:2000" // the port does not identify a client
			w = send(h, r)
			expectProblem(t, w, http.StatusTooManyRequests, "exceeded")
			fields["Retry-After"] = "40"
			expect(t, w.Header(), fields)

			r.RemoteAddr = "192.0.2.2:1000"
			if w = send(h, r); w.Code != http.StatusOK {
				t.Errorf("another client: %d", w.Code)
			}
		})
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
		if got := get(t.Context(), h, "/").Header().Get("RateLimit"); got != want {
			t.Errorf("RateLimit is %s, want %s", got, want)
		}
	}
}

// Whom a request counts for, by plain limits and by rules.
func TestMiddlewareKeys(t *testing.T) {
	trusting := must.Get(clientip.New(clientip.Config{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	}))(t)
	user := func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }
	byRules := func() *enforce.Limiter { return standing(t, perMinute("r", 1, rules.PerIP)) }
	const proxy, forwarded, other = "10.0.0.1:1", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.2"
	believing := httplimit.Config{Rules: byRules(), Clients: trusting}
	for name, test := range map[string]struct {
		config                  httplimit.Config
		peer, second            string
		field, fieldOfTheSecond string
		allowed                 bool // whether the second is of another client
	}{
		"nobody is trusted":   {httplimit.Config{}, proxy, proxy, forwarded, other, false},
		"nobody, by rules":    {httplimit.Config{Rules: byRules()}, proxy, proxy, forwarded, other, false},
		"a proxy is trusted":  {httplimit.Config{Clients: trusting}, proxy, proxy, forwarded, other, true},
		"a proxy, by rules":   {believing, proxy, proxy, forwarded, other, true},
		"a network of IPv6":   {httplimit.Config{}, "[2001:db8::1]:1", "[2001:db8::2]:1", "", "", false},
		"one user, two peers": {httplimit.Config{Key: user}, "192.0.2.1:1", "192.0.2.2:1", "User: a", "User: a", false},
		"two users, one peer": {httplimit.Config{Key: user}, "192.0.2.1:1", "192.0.2.1:1", "User: a", "User: b", true},
	} {
		if test.config.Rules == nil {
			test.config.Limiter = limiter(t, stint.FixedWindow(1, time.Minute))
		}
		h := wrap(t, test.config, hello)
		first, second := request(t, http.MethodGet, "/", test.field), request(t, http.MethodGet, "/", test.fieldOfTheSecond)
		first.RemoteAddr, second.RemoteAddr = test.peer, test.second
		send(h, first)
		if got := send(h, second).Code == http.StatusOK; got != test.allowed {
			t.Errorf("%s: the second request is admitted: %v, want %v", name, got, test.allowed)
		}
	}
}

// Paths match by all of their variants, as the request spells them.
func TestRulesOfAmbiguousPaths(t *testing.T) {
	login := perMinute("login", 1, rules.Global)
	login.Match.Paths = []string{"/login"}
	h := wrap(t, httplimit.Config{Rules: standing(t, login)}, hello)
	for path, want := range map[string]int{
		"/elsewhere": 200, "//login": 429, "/x/%2e%2e/login": 429, "/login%2F": 429, "/login;x=1": 429,
	} {
		send(h, request(t, http.MethodGet, "http://example.com/%6cogin/?next=//x"))
		if w := send(h, request(t, http.MethodGet, "http://example.com"+path)); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
}

// What costs nothing is admitted by nobody's leave.
func TestMiddlewareCostOfNothing(t *testing.T) {
	h := wrap(t, httplimit.Config{
		Limiter: limiterOn(t, failing{err: stint.ErrUnavailable}, stint.FixedWindow(10, time.Minute)),
		Key:     func(*http.Request) (string, error) { return "", errors.New("nobody") },
		Cost:    func(*http.Request) (int64, error) { return 0, nil },
	}, hello)
	w := get(t.Context(), h, "/")
	if w.Code != http.StatusOK || w.Body.String() != "hello" || len(w.Header()["Ratelimit"]) != 0 {
		t.Errorf("%d %s with %v", w.Code, w.Body, w.Header())
	}
}

// A program that forgot its limiter lets nobody through, and says why.
func TestPerAddressWithoutLimiter(t *testing.T) {
	answer := get(t.Context(), httplimit.PerAddress(nil).Wrap(http.NotFoundHandler()), "/")
	if answer.Code != http.StatusInternalServerError || !strings.Contains(answer.Body.String(), "made by stint.New") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

// A request that can't be decided is answered by a problem document without what is inside, or by Undecided. Failed is
// told why, once and before the answer.
func TestUndecided(t *testing.T) {
	secret := errors.New("column 7 of table sessions")
	unfit, invalid := stint.Invalid("User", "", "a name"), stint.ErrInvalid
	minute := stint.FixedWindow(10, time.Minute)
	plain := func(key string, keyErr error, cost int64, costErr error) httplimit.Config {
		return httplimit.Config{
			Limiter: limiter(t, minute),
			Key:     func(*http.Request) (string, error) { return key, keyErr },
			Cost:    func(*http.Request) (int64, error) { return cost, costErr },
		}
	}
	costly, admin := perMinute("costly", 10, rules.Global), perMinute("admin", 1, rules.Global)
	costly.Cost.Header, admin.Match.Hosts = "X-Cost", []string{"admin.example.com"}
	describing := func(err error) httplimit.Config {
		return httplimit.Config{
			Rules: standing(t, costly, admin), Describe: func(*http.Request, *rules.Request) error { return err },
		}
	}
	strict := must.Get(enforce.New(enforce.Config{Store: failing{}, RejectAmbiguousPaths: true}))(t)
	ask, hosted, long := request(t, http.MethodGet, "/"), request(t, http.MethodGet, "/"), request(t, http.MethodGet, "/")
	costing, ambiguous := request(t, http.MethodGet, "/", "X-Cost: many"), request(t, http.MethodGet, "/x/%2e%2e/y")
	hosted.Host, long.URL.Path = "x@admin.example.com", strings.Repeat("/", bounds.MaxOddPathBytes+1)
	away := ways(t, failing{err: stint.ErrUnavailable}, minute)
	for name, test := range map[string]struct {
		config  httplimit.Config
		request *http.Request
		cause   error
		detail  string
	}{
		"no key":             {plain("", nil, 1, nil), ask, invalid, "allowed: 1 to 256 bytes"},
		"a key too long":     {plain(strings.Repeat("k", 257), nil, 1, nil), ask, invalid, "allowed: 1 to 256 bytes"},
		"the key is at odds": {plain("", unfit, 1, nil), ask, invalid, `User is ""; allowed: a name`},
		"the key fails":      {plain("", secret, 1, nil), ask, secret, "does not say"},
		"a negative cost":    {plain("k", nil, -1, nil), ask, invalid, "allowed: 1 or more"},
		"the cost fails":     {plain("k", nil, 1, secret), ask, secret, "does not say"},
		"a cost of a field":  {describing(nil), costing, invalid, `X-Cost is "many"; allowed: a cost`},
		"describe is unfit":  {describing(unfit), ask, invalid, "User is"},
		"describe fails":     {describing(secret), ask, secret, "does not say what its rate limit needs"},
		"an odd host":        {describing(nil), hosted, invalid, "host is"},
		"an odd path":        {describing(nil), long, invalid, "path is"},
		"an ambiguous path":  {httplimit.Config{Rules: strict}, ambiguous, invalid, "path is"},
		"no store":           {away["plain"], ask, stint.ErrUnavailable, "could not be decided"},
		"no store for rules": {away["rules"], ask, stint.ErrUnavailable, "could not be decided"},
	} {
		t.Run(name, func(t *testing.T) {
			status := http.StatusBadRequest
			if errors.Is(test.cause, stint.ErrUnavailable) {
				status = http.StatusServiceUnavailable
			}
			for _, fields := range []httplimit.Fields{0, httplimit.NoFields} {
				config, w := test.config, httptest.NewRecorder()
				var told []error
				config.Fields, config.Failed = fields, func(_ *http.Request, err error) {
					if told = append(told, err); w.Body.Len() > 0 {
						t.Errorf("Failed is told after %q", w.Body)
					}
				}
				wrap(t, config, hello).ServeHTTP(w, test.request)
				expectProblem(t, w, status, test.detail)
				expect(t, w.Header(), nil)
				if strings.Contains(w.Body.String(), "sessions") {
					t.Errorf("the answer shows what is inside: %s", w.Body)
				}
				if len(told) != 1 || !errors.Is(told[0], test.cause) {
					t.Errorf("Failed is told %v, want %v", told, test.cause)
				}
				config.Failed, config.Undecided = nil, func(w http.ResponseWriter, _ *http.Request, err error) {
					http.Error(w, err.Error(), http.StatusUnauthorized)
				}
				if w := send(wrap(t, config, hello), test.request); w.Code != http.StatusUnauthorized {
					t.Errorf("its own handler answers %d %s", w.Code, w.Body)
				}
			}
		})
	}
}

// What a failure policy admits or denies has no fields.
func TestDegraded(t *testing.T) {
	for allowed, status := range map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests} {
		store := failing{decision: stint.Decision{Allowed: allowed, Degraded: true, Limit: 1, RetryAfter: time.Second}}
		for name, config := range ways(t, store, stint.FixedWindow(1, time.Minute)) {
			w := get(t.Context(), wrap(t, config, hello), "/")
			if w.Code != status {
				t.Errorf("%s, admitted %v: %d", name, allowed, w.Code)
			}
			expect(t, w.Header(), nil)
		}
	}
}

// The program hears every verdict, and may answer denials by them. The fields are written by then.
func TestVerdicts(t *testing.T) {
	shadow := perMinute("shadow", 1, rules.Global)
	shadow.OnExceed = rules.Shadow
	var told []string
	h := wrap(t, httplimit.Config{
		Rules: standing(t, perMinute("all", 2, rules.Global), shadow),
		Decided: func(_ *http.Request, v *enforce.Verdict) {
			told = append(told, v.Rule.ID+" of "+strings.Join(v.Matched, "+")+", shadowed "+strings.Join(v.Shadowed, "+"))
		},
		Denied: func(w http.ResponseWriter, _ *http.Request, v *enforce.Verdict) {
			w.Header().Set("Left", v.Decision.String()+" by "+v.Rule.ID)
			w.WriteHeader(http.StatusTeapot)
		},
		Failed: func(_ *http.Request, err error) { t.Errorf("Failed is told %v", err) },
	}, hello)
	for _, want := range []struct {
		status      int
		left, retry string
	}{{200, "", ""}, {200, "", ""}, {418, "denied, 0 of 2 left, retry after 40s by all", "40"}} {
		w := get(t.Context(), h, "/")
		if w.Code != want.status || w.Header().Get("Left") != want.left || w.Header().Get("Retry-After") != want.retry {
			t.Errorf("%d %v, want %+v", w.Code, w.Header(), want)
		}
	}
	const shadowed = "all of all+shadow, shadowed shadow"
	want := []string{"all of all+shadow, shadowed ", shadowed, shadowed}
	if !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
}

// A handler is told which limits mark its request.
func TestMarks(t *testing.T) {
	soft := perMinute("soft", 1, rules.Global)
	soft.OnExceed = rules.Mark
	var told []enforce.Exceeded
	h := wrap(t, httplimit.Config{Rules: standing(t, soft)},
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told = httplimit.Exceeded(r.Context()) }))
	for i, want := range [][]enforce.Exceeded{nil, {{Rule: "soft", Limit: 1, RetryAfter: 40 * time.Second}}} {
		if get(t.Context(), h, "/"); !slices.Equal(told, want) {
			t.Errorf("request %d: the handler is told %+v, want %+v", i, told, want)
		}
	}
}

// Middlewares that share a limiter write each its own fields.
func TestMiddlewareFields(t *testing.T) {
	for name, config := range ways(t, memstore.New(memstore.Config{Now: still}), stint.FixedWindow(10, time.Minute)) {
		for fields, want := range map[httplimit.Fields]int{
			httplimit.NoFields: 0, httplimit.RetryAfter: 0, httplimit.XRateLimit: 3, httplimit.IETF: 2, 0: 5,
		} {
			config.Fields = fields
			h := wrap(t, config, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			if header := get(t.Context(), h, "/").Header(); len(header) != want {
				t.Errorf("%s, fields %d: %v, want %d of them", name, fields, header, want)
			}
		}
	}
}

// A request that waits, by a rule or for a leaky bucket's turn, is held before the handler. One that ends before that
// is told as denied, and takes nothing of others; one that goes away meanwhile is told as failed.
func TestMiddlewareHolds(t *testing.T) {
	turns, slow := stint.LeakyBucket(3, stint.PerSecond(5)), stint.TokenBucket(1, stint.PerSecond(5))
	waits := rules.Rule{
		ID: "waits", Scope: []string{rules.PerIP}, Limits: []stint.Limit{slow}, OnExceed: rules.Wait, MaxWait: time.Minute,
	}
	const early = "denied"
	turned := []string{"admitted, 0s", "admitted, 200ms", early, early, early, "admitted, 200ms", "admitted, 200ms"}
	waited := []string{"admitted, 0s", "admitted, 0s", early, early, early, "admitted, 0s"}
	for name, test := range map[string]struct {
		config func(t *testing.T, store stint.Store) httplimit.Config
		told   []string
		left   string // of the limit, by those that end early
	}{
		"turns":           {func(t *testing.T, s stint.Store) httplimit.Config { return ways(t, s, turns)["plain"] }, turned, "2"},
		"turns of a rule": {func(t *testing.T, s stint.Store) httplimit.Config { return ways(t, s, turns)["rules"] }, turned, "2"},
		"a rule that waits": {func(t *testing.T, s stint.Store) httplimit.Config {
			return httplimit.Config{Rules: enforced(t, s, waits)}
		}, waited, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var told []string
				config := test.config(t, memstore.New(memstore.Config{}))
				config.Decided = func(_ *http.Request, v *enforce.Verdict) {
					text := "denied"
					if v.Allowed {
						text = fmt.Sprintf("admitted, %s", v.Decision.Delay)
					}
					told = append(told, text)
				}
				config.Failed = func(r *http.Request, err error) { told = append(told, r.URL.Path+": "+err.Error()) }
				served := 0
				h := wrap(t, config, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
				expectServed := func(n int, at time.Duration) {
					t.Helper()
					if served != n || time.Since(start) != at {
						t.Errorf("%d are served after %v, want %d after %v", served, time.Since(start), n, at)
					}
				}
				get(t.Context(), h, "/")
				expectServed(1, 0)
				get(t.Context(), h, "/")
				expectServed(2, 200*time.Millisecond)
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					defer cancel()
					w := get(ctx, h, "/")
					expectProblem(t, w, http.StatusTooManyRequests, "")
					if after, left := w.Header().Get("Retry-After"), w.Header().Get("X-RateLimit-Remaining"); after != "1" || left != test.left {
						t.Errorf("retry after %q, %q left; want 1 and %s", after, left, test.left)
					}
				}
				expectServed(2, 200*time.Millisecond)
				get(t.Context(), h, "/")
				expectServed(3, 400*time.Millisecond)
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(100*time.Millisecond, leave)
				expectProblem(t, get(ctx, h, "/b"), http.StatusServiceUnavailable, "")
				expectServed(3, 500*time.Millisecond)
				if want := append(test.told, "/b: context canceled"); !slices.Equal(told, want) {
					t.Errorf("told %q, want %q", told, want)
				}
			})
		})
	}
}

// Begin writes an answer only to a denied request.
func TestBegin(t *testing.T) {
	m := must.Get(httplimit.New(httplimit.Config{Rules: standing(t, perMinute("r", 1, rules.Global))}))(t)
	for _, admitted := range []bool{true, false} {
		w := httptest.NewRecorder()
		_, end, got := m.Begin(w, request(t, http.MethodGet, "/"))
		end(0)
		if got != admitted || (w.Body.Len() == 0) != admitted {
			t.Errorf("admitted %t with body %q, want %t", got, w.Body, admitted)
		}
	}
}

// A configuration says one way to decide, no function that nothing would call, and nothing that can't be carried out.
// All faults are told at once.
func TestNewRefuses(t *testing.T) {
	one, places := limiter(t, stint.FixedWindow(1, time.Minute)), limiter(t, stint.Concurrency(1))
	byPlan, byRules := plans(t, nil), standing(t)
	clients := must.Get(clientip.New(clientip.Config{}))(t)
	key := func(*http.Request) (string, error) { return "k", nil }
	cost := func(*http.Request) (int64, error) { return 1, nil }
	all := func(int) bool { return true }
	hold, named, turns := &stint.Hold{}, &stint.Hold{ID: "one"}, stint.LeakyBucket(5, stint.PerSecond(1))
	counting := func(limit stint.Limit) httplimit.Config {
		return httplimit.Config{Limiter: limiter(t, limit), Count: all}
	}
	const zero = `Limiter is "the zero value"; allowed: one that stint.New or NewLimiter made`
	for _, test := range []struct {
		want   string
		config httplimit.Config
	}{
		{`Limiter is "nil"`, httplimit.Config{}},
		{"Limiter is & Clients is & Fields is 32", httplimit.Config{Key: key, Clients: clients, Fields: 1 << 5}},
		{zero, httplimit.Config{Limiter: &stint.Limiter{}}},
		{`Limiter is "several"`, httplimit.Config{Limiter: one, LimiterOf: byPlan}},
		{"Limiter is", httplimit.Config{LimiterOf: byPlan, Rules: byRules}},
		{"Key is", httplimit.Config{Rules: byRules, Key: key}},
		{"Cost is", httplimit.Config{Rules: byRules, Cost: cost}},
		{"Fields is", httplimit.Config{Limiter: one, Fields: httplimit.NoFields | httplimit.IETF166}},
		{"Fields is", httplimit.Config{Limiter: one, Fields: httplimit.NoFields | httplimit.IETF}},
		{"Fields is", httplimit.Config{Limiter: one, Fields: 1 << 3}},
		{"Fields is", httplimit.Config{Limiter: one, Fields: 1 << 4}},
		{"Reserve is", httplimit.Config{Limiter: places}},
		{"Reserve.ID is", httplimit.Config{Limiter: places, Reserve: named}},
		{"Reserve is", httplimit.Config{Rules: struct{ enforce.Decider }{byRules}, Reserve: hold}},
		{"Reserve.ID is", httplimit.Config{Rules: byRules, Reserve: named}},
		{"Count: limit 0: cost is 0; allowed: 1 or more for a leaky bucket", counting(turns)},
		{"Count: limit 0: CountDenied is true; allowed: false", counting(stint.SlidingWindowLog(5, 1e9).CountingDenied())},
		{"Count: limit 0: lease is 2; allowed: none", counting(stint.FixedWindow(5, time.Second).WithLease(2))},
		{`Count is "set"; allowed: nil with rules`, httplimit.Config{Rules: byRules, Count: all}},
	} {
		_, err := httplimit.New(test.config)
		for part := range strings.SplitSeq(test.want, " & ") {
			if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say what the %s: %v", part, err)
			}
		}
	}
}
