package grpclimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// aStream is a server's stream without a connection.
type aStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s aStream) Context() context.Context { return s.ctx }

// What a call holds is committed with what its handler says it cost, of unary calls and of streams.
func TestCallsHold(t *testing.T) {
	for name, test := range map[string]struct {
		handler func(ctx context.Context)
		left    string
	}{
		"says nothing":  {func(context.Context) {}, "[1 990]"},
		"says its cost": {func(ctx context.Context) { grpclimit.Cost(ctx).Set(3) }, "[1 997]"},
		"never ran":     {func(ctx context.Context) { grpclimit.Cost(ctx).Cancel() }, "[1 1000]"},
		"panics":        {func(ctx context.Context) { grpclimit.Cost(ctx).Add(5); panic("no") }, "[1 995]"},
		"runs for long": {func(context.Context) { time.Sleep(time.Hour) }, "[1 990]"}, //nolint:forbidigo // the bubble's time
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New(memstore.Config{})
				limiter := limiterOn(t, store,
					stint.Concurrency(1).Named("places").WithCost(1), stint.SlidingWindowCounter(1000, 24*time.Hour).Named("tokens"))
				limits := newServer(t, grpclimit.Config{
					Limiter: limiter, Reserve: &stint.Hold{TTL: 10 * time.Second},
					Key:  func(context.Context, string) (string, error) { return "k", nil },
					Cost: func(context.Context, string, any) (int64, error) { return 10, nil },
				})
				left := func() string {
					each := make([]stint.Outcome, 2)
					op := stint.Op{Verb: stint.VerbPeek, Claim: stint.Claim{Key: "k", Policy: limiter.Policy(), Permits: 1}, Each: each}
					must.Get(store.Decide(t.Context(), op))(t)
					return fmt.Sprint([]int64{each[0].Remaining, each[1].Remaining})
				}
				unary := func(handler grpc.UnaryHandler) (err error) {
					defer func() { _ = recover() }()
					_, err = limits.UnaryServerInterceptor()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, handler)
					return err
				}
				stream := func(handler grpc.StreamHandler) (err error) {
					defer func() { _ = recover() }()
					return limits.StreamServerInterceptor()(nil, aStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a/b"}, handler)
				}
				denied := func(context.Context, any) (any, error) { t.Error("a second call has a place"); return nil, nil }
				_ = unary(func(ctx context.Context, _ any) (any, error) {
					expectCode(t, unary(denied), codes.ResourceExhausted)
					test.handler(ctx)
					return nil, nil
				})
				if got := left(); got != test.left {
					t.Errorf("after a unary call %s are left, want %s", got, test.left)
				}
				must.Do(t, limiter.Reset(t.Context(), "k"))
				_ = stream(func(_ any, s grpc.ServerStream) error {
					expectCode(t, unary(denied), codes.ResourceExhausted)
					test.handler(s.Context())
					return nil
				})
				if got := left(); got != test.left {
					t.Errorf("after a stream %s are left, want %s", got, test.left)
				}
			})
		})
	}
}

// A place may be free at any time, so a call that lacks one alone is told to come again in a second, and not when the
// holds expire; otherwise when the other limits admit it. The metadata say the same.
func TestDenialByPlaces(t *testing.T) {
	day := stint.FixedWindow(3, 24*time.Hour).FromFirst().Named("tokens")
	for name, test := range map[string]struct {
		limits  []stint.Limit
		subject string
		want    time.Duration
	}{
		"places alone":             {[]stint.Limit{stint.Concurrency(1).Named("places")}, "limit:api/places", time.Second},
		"places among others":      {[]stint.Limit{day, stint.Concurrency(1).Named("places").WithCost(1)}, "limit:api/places", time.Second},
		"another limit for longer": {[]stint.Limit{stint.FixedWindow(1, 30*time.Second), stint.Concurrency(1).Named("places").WithCost(1)}, "limit:api/places", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := must.Get(stint.New(memstore.New(memstore.Config{}), "api", test.limits...))(t)
				limits := newServer(t, grpclimit.Config{
					Limiter: limiter, Reserve: &stint.Hold{TTL: time.Minute},
					Key: func(context.Context, string) (string, error) { return "k", nil },
				})
				unary := func(handler grpc.UnaryHandler) (retryAfter string, err error) {
					transport := &transportStream{}
					ctx := grpc.NewContextWithServerTransportStream(t.Context(), transport)
					_, err = limits.UnaryServerInterceptor()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, handler)
					return strings.Join(transport.trailer["retry-after"], ","), err
				}
				must.Get(unary(func(context.Context, any) (any, error) {
					said, err := unary(nil)
					if retry, subject, _ := details(t, err); retry != test.want || subject != test.subject {
						t.Errorf("RetryInfo %v of %q, want %v of %q", retry, subject, test.want, test.subject)
					}
					if want := fmt.Sprint(test.want.Seconds()); said != want {
						t.Errorf("retry-after %q, want %q", said, want)
					}
					return nil, nil
				}))(t)
			})
		})
	}
}

// transportStream keeps the trailer of a call without a connection.
type transportStream struct {
	grpc.ServerTransportStream
	trailer metadata.MD
}

func (s *transportStream) SetHeader(metadata.MD) error { return nil }

func (s *transportStream) SetTrailer(md metadata.MD) error {
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}
