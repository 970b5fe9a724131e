package clienttest

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// serviceRules are rules of every outcome that a request can meet.
func serviceRules() []rules.Rule {
	match := func(path string) rules.Match { return rules.Match{Paths: []string{path}} }
	return []rules.Rule{
		{ID: "login", Match: match("/login"), Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(2, time.Minute)}},
		{
			ID: "search", Match: match("/search"), Scope: []string{rules.PerUser}, Missing: rules.MissingDeny,
			Limits: []stint.Limit{stint.TokenBucket(3, stint.Every(time.Second)), stint.SlidingWindowLog(1, time.Second).Named("burst")},
		},
		{
			ID: "export", Match: match("/export"), Scope: []string{rules.PerAPIKey}, Missing: rules.MissingSkip, Cost: rules.Cost{Header: "X-Size", Permits: 1},
			Limits: []stint.Limit{stint.SlidingWindowCounter(10, time.Minute)},
		},
		{
			ID: "known", Match: match("/known"), Scope: []string{rules.PerUser}, Missing: rules.MissingDeny, MissingStatus: 401,
			Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)},
		},
		{ID: "soft", Match: match("/search"), Scope: []string{rules.Global}, OnExceed: rules.Mark, Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)}},
		{ID: "banned", Match: match("/private/**"), Scope: []string{rules.Global}, Banned: true},
		{ID: "watched", Match: match("/login"), Scope: []string{rules.Global}, OnExceed: rules.Shadow, Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)}},
		{
			ID: "quota", Match: match("/quota"), Scope: []string{rules.Global}, Otherwise: "extra", Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)},
			Classes: rules.Classes{By: rules.ClassBy{Attribute: "class"}, Default: "batch", Keep: map[string]rules.Percent{"batch": 0}},
		},
		{ID: "extra", Match: match("/nothing"), Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)}},
		{ID: "held", Match: match("/held"), Scope: []string{rules.Global}, OnExceed: rules.Wait, MaxWait: 5 * time.Minute, Limits: []stint.Limit{stint.FixedWindow(1, time.Minute)}},
	}
}

// describe adds the user, as a program does that has authenticated it.
func describe(r *http.Request, q *rules.Request) error {
	q.User, q.APIKey = r.Header.Get("X-User"), r.Header.Get("X-Key")
	return nil
}

// told is what a middleware made of a request.
type told struct {
	status  int
	rule    string
	reason  stint.Reason
	missing []string
	limit   string
	shadow  []string
	class   string
	via     string

	available int64 // by several ways; -1 without them
	exceeded  []enforce.Exceeded
}

// A middleware by a service's rules answers as one by the same rules in the process, field by field.
func TestMiddlewareByAService(t *testing.T) {
	clock := storetest.NewClock(start)
	set := must.Get(rules.Compile(serviceRules(), rules.Options{}))(t)
	here := must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: clock.Now}), Set: set}))(t)
	c := openRules(t, clock, serviceRules()...)
	ask := func(limiter enforce.Decider, r *http.Request) (told, http.Header) {
		var answer told
		m := must.Get(httplimit.New(httplimit.Config{
			Rules: limiter, Describe: describe,
			Decided: func(_ *http.Request, v *enforce.Verdict) {
				answer = told{
					reason: v.Reason(), missing: slices.Clone(v.Missing()), shadow: slices.Clone(v.Shadowed), class: v.Class, via: v.Via,
				}
				answer.exceeded = slices.Clone(v.Exceeded)
				answer.available = -1
				if n, chooses := v.Available(); chooses {
					answer.available = n
				}
				if !v.Allowed {
					answer.limit = v.Limit().Name
				}
				if v.Rule != nil {
					answer.rule = v.Rule.ID
				}
			},
		}))(t)
		w := httptest.NewRecorder()
		m.Wrap(http.NotFoundHandler()).ServeHTTP(w, r)
		answer.status = w.Code
		w.Header().Del("Date")
		return answer, w.Header()
	}
	request := func(path string, fields ...string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		for pair := range slices.Chunk(fields, 2) {
			r.Header.Add(pair[0], pair[1])
		}
		return r
	}
	reasons := map[stint.Reason]bool{}
	for i, r := range []*http.Request{
		request("/login"), request("/login"), request("/login"), request("/%6Cogin"),
		request("/search"), request("/search", "X-User", "u"), request("/search", "X-User", "u"), request("/search", "X-User", "v"),
		request("/export", "X-Key", "k", "X-Size", "7"), request("/export", "X-Key", "k", "X-Size", "7"), request("/export", "X-Key", "k", "X-Size", "11"),
		request("/private/1"), request("/other"), request("/known"), request("/known", "X-User", "u"), request("/known", "X-User", "u"),
		request("/quota"), request("/quota"), request("/quota"),
	} {
		want, wantHeader := ask(here, r)
		got, gotHeader := ask(c.Rules("x-size"), r)
		reasons[got.reason] = true
		if got.status != want.status || got.rule != want.rule || got.reason != want.reason || got.limit != want.limit ||
			got.class != want.class || got.via != want.via || got.available != want.available ||
			!slices.Equal(got.missing, want.missing) || !slices.Equal(got.shadow, want.shadow) {
			t.Errorf("request %d, %s: %+v, want %+v", i, r.URL.Path, got, want)
		}
		for name := range wantHeader {
			if gotHeader.Get(name) != wantHeader.Get(name) {
				t.Errorf("request %d, %s: %s is %q, want %q", i, r.URL.Path, name, gotHeader.Get(name), wantHeader.Get(name))
			}
		}
		if len(gotHeader) != len(wantHeader) {
			t.Errorf("request %d: header %v, want %v", i, gotHeader, wantHeader)
		}
	}
	for _, reason := range []stint.Reason{"", stint.ReasonLimit, stint.ReasonNever, stint.ReasonBanned, stint.ReasonMissing} {
		if !reasons[reason] {
			t.Errorf("no request had the reason %q", reason)
		}
	}
}

