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

func setOf(t testing.TB, list ...rules.Rule) *rules.Set {
	t.Helper()
	return must.Get(rules.Compile(list, rules.Options{}))(t)
}

func enforced(t testing.TB, store stint.Store, list ...rules.Rule) *enforce.Limiter {
	t.Helper()
	return must.Get(enforce.New(enforce.Config{Store: store, Set: setOf(t, list...)}))(t)
}

// standing enforces rules in memory where time stands still.
func standing(t testing.TB, list ...rules.Rule) *enforce.Limiter {
	t.Helper()
	return enforced(t, memstore.New(memstore.Config{Now: still}), list...)
}

func wrapRules(t testing.TB, config httplimit.Config, next http.Handler) http.Handler {
	t.Helper()
	m := must.Get(httplimit.New(config))(t)
	return m.Wrap(next)
}

// asks makes requests of one peer.
func asks(t testing.TB, method, target string, fields ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	r.RemoteAddr = "192.0.2.1:1000"
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// perMinute is a rule of a limit that admits so many a minute.
func perMinute(id string, n int64, scope ...string) rules.Rule {
	r := rules.Rule{ID: id, Scope: scope, Limits: []stint.Limit{stint.FixedWindow(n, time.Minute)}}
	if !slices.Contains(scope, rules.Global) {
		r.Missing = rules.MissingSkip
	}
	return r
}

func login(n int64) rules.Rule {
	r := perMinute("login", n, rules.PerIP)
	r.Match = rules.Match{Methods: []string{http.MethodPost}, Paths: []string{"/users/{id}/login"}, Hosts: []string{"*.example.com"}}
	return r
}

// A handler is told which limits mark its request, and the response names their rules.
func TestMarks(t *testing.T) {
	soft := perMinute("soft", 1, rules.Global)
	soft.OnExceed = rules.Mark
	var told []enforce.Exceeded
	h := wrapRules(t, httplimit.Config{Rules: standing(t, perMinute("all", 3, rules.Global), soft)},
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told = httplimit.Exceeded(r.Context()) }))
	for i, want := range []string{"", "soft", "soft"} {
		told = nil
		w := send(h, asks(t, http.MethodGet, "http://a/"))
		if got := w.Header().Get("X-RateLimit-Exceeded"); w.Code != http.StatusOK || got != want || (len(told) > 0) != (want != "") {
			t.Errorf("request %d: %d, marked by %q and told %v, want %q", i, w.Code, got, told, want)
		}
	}
	if want := []enforce.Exceeded{{Rule: "soft", Limit: 1, RetryAfter: 40 * time.Second}}; !slices.Equal(told, want) {
		t.Errorf("the handler is told %+v, want %+v", told, want)
	}
	w := send(h, asks(t, http.MethodGet, "http://a/"))
	if w.Code != http.StatusTooManyRequests || w.Header().Get("X-RateLimit-Exceeded") != "" {
		t.Errorf("a denied request: %d %v", w.Code, w.Header())
	}
}

// All rules that match decide, and the one that did says what the response tells.
func TestRules(t *testing.T) {
	h := wrapRules(t, httplimit.Config{Rules: standing(t, login(1), perMinute("all", 3, rules.Global))}, hello)
	spelled := asks(t, http.MethodPost, "http://API.example.com:80/users//7/./login?x=1")
	w := send(h, spelled)
	if w.Code != http.StatusOK || w.Body.String() != "hello" {
		t.Errorf("the first request: %d %q", w.Code, w.Body)
	}
	fields := map[string]string{
		"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1790000040",
		"RateLimit-Policy": `"default";q=1;w=60`, "RateLimit": `"default";r=0;t=40`,
	}
	expect(t, w.Header(), fields)

	w = send(h, spelled)
	expectProblem(t, w, http.StatusTooManyRequests, "exceeded")
	fields["Retry-After"] = "40"
	expect(t, w.Header(), fields)

	// A denial has taken nothing of the other rule, and another path is not the rule's.
	for _, remaining := range []string{"1", "0"} {
		w = send(h, asks(t, http.MethodPost, "http://api.example.com/users/7/logout"))
		if w.Code != http.StatusOK || w.Header().Get("X-RateLimit-Remaining") != remaining {
			t.Errorf("another path: %d %v, want %s left", w.Code, w.Header(), remaining)
		}
	}
	if w = send(h, asks(t, http.MethodGet, "http://b.example.net/")); w.Code != http.StatusTooManyRequests {
		t.Errorf("above the rule for all: %d", w.Code)
	}
}

