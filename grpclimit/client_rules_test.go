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

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// Outgoing calls wait where a rule says so, and fail where one rejects.
func TestClientRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits, rejects := bursts("waits", "/a", rules.Global), bursts("rejects", "/b", rules.PerUser)
		waits.OnExceed, waits.MaxWait = rules.Wait, rules.MaxWaitLimit
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
				expectRule(t, err, "rejects")
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

// A connection's calls are counted by its target, and by the host that it names.
func TestClientRulesTarget(t *testing.T) {
	rule := bursts("r", "", rules.Custom("target"))
	rule.Match.Host = "127.0.0.1"
	client := newClient(t, grpclimit.ClientConfig{Rules: standing(t, rule)})
	for _, code := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		conn := connect(t, "dns:///127.0.0.1:1")
		err := client.UnaryClientInterceptor()(t.Context(), check, nil, nil, conn, succeed)
		expectCode(t, err, code)
	}
	err := client.UnaryClientInterceptor()(t.Context(), check, nil, nil, connect(t, "dns:///127.0.0.1:2"), succeed)
	expectCode(t, err, codes.OK)
}

// A call waits for rules no longer than MaxWait, and for a turn neither.
func TestClientRulesMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		minute := stint.TokenBucket(1, stint.Every(time.Minute))
		waits := rules.Rule{ID: "waits", Match: rules.Match{Path: "/a"}, Scope: []string{rules.Global}, Limits: []stint.Limit{minute}, OnExceed: rules.Wait, MaxWait: rules.MaxWaitLimit}
		turns := rules.Rule{ID: "turns", Match: rules.Match{Path: "/b"}, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.LeakyBucket(9, stint.Every(time.Minute))}}
		client := newClient(t, grpclimit.ClientConfig{Rules: enforced(t, memstore.New(memstore.Config{}), waits, turns), MaxWait: time.Second})
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
		left, err := call(t.Context(), client, "/a")
		expectCode(t, err, codes.ResourceExhausted)
		if left != 0 || !strings.Contains(err.Error(), "longer than it waits, 1s") {
			t.Errorf("held beyond MaxWait: left %d times, %v", left, err)
		}
		expectElapsed(t, start, time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err = call(ctx, client, "/a")
		expectCode(t, err, codes.DeadlineExceeded)
		expectElapsed(t, start, 1500*time.Millisecond)
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

	_, err = grpclimit.NewClient(grpclimit.ClientConfig{
		Limiter: newLimiter(t, burst()), Rules: standing(t),
		Cost: func(context.Context, string, any) (int64, error) { return 1, nil },
	})
	for _, param := range []string{"rules is", "cost is"} {
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), param) {
			t.Errorf("the error does not say what the %s: %v", param, err)
		}
	}
	_, err = grpclimit.NewClient(grpclimit.ClientConfig{Describe: func(context.Context, string, string, *rules.Request) error { return nil }})
	for _, param := range []string{"limiter is", "describe is"} {
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), param) {
			t.Errorf("the error does not say what the %s: %v", param, err)
		}
	}
}
