package enforce_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/running"
	"github.com/stint-go/stint/rules"
)

// logins is a rule of five failed logins, one of errors that costs two, and one beside them that counts all requests.
func logins() []rules.Rule {
	failed, errors := per("failed", stint.FixedWindow(5, time.Hour)), per("errors", stint.FixedWindow(10, time.Hour))
	failed.Count.Status, errors.Count.Status, errors.Cost.Permits = []int{401, 403}, []int{5}, 2
	return []rules.Rule{failed, errors, per("all", stint.FixedWindow(50, time.Hour))}
}

// reserved reserves a request as a middleware does.
func reserved(t *testing.T, limiter *enforce.Limiter, r rules.Request) (*running.Cost, enforce.RunningCost) {
	t.Helper()
	server := adapt.Server{Rules: limiter, Reserve: &stint.Hold{}}
	cost, e := server.Running(), &adapt.Evaluation{Request: r}
	if err := server.DecideByRules(t.Context(), false, cost, e); err != nil || !e.Verdict.Allowed {
		t.Fatalf("%+v, %v", e.Verdict.Decision, err)
	}
	return cost, enforce.CostOf(cost.Begin(t.Context()))
}

// answer reserves a request, and ends it as a middleware does whose handler was answered with a status; 0 is not known.
func answer(t *testing.T, limiter *enforce.Limiter, r rules.Request, status int, say func(enforce.RunningCost)) {
	t.Helper()
	cost, handle := reserved(t, limiter, r)
	say(handle)
	if status > 0 {
		cost.Answered(status)
	}
	end := cost.Stop()
	must.Do(t, end.Send(t.Context()))
}

// A request is counted by the rules that count its answer; the others get back what it held. Without an answer it is
// counted.
func TestCountByAnswers(t *testing.T) {
	nothing := func(enforce.RunningCost) {}
	for _, test := range []struct {
		status         int
		failed, errors int64 // what is left
	}{
		{200, 5, 10}, {401, 4, 10}, {403, 4, 10}, {404, 5, 10}, {499, 5, 10}, {500, 5, 8}, {503, 5, 8}, {101, 5, 10}, {0, 4, 8},
	} {
		limiter, _ := newLimiter(t, logins()...)
		answer(t, limiter, alice, test.status, nothing)
		want := map[string]int64{"failed/": test.failed, "errors/": test.errors, "all/": 49}
		wantLeft(t, "ended", left(t, limiter, alice), want)

		limiter, _ = newLimiter(t, logins()...)
		_, v := reserve(t, limiter, alice, stint.Hold{ID: "h"})
		for range 2 { // the second is a repetition
			h := stint.HoldOp{Hold: stint.Hold{ID: "h"}}
			must.Do(t, limiter.End(t.Context(), &alice, stint.VerbCommit, &h, -1, test.status, nil, nil, v))
		}
		wantLeft(t, "committed", left(t, limiter, alice), want)
	}
}

// Of a rule that is counted, what the handler says is the cost where requests may name it.
func TestCountWhatTheHandlerSays(t *testing.T) {
	named, plain := per("named", stint.FixedWindow(100, time.Hour)), per("plain", stint.FixedWindow(100, time.Hour))
	named.Cost, named.Count.Status, plain.Count.Status = rules.Cost{Attribute: "tokens", Permits: 10}, []int{2}, []int{4}
	tokensOf := per("tokens", stint.FixedWindow(100, time.Hour))
	tokensOf.Cost = named.Cost
	says := func(c enforce.RunningCost) { c.Set(7) }
	for status, want := range map[int]map[string]int64{
		200: {"named/": 93, "plain/": 100, "tokens/": 93},
		404: {"named/": 100, "plain/": 99, "tokens/": 93},
		500: {"named/": 100, "plain/": 100, "tokens/": 93},
	} {
		limiter, _ := newLimiter(t, named, plain, tokensOf)
		answer(t, limiter, alice, status, says)
		wantLeft(t, "said", left(t, limiter, alice), want)
	}
}

// A commit of a program that has no status to say: of 0 it gives back what rules that count by answers took, and nothing
// else.
func TestCommitOfRulesThatCount(t *testing.T) {
	limiter, _ := newLimiter(t, logins()...)
	first, _ := reserve(t, limiter, alice, stint.Hold{})
	if end, err := first.Commit(t.Context(), 0); err != nil || end.Applied != -1 {
		t.Fatal(end, err)
	}
	wantLeft(t, "of 0", left(t, limiter, alice), map[string]int64{"failed/": 5, "errors/": 10, "all/": 49})
	second, _ := reserve(t, limiter, alice, stint.Hold{})
	must.Get(second.CommitHeld(t.Context()))(t)
	wantLeft(t, "held", left(t, limiter, alice), map[string]int64{"failed/": 4, "errors/": 8, "all/": 48})
}

// What nobody ends is counted when it expires.
func TestCountWhatExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, _ := newLimiter(t, logins()...)
		reserve(t, limiter, alice, stint.Hold{TTL: time.Second})
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's time
		wantLeft(t, "expired", left(t, limiter, alice), map[string]int64{"failed/": 4, "errors/": 8, "all/": 49})
	})
}

