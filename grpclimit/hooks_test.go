package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/rules"
)

// unary makes a call of a plan without a connection.
func unary(ctx context.Context, limits *grpclimit.Server, plan string, handler grpc.UnaryHandler) error {
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("plan", plan))
	_, err := limits.UnaryServerInterceptor()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: check}, handler)
	return err
}

// Denied says what a denied call ends with, in a tap handle too; what it leaves gets the status of default.
func TestDenied(t *testing.T) {
	gone := status.Error(codes.Unavailable, "come tomorrow")
	for _, answer := range []error{gone, nil} {
		denied := func(_ context.Context, method string, v *enforce.Verdict) error {
			if method != check || v.Allowed || v.Reason() != stint.ReasonLimit {
				t.Errorf("Denied is told of %s: %v", method, v.Decision)
			}
			return answer
		}
		for name, config := range map[string]grpclimit.Config{
			"plain": {
				Limiter: newLimiter(t, stint.FixedWindow(1, time.Hour)), Denied: denied,
				Key: func(context.Context, string) (string, error) { return "k", nil },
			},
			"rules": {Rules: standing(t, rules.Rule{
				ID: "r", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(1, time.Hour)},
			}), Denied: denied},
		} {
			limits := newServer(t, config)
			expectCode(t, unary(t.Context(), limits, "", succeeds), codes.OK)
			want := codes.ResourceExhausted
			if answer != nil {
				want = codes.Unavailable
			}
			expectCode(t, unary(t.Context(), limits, "", succeeds), want)
			_, _, err := invoke(bounded(t), serve(t, grpc.InTapHandle(newServer(t, config).TapHandle())))
			expectCode(t, err, want)
			if t.Failed() {
				t.Fatal(name)
			}
		}
	}
}

// plans finds the limiter of the plan that a call's metadata name.
func plans(limiter *stint.Limiter) func(context.Context, string) (*stint.Limiter, error) {
	return func(ctx context.Context, _ string) (*stint.Limiter, error) {
		switch plan := strings.Join(metadata.ValueFromIncomingContext(ctx, "plan"), ""); plan {
		case "free":
			return limiter.With(stint.FixedWindow(2, time.Minute))
		case "pro":
			return limiter.With(stint.FixedWindow(3, time.Minute))
		case "unlimited":
			return nil, nil
		case "places":
			return limiter.With(stint.Concurrency(1))
		case "":
			return nil, stint.Invalid("plan", plan, "free or pro")
		case "status":
			return nil, status.Error(codes.PermissionDenied, "no plan")
		default:
			return nil, errors.New("no plan in table 7")
		}
	}
}

// A call is limited by the limiter that LimiterOf finds for it, and not at all without one. Decided hears each verdict.
func TestLimiterOf(t *testing.T) {
	var told error
	verdicts := 0
	limits := newServer(t, grpclimit.Config{
		LimiterOf: plans(newLimiter(t, burst())),
		Key: func(ctx context.Context, _ string) (string, error) {
			if metadata.ValueFromIncomingContext(ctx, "plan")[0] == "unlimited" {
				t.Error("the key of a call that is not limited is asked for")
			}
			return "k", nil
		},
		Failed:  func(_ context.Context, _ string, err error) { told = err },
		Decided: func(context.Context, string, *enforce.Verdict) { verdicts++ },
	})
	for _, test := range []struct {
		plan string
		code codes.Code
	}{
		{"free", codes.OK},
		{"free", codes.OK},
		{"free", codes.ResourceExhausted},
		{"pro", codes.OK}, // of three, of which two are used
		{"pro", codes.ResourceExhausted},
		{"unlimited", codes.OK},
		{"", codes.InvalidArgument},
		{"status", codes.PermissionDenied},
		{"lost", codes.Unavailable},
		{"places", codes.Unavailable},
	} {
		told = nil
		err := unary(t.Context(), limits, test.plan, succeeds)
		if status.Code(err) != test.code {
			t.Errorf("%s: %v, want %v", test.plan, err, test.code)
		}
		if (told != nil) != (test.code != codes.OK && test.code != codes.ResourceExhausted) ||
			test.code == codes.Unavailable && !errors.Is(told, stint.ErrUnavailable) {
			t.Errorf("%s: Failed is told %v", test.plan, told)
		}
		if strings.Contains(status.Convert(err).Message(), "table") {
			t.Errorf("%s: the status shows what is inside: %v", test.plan, err)
		}
	}
	if verdicts != 6 {
		t.Errorf("Decided is told %d verdicts, want 6", verdicts)
	}
}

// What LimiterOf finds may be held, too.
func TestLimiterOfHolds(t *testing.T) {
	limits := newServer(t, grpclimit.Config{LimiterOf: plans(newLimiter(t, burst())), Reserve: &stint.Hold{}})
	for plan, want := range map[string]codes.Code{"places": codes.ResourceExhausted, "unlimited": codes.OK} {
		for range 2 {
			err := unary(t.Context(), limits, plan, func(ctx context.Context, _ any) (any, error) {
				expectCode(t, unary(ctx, limits, plan, succeeds), want)
				return "done", nil
			})
			expectCode(t, err, codes.OK)
		}
	}
}

