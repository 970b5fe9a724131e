package enforce_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

func explain(t *testing.T, limiter *enforce.Limiter, r rules.Request) *enforce.Explanation {
	t.Helper()
	return must.Get(limiter.Explain(t.Context(), &r))(t)
}

func TestExplain(t *testing.T) {
	two := per("two", stint.FixedWindow(2, time.Hour), stint.FixedWindow(9, 24*time.Hour).Named("day"))
	shadow := per("shadow", stint.FixedWindow(1, time.Hour))
	shadow.OnExceed = rules.Shadow
	users := per("users", stint.FixedWindow(5, time.Hour))
	users.Scope, users.Missing = []string{rules.PerUser}, rules.MissingSkip
	limiter, store := newLimiter(t, two, shadow, users)
	for i := range int64(2) {
		for range 3 { // it takes nothing
			explain(t, limiter, alice)
		}
		if v := decide(t, limiter, alice); !v.Allowed || v.Decision.Remaining != 1-i {
			t.Errorf("request %d, explained before: %+v", i, v.Decision)
		}
	}
	for range 2 {
		x := explain(t, limiter, alice)
		if x.Path != "/x" || len(x.Rules) != 3 || x.Verdict.Allowed || x.Verdict.Rule.ID != "two" {
			t.Fatalf("the explanation is %+v", x)
		}
		for i, want := range []struct {
			id      string
			outcome rules.Outcome
			allowed bool
			each    []int64 // what is left of each limit
		}{{"shadow", rules.Limited, false, []int64{0}}, {"two", rules.Limited, false, []int64{0, 7}}, {"users", rules.Skipped, false, nil}} {
			got := x.Rules[i]
			if got.Rule.ID != want.id || got.Outcome != want.outcome || got.Decision.Allowed != want.allowed || len(got.Each) != len(want.each) {
				t.Errorf("rule %d is %+v, want %+v", i, got, want)
				continue
			}
			for j, remaining := range want.each {
				if got.Each[j].Remaining != remaining || got.Each[j].Allowed != (remaining > 0) {
					t.Errorf("limit %d of %s is %+v, want %d left", j, want.id, got.Each[j], remaining)
				}
			}
		}
	}
	store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
	if _, err := limiter.Explain(t.Context(), &alice); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("with the store away: %v", err)
	}
}

func TestWhy(t *testing.T) {
	hour := stint.FixedWindow(2, time.Hour)
	banned := per("banned")
	banned.Banned = true
	unlimited := per("unlimited")
	unlimited.Unlimited = true
	lacking := per("lacking", hour)
	lacking.Scope, lacking.Missing = []string{rules.PerIP, rules.PerUser}, rules.MissingDeny
	some := per("some", hour)
	some.Scope, some.Missing = []string{rules.PerAPIKey, rules.PerIP, rules.Custom("plan")}, rules.MissingDeny
	fallback := per("fallback", hour)
	fallback.Scope, fallback.Missing = []string{rules.PerUser, rules.Custom("plan")}, rules.MissingIP
	address := per("address", hour)
	address.Scope, address.Missing = []string{rules.PerIP, rules.PerUser}, rules.MissingIP
	nowhere := alice
	nowhere.Address = ""
	dear := per("dear", hour)
	dear.Cost = rules.Cost{Attribute: "n"}
	elsewhere := per("elsewhere", hour)
	elsewhere.Match.Paths = []string{"/y"}
	cost := alice
	cost.Attributes = map[string]string{"n": "3"}
	for want, test := range map[string]struct {
		rule    rules.Rule
		request rules.Request
	}{
		"rule banned decides: it bans the client":                                                                                      {banned, alice},
		"no rule limits the request":                                                                                                   {unlimited, alice},
		"rule lacking decides: the request lacks what it counts by, per_user":                                                          {lacking, alice},
		"rule lacking decides: the request lacks what it counts by, per_ip and per_user":                                               {lacking, nowhere},
		"rule some decides: the request lacks what it counts by, per_api_key and custom:plan":                                          {some, alice},
		"rule fallback decides: the request lacks what it counts by, per_user and custom:plan, and the address to count it by instead": {fallback, nowhere},
		"rule address decides: the request lacks what it counts by, per_ip and per_user":                                               {address, nowhere},
		"rule dear decides: the cost of 3 is above its limit of 2":                                                                     {dear, cost},
		"rule dear decides: it has the fewest permits left, 2 of 2":                                                                    {dear, alice},
		"no rule holds for the request":                                                                                                {elsewhere, alice},
	} {
		limiter, _ := newLimiter(t, test.rule)
		if got := explain(t, limiter, test.request).Why(); got != want {
			t.Errorf("%s: %q, want %q", test.rule.ID, got, want)
		}
	}
	limiter, _ := newLimiter(t, banned)
	if v := decide(t, limiter, alice); v.Reason() != stint.ReasonBanned || v.Missing() != nil || v.Limit().Capacity != 0 {
		t.Errorf("of a ban %q, %v, %v", v.Reason(), v.Missing(), v.Limit())
	}
	limiter, _ = newLimiter(t, some)
	missing := []string{rules.PerAPIKey, rules.Custom("plan")}
	if v := decide(t, limiter, alice); v.Reason() != stint.ReasonMissing || !slices.Equal(v.Missing(), missing) {
		t.Errorf("of a request that lacks %v: %q, %v", missing, v.Reason(), v.Missing())
	}
	cost.Attributes = map[string]string{"n": "many"}
	limiter, _ = newLimiter(t, dear)
	if _, err := limiter.Explain(t.Context(), &cost); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a cost that is none: %v", err)
	}
	dear.OnExceed = rules.Shadow
	limiter, _ = newLimiter(t, dear)
	decide(t, limiter, cost) // which a rule in shadow lets pass
	x := explain(t, limiter, cost)
	if !x.Verdict.Allowed || !errors.Is(x.Rules[0].Fault, stint.ErrInvalid) || x.Rules[0].Claim.Policy != nil {
		t.Errorf("a cost that is none, of a rule in shadow: %+v", x.Rules)
	}
}
