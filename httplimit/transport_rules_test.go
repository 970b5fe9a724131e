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
			if err := call(t.Context(), t, tr, "https://a.example:443/reports/1?user="+string(rune('a'+i))); err != nil || time.Since(start) != want {
				t.Errorf("call %d at %v (%v), want %v", i, time.Since(start), err, want)
			}
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var late *httplimit.RefusedError
		if err := call(soon, t, tr, "https://a.example/"); !errors.As(err, &late) || !errors.Is(err, stint.ErrDeadline) || late.Rule != "paced" || late.RetryAfter != 3*time.Second {
			t.Errorf("a call whose deadline is nearer than the wait: %v", err)
		}
		if err := call(t.Context(), t, tr, "https://b.example/"); err != nil || time.Since(start) != 6*time.Second {
			t.Errorf("another host waited until %v (%v)", time.Since(start), err)
		}
		err := call(t.Context(), t, tr, "https://a.example/reports/2?user=a")
		var refused *httplimit.RefusedError
		if !errors.As(err, &refused) || refused.Server || errors.Is(err, stint.ErrDeadline) || refused.Rule != "reports" || refused.RetryAfter != 54*time.Second {
			t.Errorf("the user's second report: %v", err)
		} else if !strings.Contains(err.Error(), "for 54s, says rule reports") {
			t.Errorf("it says %q", err)
		}
		if calls != 4 {
			t.Errorf("%d calls were made, want 4", calls)
		}
	})
}

// A turn that comes after the deadline is told as one, of rules that wait and of others, and is left to others.
func TestTransportRulesLateTurns(t *testing.T) {
	for _, onExceed := range []rules.OnExceed{rules.Reject, rules.Wait} {
		synctest.Test(t, func(t *testing.T) {
			rule := rules.Rule{ID: "turns", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.LeakyBucket(5, stint.Every(2*time.Second))}, OnExceed: onExceed}
			if onExceed == rules.Wait {
				rule.MaxWait = time.Minute
			}
			tr := transport(t, httplimit.TransportConfig{Rules: enforced(t, memstore.New(memstore.Config{}), rule), Base: base(fine)})
			must.Do(t, call(t.Context(), t, tr, "http://a.example/"))
			start := time.Now()
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				expectLate(t, call(ctx, t, tr, "http://a.example/"), "turns", 2*time.Second)
			}
			if err := call(t.Context(), t, tr, "http://a.example/"); err != nil || time.Since(start) != 2*time.Second {
				t.Errorf("%v: the next call was made after %v (%v), want 2s", onExceed, time.Since(start), err)
			}
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
		hosts := perMinute("hosts", 1, rules.Custom("host"))
		hosts.Missing = rules.MissingSkip
		tr := transport(t, httplimit.TransportConfig{
			Rules: standing(t, hosts), Base: base(fine),
			Describe: func(_ *http.Request, q *rules.Request) error { describe(q); return nil },
		})
		var refusals []bool
		for _, url := range []string{"http://a.example/", "http://a.example/", "http://b.example/"} {
			err := call(t.Context(), t, tr, url)
			var refused *httplimit.RefusedError
			refusals = append(refusals, errors.As(err, &refused) && refused.Rule == "hosts")
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
	var refused *httplimit.RefusedError
	if !errors.As(err, &refused) || refused.RetryAfter != stint.Never || err.Error() != "stint: no call to a.example, says rule banned" {
		t.Errorf("a banned call: %v", err)
	}

	nobody := errors.New("nobody is logged in")
	tr = transport(t, httplimit.TransportConfig{
		Rules: standing(t), Base: base(fine),
		Describe: func(*http.Request, *rules.Request) error { return nobody },
	})
	if err := call(t.Context(), t, tr, "http://a.example/"); !errors.Is(err, nobody) {
		t.Errorf("Describe's error: %v", err)
	}

	away := transport(t, httplimit.TransportConfig{
		Rules: enforced(t, failing{err: stint.ErrUnavailable}, perMinute("r", 1, rules.Global)), Base: base(fine),
	})
	if err := call(t.Context(), t, away, "http://a.example/"); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("without a store: %v", err)
	}
}

// What a host asked for is heeded before a rule takes a permit, and after it has held the call.
func TestTransportRulesHeedServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := enforced(t, memstore.New(memstore.Config{}), perMinute("r", 2, rules.Global))
		tr := transport(t, httplimit.TransportConfig{
			Rules: limiter, Refuse: true, Base: once(answers(http.StatusTooManyRequests, "Retry-After: 5")),
		})
		if err := call(t.Context(), t, tr, "http://a.example/"); err != nil {
			t.Error(err)
		}
		var refused *httplimit.RefusedError
		if err := call(t.Context(), t, tr, "http://a.example/"); !errors.As(err, &refused) || !refused.Server || refused.RetryAfter != 5*time.Second {
			t.Errorf("while the host pauses: %v", err)
		}
		<-time.After(5 * time.Second)
		if err := call(t.Context(), t, tr, "http://a.example/"); err != nil {
			t.Errorf("the refused call took a permit: %v", err)
		}
	})
}

func TestTransportRulesConfig(t *testing.T) {
	_, err := httplimit.NewTransport(httplimit.TransportConfig{
		Limiter: limiter(t, stint.FixedWindow(1, time.Minute)), Rules: standing(t),
	})
	if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "Rules is") {
		t.Errorf("rules beside a limiter: %v", err)
	}
	_, err = httplimit.NewTransport(httplimit.TransportConfig{Describe: func(*http.Request, *rules.Request) error { return nil }})
	if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "Describe is") {
		t.Errorf("a description without rules: %v", err)
	}
}
