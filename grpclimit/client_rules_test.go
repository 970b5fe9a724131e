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
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// Outgoing calls wait where a rule says so, and fail where one rejects.
func TestClientRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits, rejects := bursts("waits", "/a", rules.Global), bursts("rejects", "/b", rules.PerUser)
		waits.OnExceed, waits.MaxWait = rules.Wait, bounds.MaxWaitLimit
		rejects.Match.Methods, rejects.Match.Headers = []string{"POST"}, map[string]string{"X-Plan": "free"}
		client := newClient(t, grpclimit.ClientConfig{
			Rules: enforced(t, memstore.New(memstore.Config{}), waits, rejects),
			Describe: func(_ context.Context, _, method string, r *rules.Request) error {
				r.User = "caller of " + method
				return nil
			},
			MaxWait: time.Second,
		})
		start := time.Now()
		for _, want := range []time.Duration{0, 0, 300 * time.Millisecond} {
			left, err := call(t.Context(), client, "/a")
			expectCode(t, err, codes.OK)
			expectElapsed(t, start, want)
			if left != 1 {
				t.Errorf("the call left %d times", left)
			}
		}
		free := metadata.AppendToOutgoingContext(t.Context(), "x-plan", "free")
		for _, code := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
			left, err := call(free, client, "/b")
			expectCode(t, err, code)
			if code != codes.OK {
				expectDenial(t, err, "rule:rejects")
			}
			if (left == 1) != (code == codes.OK) {
				t.Errorf("a call that ends with %v left %d times", code, left)
			}
		}
		if _, err := call(t.Context(), client, "/b"); err != nil {
			t.Errorf("another plan: %v", err)
		}
		expectElapsed(t, start, 300*time.Millisecond)
	})
}

// succeed is a call that does.
func succeed(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	return nil
}

// A connection's calls are counted by its target, and by the host that it names, also when Describe puts another map in
// the place of the one that tells the target.
func TestClientRulesTarget(t *testing.T) {
	rule := bursts("r", "", rules.Custom("target"))
	rule.Match.Hosts, rule.Missing = []string{"127.0.0.1"}, rules.MissingSkip
	shared := map[string]string{"tenant": "t"}
	for name, describe := range map[string]func(context.Context, string, string, *rules.Request) error{
		"as it is":    nil,
		"another map": func(_ context.Context, _, _ string, r *rules.Request) error { r.Attributes = shared; return nil },
	} {
		client := newClient(t, grpclimit.ClientConfig{Rules: standing(t, rule), Describe: describe})
		for i, target := range []string{"dns:///127.0.0.1:1", "dns:///127.0.0.1:1", "dns:///127.0.0.1:1", "dns:///127.0.0.1:2"} {
			err := client.UnaryClientInterceptor()(t.Context(), check, nil, nil, connect(t, target), succeed)
			if denied := status.Code(err) == codes.ResourceExhausted; denied != (i == 2) || !denied && err != nil {
				t.Errorf("%s: call %d: %v", name, i, err)
			}
		}
	}
	if len(shared) != 1 {
		t.Errorf("the program's map has become %v", shared)
	}
}

// A call waits for rules no longer than MaxWait, and for a turn neither.
func TestClientRulesMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minute := stint.TokenBucket(1, stint.Every(time.Minute))
		waits := rules.Rule{ID: "waits", Match: rules.Match{Paths: []string{"/a"}}, Scope: []string{rules.Global}, Limits: []stint.Limit{minute}, OnExceed: rules.Wait, MaxWait: bounds.MaxWaitLimit}
		turns := rules.Rule{ID: "turns", Match: rules.Match{Paths: []string{"/b"}}, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.LeakyBucket(9, stint.Every(time.Minute))}}
		limiter := enforced(t, memstore.New(memstore.Config{}), waits, turns)
		client := newClient(t, grpclimit.ClientConfig{Rules: limiter, MaxWait: time.Second})
		for _, method := range []string{"/a", "/b"} {
			_, err := call(t.Context(), client, method)
			expectCode(t, err, codes.OK)
		}
		start := time.Now()
		_, err := call(t.Context(), client, "/b")
		if retry, subject, _ := details(t, err); retry != time.Minute || subject != "rule:turns" {
			t.Errorf("a turn that is too far away: RetryInfo %v of %q (%v)", retry, subject, err)
		}
		expectElapsed(t, start, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		for _, ctx := range []context.Context{t.Context(), ctx} {
			left, err := call(ctx, client, "/a")
			if retry, subject, _ := details(t, err); left != 0 || retry != time.Minute || subject != "rule:waits" {
				t.Errorf("a wait that is too long: left %d times, RetryInfo %v of %q (%v)", left, retry, subject, err)
			}
		}
		expectElapsed(t, start, 0)

		// A waiter does not know how long it will wait.
		ahead := make(chan error, 1)
		go func() { ahead <- limiter.Decide(t.Context(), &rules.Request{Path: "/a"}, new(enforce.Verdict)) }()
		synctest.Wait()
		_, err = call(t.Context(), client, "/a")
		expectCode(t, err, codes.ResourceExhausted)
		expectElapsed(t, start, time.Second)
		if err := <-ahead; err != nil {
			t.Error(err)
		}
	})
}

func TestClientRulesFailures(t *testing.T) {
	client := newClient(t, grpclimit.ClientConfig{Rules: enforced(t, unavailable(), bursts("r", "", rules.Global))})
	_, err := call(t.Context(), client, "/a")
	expectCode(t, err, codes.Unavailable)
	client = newClient(t, grpclimit.ClientConfig{
		Rules: standing(t),
		Describe: func(context.Context, string, string, *rules.Request) error {
			return stint.Invalid("user", "", "a user")
		},
	})
	_, err = call(t.Context(), client, "/a")
	expectCode(t, err, codes.InvalidArgument)
}

func TestNewClientRefuses(t *testing.T) {
	describe := func(context.Context, string, string, *rules.Request) error { return nil }
	cost := func(context.Context, string, string, any) (int64, error) { return 1, nil }
	for want, config := range map[string]grpclimit.ClientConfig{
		"MaxWait is -1ns & MaxPause is -1ns & Retries is -1": {MaxWait: -1, MaxPause: -1, Retries: -1},
		"Rules is & Cost is":    {Limiter: newLimiter(t, burst()), Rules: standing(t), Cost: cost},
		"Describe is & Cost is": {Describe: describe, Cost: cost},
	} {
		_, err := grpclimit.NewClient(config)
		for param := range strings.SplitSeq(want, " & ") {
			if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), param) {
				t.Errorf("the error does not say what the %s: %v", param, err)
			}
		}
	}
}
