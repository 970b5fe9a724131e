package grpclimit_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
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

// With the interceptors besides, a call is charged once and gets its metadata.
func TestTapAndInterceptors(t *testing.T) {
	limiter := newLimiter(t, stint.FixedWindow(10, time.Hour))
	limits := newServer(t, grpclimit.Config{
		Limiter: limiter,
		Key:     func(context.Context, string) (string, error) { return "k", nil },
	})
	conn := serve(t, append(intercepted(limits), grpc.InTapHandle(limits.TapHandle()))...)
	header, _, err := invoke(bounded(t), conn)
	expectCode(t, err, codes.OK)
	expectMetadata(t, header, "10", "9", "1790002800", "")
	must.Get(watch(bounded(t), t, conn))(t)
	if d, err := limiter.Peek(t.Context(), "k"); err != nil || d.Remaining != 8 {
		t.Errorf("%d permits remain, want 8 (%v)", d.Remaining, err)
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