// Rules are swapped while requests come, and what a client has taken stays taken.
func TestRulesAreSwapped(t *testing.T) {
	limiter := standing(t, perMinute("all", 1, rules.Global))
	h := wrapRules(t, httplimit.Config{Rules: limiter}, hello)
	for _, step := range []struct {
		rules  []rules.Rule
		status int
	}{
		{[]rules.Rule{perMinute("all", 1, rules.Global)}, http.StatusOK},
		{[]rules.Rule{perMinute("all", 2, rules.Global)}, http.StatusOK},
		{[]rules.Rule{perMinute("all", 2, rules.Global)}, http.StatusTooManyRequests},
		{nil, http.StatusOK},
	} {
		limiter.Swap(setOf(t, step.rules...))
		if w := send(h, asks(t, http.MethodGet, "/")); w.Code != step.status {
			t.Errorf("%d rules: %d, want %d", len(step.rules), w.Code, step.status)
		}
	}
}

// An answer to a banned client, or to a request without the property that a rule asks for, has no Retry-After.
func TestDeniedWithoutLimit(t *testing.T) {
	banned := rules.Rule{ID: "banned", Scope: []string{rules.PerIP}, Banned: true, Match: rules.Match{Paths: []string{"/banned"}}}
	lacking := perMinute("lacking", 10, rules.PerUser)
	lacking.Missing, lacking.Match.Paths = rules.MissingDeny, []string{"/lacking"}
	h := wrapRules(t, httplimit.Config{Rules: standing(t, banned, lacking)}, hello)
	for _, path := range []string{"/banned", "/lacking"} {
		w := send(h, asks(t, http.MethodGet, path))
		expectProblem(t, w, http.StatusTooManyRequests, "exceeded")
		expect(t, w.Header(), nil)
	}
}

// Describe names the client, and may correct the rest.
func TestDescribe(t *testing.T) {
	h := wrapRules(t, httplimit.Config{
		Rules: standing(t, perMinute("user", 1, rules.PerUser), perMinute("key", 1, rules.PerAPIKey),
			perMinute("plan", 1, rules.Custom("plan")), func() rules.Rule {
				r := perMinute("path", 1, rules.Global)
				r.Match.Paths = []string{"/rewritten"}
				return r
			}()),
		Describe: func(r *http.Request, q *rules.Request) error {
			q.User, q.APIKey = r.Header.Get("User"), r.Header.Get("Key")
			q.Attributes = map[string]string{"plan": r.Header.Get("Plan")}
			if path := r.Header.Get("Path"); path != "" {
				q.Path = path
			}
			return nil
		},
	}, hello)
	for _, field := range []string{"User: ann", "Key: secret", "Plan: free", "Path: /rewritten"} {
		for i, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if w := send(h, asks(t, http.MethodGet, "/", field)); w.Code != status {
				t.Errorf("%s, request %d: %d, want %d", field, i, w.Code, status)
			}
		}
	}
	if w := send(h, asks(t, http.MethodGet, "/", "User: bob")); w.Code != http.StatusOK {
		t.Errorf("another user: %d", w.Code)
	}
}

func TestRulesFindTheClient(t *testing.T) {
	clients, err := clientip.New(clientip.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}})
	if err != nil {
		t.Fatal(err)
	}
	for trusting, status := range map[*clientip.Resolver]int{nil: http.StatusTooManyRequests, clients: http.StatusOK} {
		h := wrapRules(t, httplimit.Config{Rules: standing(t, perMinute("r", 1, rules.PerIP)), Clients: trusting}, hello)
		send(h, asks(t, http.MethodGet, "/", "X-Forwarded-For: 198.51.100.1"))
		if w := send(h, asks(t, http.MethodGet, "/", "X-Forwarded-For: 198.51.100.2")); w.Code != status {
			t.Errorf("trusting %v: %d, want %d", trusting != nil, w.Code, status)
		}
	}
}

func TestRulesUnfit(t *testing.T) {
	costly := perMinute("costly", 10, rules.Global)
	costly.Cost.Header = "X-Cost"
	describe := func(r *http.Request, _ *rules.Request) error {
		switch r.Header.Get("Fail") {
		case "invalid":
			return stint.Invalid("User", "", "a user")
		case "other":
			return errors.New("the secret of 10.0.0.1")
		}
		return nil
	}
	h := wrapRules(t, httplimit.Config{Rules: standing(t, costly), Describe: describe}, hello)
	for field, detail := range map[string]string{
		"X-Cost: many":  `X-Cost is "many"; allowed: a cost`,
		"Fail: invalid": "User is",
		"Fail: other":   "does not say what its rate limit needs",
	} {
		w := send(h, asks(t, http.MethodGet, "/", field))
		expectProblem(t, w, http.StatusBadRequest, detail)
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s tells %s", field, w.Body)
		}
	}
	odd := asks(t, http.MethodGet, "/")
	odd.URL.Path = strings.Repeat("/", bounds.MaxOddPathBytes+1)
	expectProblem(t, send(h, odd), http.StatusBadRequest, "path is")
	if w := send(h, asks(t, http.MethodGet, "/", "X-Cost: 10")); w.Code != http.StatusOK || w.Header().Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("after requests that were no good: %d %v", w.Code, w.Header())
	}
}

