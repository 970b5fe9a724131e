package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/tap"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// watch starts a stream of the health service and receives its first message.
func watch(ctx context.Context, t *testing.T, conn *grpc.ClientConn) (grpc.ClientStream, error) {
	t.Helper()
	stream := must.Get(healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{}))(t)
	_, err := stream.Recv()
	return stream, err
}

// openEcho starts a stream of the echo service.
func openEcho(ctx context.Context, t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	return must.Get(conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, echo))(t)
}

// say sends a message and receives the answer, or what the stream ended with.
func say(t *testing.T, stream grpc.ClientStream, service string) error {
	t.Helper()
	must.Do(t, stream.SendMsg(&healthpb.HealthCheckRequest{Service: service}))
	return stream.RecvMsg(&healthpb.HealthCheckResponse{})
}

// A stream is charged once, however many messages it has.
func TestStream(t *testing.T) {
	conn := serve(t, intercepted(newServer(t, grpclimit.Config{Limiter: newLimiter(t, burst())}))...)
	stream := openEcho(bounded(t), t, conn)
	for range 10 {
		must.Do(t, say(t, stream, ""))
	}
	header := must.Get(stream.Header())(t)
	expectMetadata(t, header, "2", "1", "1790000001", "")

	must.Get(watch(bounded(t), t, conn))(t)
	denied, err := watch(bounded(t), t, conn)
	expectDenial(t, err)
	expectMetadata(t, denied.Trailer(), "2", "0", "1790000001", "1")
}

// With Messages the start and each message are charged, and the stream ends with
// the first that is denied, even where the handler takes that for the client's end.
func TestMessages(t *testing.T) {
	for name, deaf := range map[string]bool{"a handler that listens": false, "a deaf handler": true} {
		t.Run(name, func(t *testing.T) {
			limits := newServer(t, grpclimit.Config{
				Limiter:  newLimiter(t, stint.TokenBucket(2, stint.Every(300*time.Millisecond)).Named("burst")),
				Messages: true,
			})
			conn := serveEcho(t, echoing(deaf), intercepted(limits)...)
			stream := openEcho(bounded(t), t, conn)
			must.Do(t, say(t, stream, ""))
			expectDenial(t, say(t, stream, ""))
			expectMetadata(t, stream.Trailer(), "2", "0", "1790000001", "1")
		})
	}
}

// Cost sees each message, and nothing where the stream starts.
func TestCostOfMessages(t *testing.T) {
	limiter := newLimiter(t, stint.FixedWindow(100, time.Hour))
	conn := serve(t, intercepted(newServer(t, grpclimit.Config{
		Limiter:  limiter,
		Messages: true,
		Key:      func(_ context.Context, method string) (string, error) { return method, nil },
		Cost: func(_ context.Context, _ string, message any) (int64, error) {
			if message == nil {
				return 50, nil
			}
			return int64(len(message.(*healthpb.HealthCheckRequest).GetService())), nil
		},
	}))...)
	stream := openEcho(bounded(t), t, conn)
	for _, service := range []string{"123", "", "12345"} {
		must.Do(t, say(t, stream, service))
	}
	if d, err := limiter.Peek(t.Context(), echo); err != nil || d.Remaining != 42 {
		t.Errorf("%d permits remain, want 42 (%v)", d.Remaining, err)
	}
}

// A leaky bucket's call is held until its turn.
func TestHeldUntilTheTurn(t *testing.T) {
	const gap = 20 * time.Millisecond
	limiter := limiterOn(t, memstore.New(memstore.Config{}), stint.LeakyBucket(1000, stint.Every(gap)))
	conn := serve(t, intercepted(newServer(t, grpclimit.Config{Limiter: limiter}))...)
	start := time.Now()
	for range 3 {
		must.Two(invoke(bounded(t), conn))(t)
	}
	if took := time.Since(start); took < 2*gap {
		t.Errorf("three calls took %v, less than two turns", took)
	}
}

// A turn that the call can't last until is left to others, and a call that ends
// meanwhile gives up.
func TestTurnsThatAreNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := limiterOn(t, memstore.New(memstore.Config{}), stint.LeakyBucket(10, stint.PerHour(1)))
		limits := newServer(t, grpclimit.Config{
			Limiter: limiter, Key: func(context.Context, string) (string, error) { return "k", nil },
		})
		reached := 0
		call := func(ctx context.Context) error {
			_, err := limits.UnaryServerInterceptor()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: check},
				func(context.Context, any) (any, error) { reached++; return nil, nil })
			return err
		}
		start := time.Now()
		expectCode(t, call(t.Context()), codes.OK)
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 3 {
			err := call(short)
			expectCode(t, err, codes.ResourceExhausted)
			if retry, subject, _ := details(t, err); retry != time.Hour || subject != "limit:test" {
				t.Errorf("RetryInfo %v of %q, want an hour", retry, subject)
			}
			_, err = limits.TapHandle()(short, &tap.Info{FullMethodName: check})
			expectCode(t, err, codes.ResourceExhausted)
		}
		if d, err := limiter.Peek(t.Context(), "k"); err != nil || d.Delay != time.Hour {
			t.Errorf("the next turn is in %v (%v), want an hour: nobody took it", d.Delay, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		waiting := make(chan error, 1)
		go func() { waiting <- call(ended) }()
		synctest.Wait() // it is held
		cancel()
		expectCode(t, <-waiting, codes.Canceled)
		if passed := time.Since(start); passed != 0 || reached != 1 {
			t.Errorf("%d calls reached the handler after %v, want 1 at once", reached, passed)
		}
	})
}
