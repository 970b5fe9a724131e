package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

// Errors become codes, and what they say beyond that stays in the process, where an interceptor before this one can log
// it. Failed is told each, and Decided none.
func TestFailures(t *testing.T) {
	const secret = "hunter2"
	const odd, lost = "key; allowed: 1 to 256 bytes", "the rate limit could not be decided"
	const odder = "path; allowed: a path that all programs take for the same, " +
		`without //, \, #, ;, %2F, %3B, %5C, and segments . and ..`
	cause := errors.New(secret)
	const invalid = codes.InvalidArgument
	wrong := stint.Invalid("size", secret, "a number")
	who := status.Error(codes.Unauthenticated, "who are you?")
	config := func(key string, keyErr error, cost int64, costErr error) grpclimit.Config {
		return grpclimit.Config{
			Limiter: newLimiter(t, burst()),
			Key:     func(context.Context, string) (string, error) { return key, keyErr },
			Cost:    func(context.Context, string, any) (int64, error) { return cost, costErr },
		}
	}
	costly := bursts("costly", "", rules.Global)
	costly.Cost.Header = "cost"
	describing := func(err error) grpclimit.Config {
		return grpclimit.Config{
			Rules: standing(t, costly), Describe: func(context.Context, string, *rules.Request) error { return err },
		}
	}
	away := grpclimit.Config{Limiter: limiterOn(t, unavailable(), burst())}
	awayByRules := grpclimit.Config{Rules: enforced(t, unavailable(), costly)}
	strict := must.Get(enforce.New(enforce.Config{Store: unavailable(), RejectAmbiguousPaths: true}))(t)
	ambiguous := func(_ context.Context, method string, r *rules.Request) error { r.Path = "/" + method; return nil }
	unsaid := fmt.Errorf("%w: %s", stint.ErrInvalid, secret)
	causes := map[codes.Code]error{
		invalid: stint.ErrInvalid, codes.Unavailable: stint.ErrUnavailable, codes.Internal: cause, codes.Unauthenticated: who,
	}
	for name, test := range map[string]struct {
		config grpclimit.Config
		cost   string // of a rule
		want   codes.Code
		says   string
	}{
		"no store":             {away, "", codes.Unavailable, lost},
		"a key too long":       {config(strings.Repeat(secret, 100), nil, 1, nil), "", invalid, odd},
		"no key":               {config("", nil, 1, nil), "", invalid, odd},
		"a cost of -1":         {config("k", nil, -1, nil), "", invalid, "permits; allowed: 1 or more"},
		"a bad cost":           {config("k", nil, 0, wrong), "", invalid, "size; allowed: a number"},
		"a status":             {config("", who, 1, nil), "", codes.Unauthenticated, "who are you?"},
		"a bad key":            {config("", unsaid, 1, nil), "", invalid, "the key or the cost is not allowed"},
		"another error":        {config("", cause, 1, nil), "", codes.Internal, "the rate limit could not be applied"},
		"a bad cost of a rule": {describing(nil), "much", invalid, "Cost; allowed: a cost, 1 to 1000000000"},
		"an ambiguous path":    {grpclimit.Config{Rules: strict, Describe: ambiguous}, "", invalid, odder},
		"no store for rules":   {awayByRules, "1", codes.Unavailable, lost},
		"a description fails":  {describing(cause), "1", codes.Internal, "the rate limit could not be applied"},
		"a described status":   {describing(who), "1", codes.Unauthenticated, "who are you?"},
	} {
		t.Run(name, func(t *testing.T) {
			var told []error
			test.config.Failed = func(_ context.Context, method string, err error) {
				if told = append(told, err); method != check {
					t.Errorf("Failed is told of %s", method)
				}
			}
			test.config.Decided = func(_ context.Context, _ string, v *enforce.Verdict) { t.Errorf("decided %v", v.Decision) }
			limits, transport := newServer(t, test.config), &transportStream{}
			ctx := grpc.NewContextWithServerTransportStream(t.Context(), transport)
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("cost", test.cost))
			_, err := limits.UnaryServerInterceptor()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: check}, nil)
			_, tapped := limits.TapHandle()(ctx, &tap.Info{FullMethodName: check})
			if len(told) != 2 {
				t.Fatalf("Failed is told %v", told)
			}
			for i, err := range []error{err, tapped} {
				expectCode(t, err, test.want)
				if !errors.Is(told[i], causes[test.want]) {
					t.Errorf("Failed is told %v, want %v", told[i], causes[test.want])
				}
				message := status.Convert(err).Message()
				if message != test.says {
					t.Errorf("it says %q, want %q", message, test.says)
				}
				if test.want == codes.Internal && !errors.Is(err, cause) {
					t.Errorf("the cause of %v is lost", err)
				}
			}
			expectMetadata(t, transport.trailer, "", "", "", "")
		})
	}
}

// The call's own end is told by its own codes.
func TestEndedCalls(t *testing.T) {
	store := storetest.NewFaulty(memstore.New(memstore.Config{}))
	store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Block: true} })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), time.Microsecond)
	defer cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		want codes.Code
	}{
		"cancelled": {ctx: ended, want: codes.Canceled},
		"late":      {ctx: late, want: codes.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			limits := newServer(t, grpclimit.Config{Limiter: limiterOn(t, store, burst())})
			_, err := limits.UnaryServerInterceptor()(c.ctx, nil, &grpc.UnaryServerInfo{FullMethod: check}, nil)
			expectCode(t, err, c.want)
		})
	}
}

// Whom a failure policy admits is told nothing about the limits.
func TestDegraded(t *testing.T) {
	store := must.Get(failover.New(unavailable(), failover.Config{Mode: failover.Open}))(t)
	t.Cleanup(store.Close)
	conn := serve(t, intercepted(newServer(t, grpclimit.Config{Limiter: limiterOn(t, store, burst())}))...)
	for range 3 {
		header, trailer, err := invoke(bounded(t), conn)
		expectCode(t, err, codes.OK)
		expectMetadata(t, header, "", "", "", "")
		expectMetadata(t, trailer, "", "", "", "")
	}
}