// A Host that programs take for different ones is unfit where a rule asks for a host.
func TestRulesOfHosts(t *testing.T) {
	admin := perMinute("admin", 1, rules.Global)
	admin.Match.Hosts = []string{"admin.example.com"}
	h := wrapRules(t, httplimit.Config{Rules: standing(t, admin)}, hello)
	for _, host := range []string{"%61dmin.example.com", "x@admin.example.com", `admin.example.com\x`} {
		r := asks(t, http.MethodGet, "/")
		r.Host = host
		expectProblem(t, send(h, r), http.StatusBadRequest, "host is")
	}
	r := asks(t, http.MethodGet, "/")
	r.Host = "ADMIN.example.com:80"
	for _, status := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if w := send(h, r); w.Code != status {
			t.Errorf("%s: %d, want %d", r.Host, w.Code, status)
		}
	}
}

// Ambiguous paths are unfit if the limiter refuses them, and match by all their variants if not.
func TestRulesOfAmbiguousPaths(t *testing.T) {
	login := perMinute("login", 1, rules.Global)
	login.Match.Paths = []string{"/login"}
	for _, reject := range []bool{false, true} {
		limiter := must.Get(enforce.New(enforce.Config{
			Store: memstore.New(memstore.Config{Now: still}), Set: setOf(t, login), RejectAmbiguousPaths: reject,
		}))(t)
		h := wrapRules(t, httplimit.Config{Rules: limiter}, hello)
		if w := send(h, asks(t, http.MethodGet, "/%6cogin/?next=//x")); w.Code != http.StatusOK {
			t.Errorf("an ordinary path: %d", w.Code)
		}
		for _, path := range []string{"//login", "/x/%2e%2e/login", "/login%2F", "/login;x=1"} {
			w := send(h, asks(t, http.MethodGet, "http://example.com"+path))
			if reject {
				expectProblem(t, w, http.StatusBadRequest, "path is")
			} else if w.Code != http.StatusTooManyRequests {
				t.Errorf("%s: %d, want 429", path, w.Code)
			}
		}
	}
}

func TestRulesWithoutStore(t *testing.T) {
	h := wrapRules(t, httplimit.Config{Rules: enforced(t, failing{err: stint.ErrUnavailable}, perMinute("r", 1, rules.Global))}, hello)
	w := send(h, asks(t, http.MethodGet, "/"))
	expectProblem(t, w, http.StatusServiceUnavailable, "could not be decided")
	expect(t, w.Header(), nil)
	degraded := failing{decision: stint.Decision{Allowed: true, Degraded: true}}
	h = wrapRules(t, httplimit.Config{Rules: enforced(t, degraded, perMinute("r", 1, rules.Global))}, hello)
	w = send(h, asks(t, http.MethodGet, "/"))
	if w.Code != http.StatusOK {
		t.Errorf("degraded: %d", w.Code)
	}
	expect(t, w.Header(), nil)
}

// The program hears every verdict, and may answer denials by them.
func TestVerdicts(t *testing.T) {
	shadow := perMinute("shadow", 1, rules.Global)
	shadow.OnExceed = rules.Shadow
	var told []string
	config := httplimit.Config{
		Rules:  standing(t, perMinute("all", 2, rules.Global), shadow),
		Fields: httplimit.NoFields,
		Decided: func(_ *http.Request, v *enforce.Verdict) {
			told = append(told, v.Rule.ID+" of "+strings.Join(v.Matched, "+")+", shadowed "+strings.Join(v.Shadowed, "+"))
		},
		Denied: func(w http.ResponseWriter, _ *http.Request, v *enforce.Verdict) {
			w.Header().Set("Rule", v.Rule.ID)
			w.WriteHeader(http.StatusForbidden)
		},
	}
	h := wrapRules(t, config, hello)
	for _, want := range []struct {
		status int
		rule   string
	}{{http.StatusOK, ""}, {http.StatusOK, ""}, {http.StatusForbidden, "all"}} {
		w := send(h, asks(t, http.MethodGet, "/"))
		if w.Code != want.status || w.Header().Get("Rule") != want.rule || w.Header().Get("X-RateLimit-Limit") != "" {
			t.Errorf("%d %v, want %d by %q without fields", w.Code, w.Header(), want.status, want.rule)
		}
	}
	if want := []string{"all of all+shadow, shadowed ", "all of all+shadow, shadowed shadow", "all of all+shadow, shadowed shadow"}; !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
}