// Only a Reserve is decided by rules that count by answers. An override in one that bans denies all the same.
func TestCountIsForReserves(t *testing.T) {
	list := logins()
	list[0].Overrides = []rules.Override{{Key: "192.0.2.9", Banned: true}}
	limiter, _ := newLimiter(t, list...)
	if v := decide(t, limiter, alice); !v.Allowed || len(v.Matched) != 1 || v.Matched[0] != "all" {
		t.Errorf("%+v", v)
	}
	if v := decide(t, limiter, rules.Request{Path: "/x", Address: "192.0.2.9"}); v.Allowed || v.Rule.ID != "failed" {
		t.Errorf("%+v", v)
	}
}

// A denial by what requests under way hold alone is for a second: they may give it back. One by requests that were
// counted is until the window ends.
func TestDenialByHeldPermits(t *testing.T) {
	nothing := func(enforce.RunningCost) {}
	for counted := range 6 {
		list := logins()
		list[1].Limits[0].Capacity = 100
		limiter, _ := newLimiter(t, list...)
		for i := range 5 {
			if i < counted {
				answer(t, limiter, alice, 401, nothing)
			} else if r, _ := reserve(t, limiter, alice, stint.Hold{}); r == nil {
				t.Fatal("denied")
			}
		}
		r, v := reserve(t, limiter, alice, stint.Hold{})
		if r != nil || v.Rule.ID != "failed" || (v.Decision.RetryAfter == time.Second) != (counted < 5) ||
			v.Each[0].RetryAfter != v.Decision.RetryAfter || v.Reason() != stint.ReasonLimit {
			t.Errorf("with %d counted: %+v, %+v", counted, v.Decision, v.Each)
		}
	}
}

// Where another rule denies, too, its wait counts.
func TestDenialByHeldPermitsAndAnother(t *testing.T) {
	limiter, _ := newLimiter(t, append(logins(), per("z", stint.FixedWindow(5, time.Minute)))...)
	for range 5 {
		reserve(t, limiter, alice, stint.Hold{})
	}
	r, v := reserve(t, limiter, alice, stint.Hold{})
	if d := v.Decision; r != nil || v.Rule.ID != "z" || d.RetryAfter <= time.Second || d.RetryAfter > time.Minute || d.Index != 0 || d.Limit != 5 {
		t.Errorf("%+v by %+v", d, v.Rule)
	}
}

// A rule for reserves alone is left out of other decisions, also for requests that lack what it counts by or name no
// cost.
func TestLeftOutButForReserves(t *testing.T) {
	counts, places := per("counts", stint.FixedWindow(5, time.Hour)), per("places", stint.Concurrency(5))
	counts.Count.Status = []int{4}
	for _, rule := range []rules.Rule{counts, places} {
		rule.Scope, rule.Missing, rule.Cost.Attribute = []string{rules.PerUser}, rules.MissingDeny, "n"
		limiter, _ := newLimiter(t, rule, per("all", stint.FixedWindow(50, time.Hour)))
		lacks, names := alice, alice
		names.User, names.Attributes = "ann", map[string]string{"n": "many"}
		for _, request := range []rules.Request{lacks, names} {
			if v := decide(t, limiter, request); !v.Allowed || v.Rule.ID != "all" || len(v.Matched) != 1 {
				t.Errorf("%s decides %+v by %v of %v", rule.ID, v.Decision, v.Rule, v.Matched)
			}
			var v enforce.Verdict
			_, err := limiter.Reserve(t.Context(), &request, stint.Hold{}, &v)
			if v.Allowed || err == nil && v.Reason() != stint.ReasonMissing {
				t.Errorf("%s reserves %+v, %q, %v", rule.ID, v.Decision, v.Reason(), err)
			}
		}
	}
}

// Whether a rule with overrides is for reserves alone is said by the limits that the client has, also for a request whose
// cost is none.
func TestLeftOutByOverride(t *testing.T) {
	window, places := []stint.Limit{stint.FixedWindow(5, time.Hour)}, []stint.Limit{stint.Concurrency(5)}
	for _, own := range [][]stint.Limit{window, places} {
		rule := per("a", own...)
		rule.Cost.Attribute = "n"
		rule.Overrides = []rules.Override{{Key: "192.0.2.1", Limits: window}, {Key: "192.0.2.2", Limits: places}}
		limiter, _ := newLimiter(t, rule)
		for address, limits := range map[string][]stint.Limit{"192.0.2.1": window, "192.0.2.2": places, "192.0.2.3": own} {
			request := alice
			request.Address, request.Attributes = address, map[string]string{"n": "many"}
			var v enforce.Verdict
			err := limiter.Decide(t.Context(), &request, &v)
			if leftOut := limits[0].Algorithm == stint.AlgorithmConcurrency; leftOut != (err == nil && len(v.Matched) == 0) ||
				!leftOut && !errors.Is(err, stint.ErrInvalid) {
				t.Errorf("%v beside %v: %+v, %v", limits, own, v.Decision, err)
			}
		}
	}
}

// A reset of a request clears what rules for reserves alone have of it, too.
func TestResetOfReserves(t *testing.T) {
	counts, places := per("counts", stint.FixedWindow(1, time.Hour)), per("places", stint.Concurrency(1))
	counts.Count.Status = []int{4}
	for _, rule := range []rules.Rule{counts, places} {
		limiter, _ := newLimiter(t, rule)
		for i := range 3 {
			var v enforce.Verdict
			if r, err := limiter.Reserve(t.Context(), &alice, stint.Hold{}, &v); err != nil || r == nil {
				t.Errorf("%s, reserve %d: %+v, %v", rule.ID, i, v.Decision, err)
			}
			must.Do(t, limiter.Reset(t.Context(), &alice, &v))
		}
	}
}
