package grpclimit_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// counted counts the unary calls that get past the tap handle.
func counted(past *atomic.Int64) grpc.ServerOption {
	return grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		past.Add(1)
		return handler(ctx, request)
	})
}

func TestTap(t *testing.T) {
	limits := newServer(t, grpclimit.Config{Limiter: newLimiter(t, burst())})
	var past atomic.Int64
	conn := serve(t, grpc.InTapHandle(limits.TapHandle()), counted(&past))
	for range 2 {
		_, _, err := invoke(bounded(t), conn)
		expectCode(t, err, codes.OK)
	}
	_, _, err := invoke(bounded(t), conn)
	expectDenial(t, err, "limit:test")
	_, err = watch(bounded(t), t, conn)
	expectDenial(t, err, "limit:test")
	if past.Load() != 2 {
		t.Errorf("%d calls got past the tap, want 2", past.Load())
	}
}

// The tap handle knows the peer, the incoming metadata and the method.
func TestTapKey(t *testing.T) {
	keys := make(chan string, 1)
	limits := newServer(t, grpclimit.Config{
		Limiter: newLimiter(t, burst()),
		Key: func(ctx context.Context, method string) (string, error) {
			user := metadata.ValueFromIncomingContext(ctx, "user")
			keys <- method + " " + user[0]
			return user[0], nil
		},
	})
	conn := serve(t, grpc.InTapHandle(limits.TapHandle()))
	_, _, err := invoke(metadata.AppendToOutgoingContext(bounded(t), "user", "ada"), conn)
	expectCode(t, err, codes.OK)
	if key := <-keys; key != check+" ada" {
		t.Errorf("the key is made of %q", key)
	}
}

// With the interceptors besides, a call is decided and charged once, also where no rule matches, and gets its metadata.
func TestTapAndInterceptors(t *testing.T) {
	for name, test := range map[string]struct {
		config      grpclimit.Config
		told        []string
		limit, left string // that the stream is told
		reset       string
	}{
		"plain": {
			grpclimit.Config{Limiter: newLimiter(t, burst())},
			[]string{check + " by ", echo + " by "},
			"2", "0", "1790000001",
		},
		"rules": {
			grpclimit.Config{Rules: standing(t, bursts("health", "/grpc.health.v1.Health/*", rules.Global))},
			[]string{check + " by health", echo + " by "},
			"", "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan string, 9)
			test.config.Decided = func(_ context.Context, method string, v *enforce.Verdict) {
				told <- method + " by " + strings.Join(v.Matched, "+")
			}
			limits := newServer(t, test.config)
			conn := serve(t, append(intercepted(limits), grpc.InTapHandle(limits.TapHandle()))...)
			header, _, err := invoke(bounded(t), conn)
			expectCode(t, err, codes.OK)
			expectMetadata(t, header, "2", "1", "1790000001", "")
			stream := openEcho(bounded(t), t, conn)
			must.Do(t, say(t, stream, ""))
			expectMetadata(t, must.Get(stream.Header())(t), test.limit, test.left, test.reset, "")
			for _, want := range test.told {
				if got := <-told; got != want {
					t.Errorf("decided was %q, want %q", got, want)
				}
			}
			if len(told) > 0 {
				t.Errorf("decided was %q, too", <-told)
			}
		})
	}
}

// What is free without its request is left to the interceptors.
func TestTapLeavesTheCostToTheRequest(t *testing.T) {
	limits := newServer(t, grpclimit.Config{
		Limiter: newLimiter(t, burst()),
		Cost: func(_ context.Context, _ string, request any) (int64, error) {
			if request == nil {
				return 0, nil
			}
			return 2, nil
		},
	})
	conn := serve(t, append(intercepted(limits), grpc.InTapHandle(limits.TapHandle()))...)
	header, _, err := invoke(bounded(t), conn)
	expectCode(t, err, codes.OK)
	expectMetadata(t, header, "2", "0", "1790000001", "")
	_, _, err = invoke(bounded(t), conn)
	expectCode(t, err, codes.ResourceExhausted)
}
