package enforce_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

func TestReasons(t *testing.T) {
	paced := stint.SlidingWindowLog(10, time.Hour).WithMinInterval(time.Minute).Named("paced")
	lacking := per("lacking", stint.FixedWindow(1, time.Hour))
	lacking.Scope, lacking.Missing = []string{rules.PerUser, rules.Custom("plan")}, rules.MissingDeny
	costly := per("costly", stint.FixedWindow(5, time.Hour), stint.TokenBucket(9, stint.PerHour(1)).Named("bucket"))
	costly.Cost.Permits = 6
	for name, test := range map[string]struct {
		rule    rules.Rule
		want    stint.Reason
		limit   string
		missing []string
	}{
		"limit":                   {per("a", stint.FixedWindow(1, time.Hour).Named("hour")), stint.ReasonLimit, "hour", nil},
		"least interval":          {per("a", paced), stint.ReasonMinInterval, "paced", nil},
		"least interval, counted": {per("a", paced.CountingDenied()), stint.ReasonMinInterval, "paced", nil},
		"last one, counted":       {per("a", stint.SlidingWindowLog(1, time.Hour).WithMinInterval(time.Minute).CountingDenied()), stint.ReasonLimit, "", nil},
		"never":                   {costly, stint.ReasonNever, "", nil},
		"banned":                  {rules.Rule{ID: "a", Scope: []string{rules.PerIP}, Banned: true}, stint.ReasonBanned, "", nil},
		"missing":                 {lacking, stint.ReasonMissing, "", []string{rules.PerUser, "custom:plan"}},
	} {
		limiter, _ := newLimiter(t, test.rule, per("z", stint.FixedWindow(100, time.Hour)))
		first := decide(t, limiter, alice)
		if first.Allowed && (first.Reason() != "" || first.Missing() != nil) {
			t.Errorf("%s: an admitted request has the reason %q", name, first.Reason())
		}
		v := decide(t, limiter, alice)
		if v.Allowed || v.Reason() != test.want || v.Limit().Name != test.limit || !slices.Equal(v.Missing(), test.missing) {
			t.Errorf("%s: %v by %q, missing %v; want %v by %q, %v", name, v.Reason(), v.Limit().Name, v.Missing(), test.want, test.limit, test.missing)
		}
	}
}

// Requests for which no rule holds are denied if that is asked for, without the store.
func TestDenyByDefault(t *testing.T) {
	skipping := per("skipping", stint.FixedWindow(1, time.Hour))
	skipping.Scope, skipping.Missing = []string{rules.PerUser}, rules.MissingSkip
	shadow := per("shadow", stint.FixedWindow(1, time.Hour))
	shadow.OnExceed = rules.Shadow
	free := rules.Rule{ID: "free", Scope: []string{rules.PerIP}, Unlimited: true, Match: rules.Match{Paths: []string{"/free"}}}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: steady}), DenyByDefault: true, Set: setOf(t, nil, skipping, shadow, free)})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]stint.Reason{"/x": stint.ReasonDefault, "/free": ""} {
		r := alice
		r.Path = path
		var v enforce.Verdict
		for name, ask := range map[string]func() error{
			"Decide": func() error { return limiter.Decide(t.Context(), &r, &v) }, "DecideNow": func() error { return limiter.DecideNow(t.Context(), &r, &v) },
		} {
			if err := ask(); err != nil || v.Allowed != (want == "") || v.Reason() != want || v.Rule != nil || want != "" && v.Decision.RetryAfter != stint.Never {
				t.Errorf("%s of %s: %+v, %v", name, path, v.Decision, err)
			}
		}
		x, err := limiter.Explain(t.Context(), &r)
		if denied := x.Why() == "no rule holds for the request, and those are denied"; err != nil || denied != (want != "") || x.Verdict.Reason() != want {
			t.Errorf("%s: %s, %v", path, x.Why(), err)
		}
	}
	limiter.Swap(nil)
	if v := decide(t, limiter, alice); v.Reason() != stint.ReasonDefault {
		t.Errorf("without rules: %v", v.Reason())
	}
}
