package httplimit_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
)

// plans finds the limiter of the plan that a request names: two for free, none for unlimited.
func plans(t testing.TB, limiter *stint.Limiter) func(*http.Request) (*stint.Limiter, error) {
	t.Helper()
	return func(r *http.Request) (*stint.Limiter, error) {
		switch plan := r.URL.Query().Get("plan"); plan {
		case "free":
			return limiter.With(stint.FixedWindow(2, time.Minute))
		case "pro":
			return limiter.With(stint.FixedWindow(3, time.Minute))
		case "unlimited":
			return nil, nil //nolint:nilnil // it is what says so
		case "places":
			return limiter.With(stint.Concurrency(1))
		case "zero":
			return new(stint.Limiter), nil
		case "":
			return nil, stint.Invalid("plan", plan, "free or pro")
		default:
			return nil, errors.New("no plan in table 7")
		}
	}
}

// A request is limited by the limiter that LimiterOf finds for it, and not at all without one.
func TestLimiterOf(t *testing.T) {
	var failed error
	verdicts := 0
	h := wrap(t, httplimit.Config{
		LimiterOf: plans(t, limiter(t, stint.FixedWindow(1, time.Minute))),
		Key: func(r *http.Request) (string, error) {
			if r.URL.Query().Get("plan") == "unlimited" {
				t.Error("the key of a request that is not limited is asked for")
			}
			return "k", nil
		},
		Failed:  func(_ *http.Request, err error) { failed = err },
		Decided: func(*http.Request, *enforce.Verdict) { verdicts++ },
	}, hello)
	for _, test := range []struct {
		plan   string
		status int
		left   string
		text   string
	}{
		{"free", 200, "1", ""},
		{"free", 200, "0", ""},
		{"free", 429, "0", "exceeded"},
		{"pro", 200, "0", ""}, // of three, of which two are used
		{"pro", 429, "0", "exceeded"},
		{"unlimited", 200, "", ""},
		{"", 400, "", "plan is"},
		{"lost", 503, "", "could not be decided"},
		{"places", 503, "", "could not be decided"},
		{"zero", 503, "", "could not be decided"},
	} {
		failed = nil
		w := get(t.Context(), h, "/?plan="+test.plan)
		if w.Code != test.status || w.Header().Get("X-RateLimit-Remaining") != test.left {
			t.Errorf("%s: %d %v", test.plan, w.Code, w.Header())
		}
		if w.Code != http.StatusOK {
			expectProblem(t, w, test.status, test.text)
		}
		if (failed != nil) != (test.status == 400 || test.status == 503) ||
			test.status == 503 && !errors.Is(failed, stint.ErrUnavailable) {
			t.Errorf("%s: Failed is told %v", test.plan, failed)
		}
		if strings.Contains(w.Body.String(), "table") {
			t.Errorf("%s: the answer shows what is inside: %s", test.plan, w.Body)
		}
	}
	if verdicts != 6 {
		t.Errorf("Decided is told %d verdicts, want 6", verdicts)
	}
}

// What LimiterOf finds may be held, too.
func TestLimiterOfHolds(t *testing.T) {
	var h http.Handler
	inner := 0
	h = wrap(t, httplimit.Config{
		LimiterOf: plans(t, limiter(t, stint.FixedWindow(1, time.Minute))), Reserve: &stint.Hold{},
	}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Inner") == "" {
			again := r.Clone(r.Context())
			again.Header.Set("Inner", "yes")
			inner = send(h, again).Code
		}
	}))
	for plan, want := range map[string]int{"places": 429, "unlimited": 200} {
		w := get(t.Context(), h, "/?plan="+plan)
		if w.Code != http.StatusOK || inner != want {
			t.Errorf("%s: %d, and %d for one within it, want %d", plan, w.Code, inner, want)
		}
	}
}