// By rules, a call holds what it costs while its handler runs, and ends with what that says.
func TestRulesHold(t *testing.T) {
	limiter := standing(t, rules.Rule{
		ID: "llm", Scope: []string{rules.Global}, Costs: []rules.Cost{{}, {Attribute: "tokens", Permits: 100}},
		Limits:  []stint.Limit{stint.Concurrency(1).Named("places"), stint.FixedWindow(160, 24*time.Hour).FromFirst().Named("tokens")},
		Reserve: rules.Reserve{TTL: 3 * time.Minute},
	})
	var ttl time.Duration
	limits := newServer(t, grpclimit.Config{
		Rules: limiter, Reserve: &stint.Hold{},
		Failed:  func(_ context.Context, _ string, err error) { t.Error(err) },
		Decided: func(_ context.Context, _ string, v *enforce.Verdict) { ttl = v.Hold.TTL },
	})
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.OK, codes.ResourceExhausted} { // 30 of 160 each, and 100 before
		err := unary(t.Context(), limits, "", func(ctx context.Context, _ any) (any, error) {
			if ttl != 3*time.Minute {
				t.Errorf("it is held for %v, want what the rule says", ttl)
			}
			expectCode(t, unary(ctx, limits, "", succeeds), codes.ResourceExhausted)
			grpclimit.Cost(ctx).Set(30)
			return "done", nil
		})
		if status.Code(err) != want {
			t.Errorf("call %d: %v, want %v", i, err, want)
		}
	}
	left := limits.StreamServerInterceptor()(nil, aStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: check},
		func(any, grpc.ServerStream) error { return nil })
	expectCode(t, left, codes.ResourceExhausted)
}

// A configuration says one way to decide, no function that nothing would call, and a hold where one is needed.
func TestNewRefuses(t *testing.T) {
	one, places, byPlan, byRules := newLimiter(t, burst()), newLimiter(t, stint.Concurrency(1)), plans(nil), standing(t)
	hold, named := &stint.Hold{}, &stint.Hold{ID: "one"}
	key := func(context.Context, string) (string, error) { return "k", nil }
	cost := func(context.Context, string, any) (int64, error) { return 1, nil }
	describe := func(context.Context, string, *rules.Request) error { return nil }
	for _, test := range []struct {
		want   string
		config grpclimit.Config
	}{
		{`Limiter is "nil"`, grpclimit.Config{}},
		{`Limiter is "several"`, grpclimit.Config{Limiter: one, LimiterOf: byPlan}},
		{"Limiter is", grpclimit.Config{LimiterOf: byPlan, Rules: byRules}},
		{"Key is", grpclimit.Config{Rules: byRules, Key: key}},
		{"Cost is", grpclimit.Config{Rules: byRules, Cost: cost}},
		{"Describe is", grpclimit.Config{Limiter: one, Describe: describe}},
		{"Reserve is", grpclimit.Config{Limiter: places}},
		{"Reserve.ID is", grpclimit.Config{Limiter: places, Reserve: named}},
		{"Messages is", grpclimit.Config{Limiter: places, Reserve: hold, Messages: true}},
		{"Reserve is", grpclimit.Config{Rules: struct{ enforce.Decider }{byRules}, Reserve: hold}},
		{"Reserve.ID is", grpclimit.Config{Rules: byRules, Reserve: named}},
		{"Messages is", grpclimit.Config{Rules: byRules, Reserve: hold, Messages: true}},
	} {
		if _, err := grpclimit.New(test.config); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.want, err)
		}
	}
}

// A client without a limiter heeds what servers ask for, and nothing else.
func TestClientWithoutALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, grpclimit.ClientConfig{})
		start := time.Now()
		for range 100 {
			_, err := call(t.Context(), client, check)
			expectCode(t, err, codes.OK)
		}
		expectElapsed(t, start, 0)
		_, err := call(t.Context(), client, check, refusal(t, codes.ResourceExhausted, 7*time.Second))
		expectCode(t, err, codes.ResourceExhausted)
		_, err = call(t.Context(), client, check)
		expectCode(t, err, codes.OK)
		expectElapsed(t, start, 7*time.Second)
	})
}

// A client that refuses does not wait for a pause or a permit, only for the turn of a leaky bucket.
func TestClientRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		client := bubbled(t, grpclimit.ClientConfig{Refuse: true, Retries: 3, MaxPause: 5 * time.Second}, stint.TokenBucket(2, stint.Every(30*time.Second)))
		left, err := call(t.Context(), client, check, refusal(t, codes.Unavailable, 7*time.Second))
		expectCode(t, err, codes.Unavailable)
		if left != 1 {
			t.Errorf("it left %d times, and would have to wait for the second", left)
		}
		left, err = call(t.Context(), client, check)
		expectCode(t, err, codes.ResourceExhausted)
		if retry, _, _ := details(t, err); left != 0 || retry != 5*time.Second {
			t.Errorf("during the pause it left %d times; RetryInfo %v, want what MaxPause grants", left, retry)
		}
		for _, code := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
			_, err := call(t.Context(), client, echo)
			expectCode(t, err, code)
		}
		expectElapsed(t, start, 0)
		turns := bubbled(t, grpclimit.ClientConfig{Refuse: true}, stint.LeakyBucket(2, stint.PerSecond(1)))
		for range 2 {
			_, err := call(t.Context(), turns, check)
			expectCode(t, err, codes.OK)
		}
		expectElapsed(t, start, time.Second)
	})
}