// An IPv6 client is the same to the service as to the program.
func TestServiceCountsNetworks(t *testing.T) {
	c := openRules(t, storetest.NewClock(start), serviceRules()...)
	var v enforce.Verdict
	for i, address := range []string{"2001:db8:1:2::/64", "2001:db8:1:2::/64", "2001:db8:1:2::/64", "2001:db8:1:3::/64"} {
		err := c.Rules().Decide(t.Context(), &rules.Request{Path: "/login", Address: address}, &v)
		if err != nil || v.Allowed != (i != 2) || v.Claim.Key != address {
			t.Errorf("request %d of %s: %+v, %v", i, address, v, err)
		}
	}
}

// A text that is not UTF-8, which JSON would make another's, is refused before it is sent: else two clients would share
// one limit.
func TestRulesOfTextsThatAreNotUTF8(t *testing.T) {
	c := openRules(t, storetest.NewClock(start), serviceRules()...)
	var v enforce.Verdict
	for param, request := range map[string]rules.Request{
		"attributes.userId": {Path: "/search", User: "caf\xe9"},
		"attributes.apiKey": {Path: "/search", APIKey: "caf\xe8"},
		"attributes.\xff":   {Path: "/search", Attributes: map[string]string{"\xff": "", "a": ""}},
		"headers.X-Size":    {Path: "/export", Header: http.Header{"X-Size": {"\xff"}}},
		"host":              {Host: "\xff"},
		"path":              {Path: "/\xff"},
	} {
		fault, refused := errors.AsType[*stint.InvalidError](c.Rules("x-size").Decide(t.Context(), &request, &v))
		if !refused || fault.Param != param || fault.Allowed != "UTF-8" {
			t.Errorf("%s: %v", param, fault)
		}
	}
	_, err := c.SettleRules(t.Context(), api.SettleRulesRequest{EvaluateRequest: api.EvaluateRequest{Method: "\xff"}})
	if fault, refused := errors.AsType[*stint.InvalidError](err); !refused || fault.Param != "method" {
		t.Errorf("a settlement: %v", err)
	}
}

// A request for which the service's rules would wait is denied at once by DecideNow.
func TestServiceHoldsNothingNow(t *testing.T) {
	c := openRules(t, storetest.NewClock(start), serviceRules()...)
	var v enforce.Verdict
	for i := range 2 {
		err := c.Rules().DecideNow(t.Context(), &rules.Request{Path: "/held"}, &v)
		if err != nil || v.Allowed != (i == 0) || v.Held != 0 {
			t.Errorf("request %d: %+v, %v", i, v, err)
		}
	}
}

// A turn that comes after the context's deadline is denied.
func TestServiceTurnIsTooLate(t *testing.T) {
	turns := []stint.Limit{stint.LeakyBucket(5, stint.Every(time.Hour))}
	c := openRules(t, storetest.NewClock(start), rules.Rule{ID: "paced", Scope: []string{rules.Global}, Limits: turns})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var v enforce.Verdict
	for i := range 2 {
		err := c.Rules().Decide(ctx, &rules.Request{}, &v)
		if err != nil || v.Allowed != (i == 0) || i == 1 && (v.Turn != time.Hour || v.Reason() != stint.ReasonLimit) {
			t.Errorf("request %d: %+v, %v", i, v, err)
		}
	}
}

// A gRPC server by a service's rules says which rule and limit denied, and when to come again.
func TestGRPCByAService(t *testing.T) {
	minute := []stint.Limit{stint.FixedWindow(1, time.Minute).Named("minute")}
	c := openRules(t, storetest.NewClock(start), rules.Rule{ID: "calls", Scope: []string{rules.Global}, Limits: minute})
	s := must.Get(grpclimit.New(grpclimit.Config{
		Rules:    c.Rules(),
		Describe: func(_ context.Context, _ string, r *rules.Request) error { r.Address = "192.0.2.1"; return nil },
	}))(t)
	call := func() error {
		_, err := s.UnaryServerInterceptor()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"},
			func(context.Context, any) (any, error) { return nil, nil })
		return err
	}
	must.Do(t, call())
	denied := status.Convert(call())
	if denied.Code() != codes.ResourceExhausted || len(denied.Details()) != 2 {
		t.Fatalf("the second call: %v", denied)
	}
	quota, _ := denied.Details()[0].(*errdetails.QuotaFailure)
	retry, _ := denied.Details()[1].(*errdetails.RetryInfo)
	if quota.GetViolations()[0].GetSubject() != "rule:calls/minute" || retry.GetRetryDelay().AsDuration() <= 0 {
		t.Errorf("details %v", denied.Details())
	}
}

// A service that can't be reached decides nothing.
func TestRulesOfNoService(t *testing.T) {
	c := open(t, "http://127.0.0.1:1", client.Options{})
	v := enforce.Verdict{Allowed: true}
	if err := c.Rules().Decide(t.Context(), &rules.Request{}, &v); !errors.Is(err, stint.ErrUnavailable) || v.Allowed {
		t.Errorf("%+v, %v", v, err)
	}
}