// A request that waits, by a rule or for a leaky bucket's turn, is held before the handler.
func TestRulesHold(t *testing.T) {
	waits := rules.Rule{
		ID: "waits", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.TokenBucket(1, stint.PerSecond(5))},
		OnExceed: rules.Wait, MaxWait: time.Minute,
	}
	turns := rules.Rule{ID: "turns", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.LeakyBucket(3, stint.PerSecond(5))}}
	for _, rule := range []rules.Rule{waits, turns} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var served []time.Duration
			denied := 0
			h := wrapRules(t, httplimit.Config{
				Rules: enforced(t, memstore.New(memstore.Config{}), rule),
				Decided: func(_ *http.Request, v *enforce.Verdict) {
					if !v.Allowed {
						denied++
					}
				},
			},
				http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = append(served, time.Since(start)) }))
			send(h, asks(t, http.MethodGet, "/"))
			send(h, asks(t, http.MethodGet, "/"))
			if len(served) != 2 || served[0] != 0 || served[1] != 200*time.Millisecond {
				t.Errorf("%s: served at %v, want 0 and 200ms", rule.ID, served)
			}
			// Those who can't be held for so long take nothing from others.
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				w := send(h, asks(t, http.MethodGet, "/").WithContext(ctx))
				expectProblem(t, w, http.StatusTooManyRequests, "")
				if got := w.Header().Get("Retry-After"); got != "1" {
					t.Errorf("%s: retry after %q, want 1", rule.ID, got)
				}
			}
			if denied != 3 || len(served) != 2 || time.Since(start) != 200*time.Millisecond {
				t.Errorf("%s: a request that ends after 50ms was served (%v), or held until %v; %d were told as denied, want 3", rule.ID, served, time.Since(start), denied)
			}
			send(h, asks(t, http.MethodGet, "/"))
			if len(served) != 3 || served[2] != 400*time.Millisecond {
				t.Errorf("%s: served at %v, the last not at 400ms", rule.ID, served)
			}
		})
	}
}

// Who goes away while a leaky bucket holds it was told as admitted, and is told as failed.
func TestRulesFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := rules.Rule{ID: "turns", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.LeakyBucket(3, stint.PerSecond(5))}}
		nobody := errors.New("nobody")
		var told []string
		h := wrapRules(t, httplimit.Config{
			Rules: enforced(t, memstore.New(memstore.Config{}), turns),
			Describe: func(r *http.Request, _ *rules.Request) error {
				if r.URL.Path == "/nobody" {
					return nobody
				}
				return nil
			},
			Decided: func(_ *http.Request, v *enforce.Verdict) {
				told = append(told, fmt.Sprintf("admitted %t, delay %s", v.Allowed, v.Decision.Delay))
			},
			Failed: func(r *http.Request, err error) { told = append(told, r.URL.Path+": "+err.Error()) },
		}, hello)
		send(h, asks(t, http.MethodGet, "/a"))
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, leave)
		expectProblem(t, send(h, asks(t, http.MethodGet, "/b").WithContext(ctx)), http.StatusServiceUnavailable, "")
		expectProblem(t, send(h, asks(t, http.MethodGet, "/nobody")), http.StatusBadRequest, "")
		want := []string{"admitted true, delay 0s", "admitted true, delay 200ms", "/b: context canceled", "/nobody: nobody"}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

func TestNewRulesRefuses(t *testing.T) {
	_, err := httplimit.New(httplimit.Config{Fields: 1 << 5})
	for _, param := range []string{"Limiter is", "Fields is 32"} {
		if err == nil || !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), param) {
			t.Errorf("the error does not say what the %s: %v", param, err)
		}
	}
}

// Begin writes an answer only to a denied request.
func TestBegin(t *testing.T) {
	m := must.Get(httplimit.New(httplimit.Config{Rules: standing(t, perMinute("r", 1, rules.Global))}))(t)
	for _, admitted := range []bool{true, false} {
		w := httptest.NewRecorder()
		_, end, got := m.Begin(w, asks(t, http.MethodGet, "/"))
		end(0)
		if got != admitted || (w.Body.Len() == 0) != admitted {
			t.Errorf("admitted %t with body %q, want %t", got, w.Body, admitted)
		}
	}
}

// Middlewares that share rules write each its own fields.
func TestRulesFields(t *testing.T) {
	limiter := standing(t, perMinute("r", 10, rules.Global))
	for fields, want := range map[httplimit.Fields]int{
		httplimit.NoFields: 0, httplimit.RetryAfter: 0, httplimit.XRateLimit: 3, httplimit.IETF: 2, 0: 5,
	} {
		h := wrapRules(t, httplimit.Config{Rules: limiter, Fields: fields},
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if header := send(h, asks(t, http.MethodGet, "/")).Header(); len(header) != want {
			t.Errorf("fields %d: %v, want %d of them", fields, header, want)
		}
	}
}
