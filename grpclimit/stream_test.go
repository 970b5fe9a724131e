package grpclimit_test

import (
	"context"
	"errors"
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
	"github.com/stint-go/stint/rules"
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
	_, err := watch(bounded(t), t, conn)
	expectDenial(t, err, "limit:test")
}

// With Messages the start and each message are charged, and the stream ends with
// the first that is denied, even where the handler takes that for the client's end.
func TestMessages(t *testing.T) {
	plain := grpclimit.Config{Limiter: newLimiter(t, burst()), Messages: true}
	deaf := grpclimit.Config{Limiter: newLimiter(t, burst()), Messages: true}
	byRules := grpclimit.Config{Rules: standing(t, bursts("echo", echo, rules.Global)), Messages: true}
	for name, test := range map[string]struct {
		config grpclimit.Config
		deaf   bool
		of     string
	}{
		"a handler that listens": {plain, false, "limit:test"},
		"a deaf handler":         {deaf, true, "limit:test"},
		"by rules":               {byRules, false, "rule:echo"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := serveEcho(t, echoing(test.deaf), intercepted(newServer(t, test.config))...)
			stream := openEcho(bounded(t), t, conn)
			must.Do(t, say(t, stream, ""))
			expectDenial(t, say(t, stream, ""), test.of)
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

// A call is held until a leaky bucket's turn. One that the call can't last until is left to others, by the interceptors
// and by the tap handle, which leaves the holding to them. A call that ends meanwhile gives up, and Failed is told.
func TestTurns(t *testing.T) {
	turns := stint.LeakyBucket(9, stint.Every(time.Minute))
	rule := rules.Rule{ID: "turns", Scope: []string{rules.Global}, Limits: []stint.Limit{turns}}
	for of, configOf := range map[string]func(t *testing.T) grpclimit.Config{
		"limit:test": func(t *testing.T) grpclimit.Config {
			return grpclimit.Config{Limiter: limiterOn(t, memstore.New(memstore.Config{}), turns)}
		},
		"rule:turns": func(t *testing.T) grpclimit.Config {
			return grpclimit.Config{Rules: enforced(t, memstore.New(memstore.Config{}), rule)}
		},
	} {
		t.Run(of, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := configOf(t)
				var told error
				config.Failed = func(_ context.Context, _ string, err error) { told = err }
				limits := newServer(t, config)
				reached := 0
				call := func(ctx context.Context) error {
					return unary(ctx, limits, "", func(context.Context, any) (any, error) { reached++; return nil, nil })
				}
				start := time.Now()
				expectCode(t, call(t.Context()), codes.OK)
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for range 3 {
					_, tapped := limits.TapHandle()(short, &tap.Info{FullMethodName: check})
					for _, err := range []error{call(short), tapped} {
						expectCode(t, err, codes.ResourceExhausted)
						if retry, subject, _ := details(t, err); retry != time.Minute || subject != of {
							t.Errorf("RetryInfo %v of %q (%v), want a minute", retry, subject, err)
						}
					}
				}
				long, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				held := must.Get(limits.TapHandle()(long, &tap.Info{FullMethodName: check}))(t)
				expectElapsed(t, start, 0)
				expectCode(t, call(held), codes.OK)
				expectElapsed(t, start, time.Minute)
				expectCode(t, call(t.Context()), codes.OK)
				expectElapsed(t, start, 2*time.Minute)
				if reached != 3 || told != nil {
					t.Errorf("%d calls reached the handler, want 3; Failed is told %v", reached, told)
				}
				ended, leave := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, leave)
				expectCode(t, call(ended), codes.Canceled)
				expectElapsed(t, start, 2*time.Minute+time.Second)
				if reached != 3 || !errors.Is(told, context.Canceled) {
					t.Errorf("a call that has ended reaches the handler, or Failed is told %v", told)
				}
			})
		})
	}
}

// A silentStream has messages at once, and sends nothing.
type silentStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s silentStream) Context() context.Context { return s.ctx }
func (silentStream) RecvMsg(any) error          { return nil }

// A message is held until a leaky bucket's turn, as a call is; the start takes the first.
func TestTurnsOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := newServer(t, grpclimit.Config{
			Limiter:  limiterOn(t, memstore.New(memstore.Config{}), stint.LeakyBucket(9, stint.Every(time.Minute))),
			Messages: true,
		})
		start := time.Now()
		handler := func(_ any, stream grpc.ServerStream) error {
			for turn := range 3 {
				expectElapsed(t, start, time.Duration(turn)*time.Minute)
				must.Do(t, stream.RecvMsg(nil))
			}
			return nil
		}
		info := &grpc.StreamServerInfo{FullMethod: echo}
		must.Do(t, limits.StreamServerInterceptor()(nil, silentStream{ctx: t.Context()}, info, handler))
		expectElapsed(t, start, 3*time.Minute)
	})
}
