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
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

func TestConfigFaults(t *testing.T) {
	_, err := grpclimit.New(grpclimit.Config{})
	if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), `Limiter is "nil"`) {
		t.Errorf("%v, want what is wrong with the limiter", err)
	}
}

// Errors become codes, and what they say beyond that stays in the process.
func TestFailures(t *testing.T) {
	const secret = "hunter2"
	key := func(key string, err error) func(context.Context, string) (string, error) {
		return func(context.Context, string) (string, error) { return key, err }
	}
	cost := func(n int64, err error) func(context.Context, string, any) (int64, error) {
		return func(context.Context, string, any) (int64, error) { return n, err }
	}
	for name, c := range map[string]struct {
		config grpclimit.Config
		store  stint.Store
		want   codes.Code
		says   string
	}{
		"a store that is away": {store: unavailable(), want: codes.Unavailable, says: "the rate limit could not be decided"},
		"a key that is too long": {
			config: grpclimit.Config{Key: key(strings.Repeat(secret, 100), nil)},
			want:   codes.InvalidArgument, says: "key; allowed: 1 to 256 bytes",
		},
		"no key":        {config: grpclimit.Config{Key: key("", nil)}, want: codes.InvalidArgument, says: "key; allowed: 1 to 256 bytes"},
		"a cost of -1":  {config: grpclimit.Config{Cost: cost(-1, nil)}, want: codes.InvalidArgument, says: "permits; allowed: 1 or more"},
		"a bad cost":    {config: grpclimit.Config{Cost: cost(0, stint.Invalid("size", secret, "a number"))}, want: codes.InvalidArgument, says: "size; allowed: a number"},
		"a status":      {config: grpclimit.Config{Key: key("", status.Error(codes.Unauthenticated, "who are you?"))}, want: codes.Unauthenticated, says: "who are you?"},
		"a bad key":     {config: grpclimit.Config{Key: key("", fmt.Errorf("%w: %s", stint.ErrInvalid, secret))}, want: codes.InvalidArgument, says: "the key or the cost is not allowed"},
		"another error": {config: grpclimit.Config{Key: key("", errors.New(secret))}, want: codes.Internal, says: "the rate limit could not be applied"},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Limiter = newLimiter(t, burst())
			if c.store != nil {
				c.config.Limiter = limiterOn(t, c.store, burst())
			}
			conn := serve(t, intercepted(newServer(t, c.config))...)
			_, trailer, err := invoke(bounded(t), conn)
			expectCode(t, err, c.want)
			if message := status.Convert(err).Message(); message != c.says {
				t.Errorf("it says %q, want %q", message, c.says)
			}
			expectMetadata(t, trailer, "", "", "", "")
		})
	}
}

// An interceptor before this one can log why.
func TestCauseStaysInTheProcess(t *testing.T) {
	cause := errors.New("the session's table is gone")
	limits := newServer(t, grpclimit.Config{
		Limiter: newLimiter(t, burst()),
		Key:     func(context.Context, string) (string, error) { return "", cause },
	})
	_, err := limits.UnaryServerInterceptor()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: check}, nil)
	if !errors.Is(err, cause) || status.Code(err) != codes.Internal {
		t.Errorf("%v", err)
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
