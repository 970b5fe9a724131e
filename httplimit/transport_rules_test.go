package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// Calls are counted by host, wait where a rule says so, and are not made where one rejects.
func TestTransportRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		paced := rules.Rule{
			ID: "paced", Scope: []string{rules.Custom("host")}, Missing: rules.MissingDeny,
			Limits: []stint.Limit{stint.TokenBucket(1, stint.Every(3*time.Second))}, OnExceed: rules.Wait, MaxWait: time.Minute,
		}
		reports := perMinute("reports", 1, rules.PerUser)
		reports.Match = rules.Match{Methods: []string{http.MethodGet}, Paths: []string{"/reports/**"}, Hosts: []string{"a.example"}}
		calls := 0
		tr := transport(t, httplimit.TransportConfig{
			Rules: enforced(t, memstore.New(memstore.Config{}), paced, reports),
			Describe: func(r *http.Request, q *rules.Request) error {
				q.User = r.URL.Query().Get("user")
				return nil
			},
			Base: base(func(r *http.Request) (*http.Response, error) { calls++; return fine(r) }),
		})
		for i, want := range []time.Duration{0, 3 * time.Second, 6 * time.Second} {
			err := call(t.Context(), t, tr, "https://a.example:443/reports/1?user="+string(rune('a'+i)))
			if err != nil || time.Since(start) != want {
				t.Errorf("call %d at %v (%v), want %v", i, time.Since(start), err, want)
			}
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := call(soon, t, tr, "https://a.example/")
		expectRefused(t, err, true, httplimit.RefusedError{Host: "a.example", Rule: "paced", RetryAfter: 3 * time.Second})
		if err := call(t.Context(), t, tr, "https://b.example/"); err != nil || time.Since(start) != 6*time.Second {
			t.Errorf("another host waited until %v (%v)", time.Since(start), err)
		}
		err = call(t.Context(), t, tr, "https://a.example/reports/2?user=a")
		expectRefused(t, err, false, httplimit.RefusedError{Host: "a.example", Rule: "reports", RetryAfter: 54 * time.Second})
		if !strings.Contains(err.Error(), "for 54s, says rule reports") {
			t.Errorf("it says %q", err)
		}
		if calls != 4 {
			t.Errorf("%d calls were made, want 4", calls)
		}
	})
}

// A turn that comes after the deadline is told at once, by a limiter and by rules, whether calls are refused or wait. It
// is left to others, who wait for it.
func TestTransportLateTurns(t *testing.T) {
	turns := stint.LeakyBucket(5, stint.Every(2*time.Second))
	rule := rules.Rule{ID: "turns", Scope: []string{rules.Global}, Limits: []stint.Limit{turns}}
	waiting := rule
	waiting.OnExceed, waiting.MaxWait = rules.Wait, time.Minute
	for name, configOf := range map[string]func(*testing.T, stint.Store) httplimit.TransportConfig{
		"waits": func(t *testing.T, s stint.Store) httplimit.TransportConfig {
			return httplimit.TransportConfig{Limiter: limiterOn(t, s, turns)}
		},
		"refuses": func(t *testing.T, s stint.Store) httplimit.TransportConfig {
			return httplimit.TransportConfig{Limiter: limiterOn(t, s, turns), Refuse: true}
		},
		"a rule rejects": func(t *testing.T, s stint.Store) httplimit.TransportConfig {
			return httplimit.TransportConfig{Rules: enforced(t, s, rule)}
		},
		"a rule waits": func(t *testing.T, s stint.Store) httplimit.TransportConfig {
			return httplimit.TransportConfig{Rules: enforced(t, s, waiting)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := configOf(t, memstore.New(memstore.Config{}))
				config.Base = base(fine)
				want := httplimit.RefusedError{Host: "a.example", RetryAfter: 2 * time.Second}
				if config.Rules != nil {
					want.Rule = "turns"
				}
				tr := transport(t, config)
				must.Do(t, call(t.Context(), t, tr, "http://a.example/"))
				start := time.Now()
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					defer cancel()
					expectRefused(t, call(ctx, t, tr, "http://a.example/"), true, want)
					if ctx.Err() != nil || time.Since(start) != 0 {
						t.Errorf("told after %v", time.Since(start))
					}
				}
				if err := call(t.Context(), t, tr, "http://a.example/"); err != nil || time.Since(start) != 2*time.Second {
					t.Errorf("the next call was made after %v (%v), want 2s", time.Since(start), err)
				}
			})
		})
	}
}

// A call is counted by its host whatever map Describe puts in the place of the one that tells it.
func TestTransportRulesKeepTheHost(t *testing.T) {
	shared := map[string]string{"tenant": "t"}
	for name, describe := range map[string]func(q *rules.Request){
		"another map":  func(q *rules.Request) { q.Attributes = shared },
		"no map":       func(q *rules.Request) { q.Attributes = nil },
		"the same map": func(q *rules.Request) { q.Attributes["tenant"] = "t" },
		"its own host": func(q *rules.Request) { q.Attributes = map[string]string{"host": "all"} },
	} {
		tr := transport(t, httplimit.TransportConfig{
			Rules: standing(t, perMinute("hosts", 1, rules.Custom("host"))), Base: base(fine),
			Describe: func(_ *http.Request, q *rules.Request) error { describe(q); return nil },
		})
		var refusals []bool
		for _, url := range []string{"http://a.example/", "http://a.example/", "http://b.example/"} {
			refused, ok := errors.AsType[*httplimit.RefusedError](call(t.Context(), t, tr, url))
			refusals = append(refusals, ok && refused.Rule == "hosts")
		}
		if want := []bool{false, true, name == "its own host"}; !slices.Equal(refusals, want) {
			t.Errorf("%s: refused %v, want %v", name, refusals, want)
		}
	}
	if len(shared) != 1 {
		t.Errorf("the program's map has become %v", shared)
	}
}

func TestTransportRulesRefusals(t *testing.T) {
	banned := rules.Rule{ID: "banned", Scope: []string{rules.Global}, Banned: true}
	tr := transport(t, httplimit.TransportConfig{Rules: standing(t, banned), Base: base(fine)})
	err := call(t.Context(), t, tr, "http://a.example/")
	expectRefused(t, err, false, httplimit.RefusedError{Host: "a.example", Rule: "banned", RetryAfter: stint.Never})
	if err.Error() != "stint: no call to a.example, says rule banned" {
		t.Errorf("a banned call: %v", err)
	}
	nobody := errors.New("nobody is logged in")
	away := enforced(t, failing{err: stint.ErrUnavailable}, perMinute("r", 1, rules.Global))
	for cause, config := range map[error]httplimit.TransportConfig{
		nobody:               {Rules: standing(t), Describe: func(*http.Request, *rules.Request) error { return nobody }},
		stint.ErrUnavailable: {Rules: away},
	} {
		config.Base = base(fine)
		if err := call(t.Context(), t, transport(t, config), "http://a.example/"); !errors.Is(err, cause) {
			t.Errorf("%v, want %v", err, cause)
		}
	}
}
