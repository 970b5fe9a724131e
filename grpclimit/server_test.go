package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	check = "/grpc.health.v1.Health/Check"
	echo  = "/stint.test.Echo/Echo"
	at    = stint.Instant(1_790_000_000_123_456)
)

// newLimiter makes a limiter on an empty memory store whose clock stands still.
func newLimiter(t testing.TB, limits ...stint.Limit) *stint.Limiter {
	t.Helper()
	return limiterOn(t, memstore.New(memstore.Config{Now: at.Time}), limits...)
}

func limiterOn(t testing.TB, store stint.Store, limits ...stint.Limit) *stint.Limiter {
	t.Helper()
	return must.Get(stint.New(store, "test", limits...))(t)
}

func newServer(t testing.TB, config grpclimit.Config) *grpclimit.Server {
	t.Helper()
	return must.Get(grpclimit.New(config))(t)
}

// intercepted are the options of a server with both interceptors.
func intercepted(limits *grpclimit.Server) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(limits.UnaryServerInterceptor()),
		grpc.StreamInterceptor(limits.StreamServerInterceptor()),
	}
}

// echoing answers each message with a status until the client ends the stream. When
// deaf, it takes any error for that end.
func echoing(deaf bool) *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "stint.test.Echo",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Echo", ServerStreams: true, ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				for {
					err := stream.RecvMsg(&healthpb.HealthCheckRequest{})
					if errors.Is(err, io.EOF) || err != nil && deaf {
						return nil
					}
					if err != nil {
						return err
					}
					if err := stream.SendMsg(&healthpb.HealthCheckResponse{}); err != nil {
						return err
					}
				}
			},
		}},
	}
}

// serve starts a server of the health and the echo service, and connects to it.
// Both end with the test.
func serve(t testing.TB, options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	return serveEcho(t, echoing(false), options...)
}

func serveEcho(t testing.TB, desc *grpc.ServiceDesc, options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	listener := must.Get(new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0"))(t)
	server := grpc.NewServer(options...)
	healthpb.RegisterHealthServer(server, health.NewServer())
	server.RegisterService(desc, nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return connect(t, listener.Addr().String())
}

func connect(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn := must.Get(grpc.NewClient(address, options...))(t)
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// bounded is a context that ends a test which would hang otherwise.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// invoke makes a unary call and returns the metadata of the answer.
func invoke(ctx context.Context, conn *grpc.ClientConn) (header, trailer metadata.MD, err error) {
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	return header, trailer, err
}

func expectCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("the call ended with %v (%v), want %v", got, err, want)
	}
}

// expectMetadata compares what is said about a limit; "" is nothing.
func expectMetadata(t *testing.T, md metadata.MD, limit, remaining, reset, retry string) {
	t.Helper()
	for name, want := range map[string]string{
		"x-ratelimit-limit": limit, "x-ratelimit-remaining": remaining, "x-ratelimit-reset": reset, "retry-after": retry,
	} {
		got := ""
		if values := md.Get(name); len(values) > 0 {
			got = values[0]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// details are those of an error: RetryInfo's delay, -1 without one, and
// QuotaFailure's only violation.
func details(t *testing.T, err error) (time.Duration, string, string) {
	t.Helper()
	retry, subject, description := time.Duration(-1), "", ""
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			retry = detail.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			if n := len(detail.GetViolations()); n != 1 {
				t.Fatalf("%d violations", n)
			}
			subject, description = detail.GetViolations()[0].GetSubject(), detail.GetViolations()[0].GetDescription()
		default:
			t.Fatalf("a detail %T", detail)
		}
	}
	return retry, subject, description
}

// expectDenial checks a denial by the limit "burst" of 2 permits that refills one
// in 300 ms, of a policy or a rule.
func expectDenial(t *testing.T, err error, of string) {
	t.Helper()
	expectCode(t, err, codes.ResourceExhausted)
	retry, subject, description := details(t, err)
	if retry != 300*time.Millisecond || subject != of+"/burst" || description != "the limit of 2 permits is reached" {
		t.Errorf("details: %v, %q, %q; want those of %s", retry, subject, description, of)
	}
}

func burst() stint.Limit {
	return stint.TokenBucket(2, stint.Every(300*time.Millisecond)).Named("burst")
}

// unavailable is a store that can't be reached.
func unavailable() stint.Store {
	store := storetest.NewFaulty(memstore.New(memstore.Config{}))
	store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
	return store
}

// Plain limits, and the rule of a service for its methods, limit unary calls and streams, and are named in denials.
func TestCalls(t *testing.T) {
	for of, config := range map[string]grpclimit.Config{
		"limit:test":  {Limiter: newLimiter(t, burst())},
		"rule:health": {Rules: standing(t, bursts("health", "/grpc.health.v1.Health/*", rules.PerIP))},
	} {
		t.Run(of, func(t *testing.T) {
			conn := serve(t, intercepted(newServer(t, config))...)
			for _, remaining := range []string{"1", "0"} {
				header, _, err := invoke(bounded(t), conn)
				expectCode(t, err, codes.OK)
				expectMetadata(t, header, "2", remaining, "1790000001", "")
			}
			_, trailer, err := invoke(bounded(t), conn)
			expectDenial(t, err, of)
			expectMetadata(t, trailer, "2", "0", "1790000001", "1")
			stream, err := watch(bounded(t), t, conn)
			expectDenial(t, err, of)
			expectMetadata(t, stream.Trailer(), "2", "0", "1790000001", "1")
		})
	}
}

func TestNoMetadata(t *testing.T) {
	conn := serve(t, intercepted(newServer(t, grpclimit.Config{Limiter: newLimiter(t, burst()), NoMetadata: true}))...)
	for range 3 {
		header, trailer, _ := invoke(bounded(t), conn)
		expectMetadata(t, header, "", "", "", "")
		expectMetadata(t, trailer, "", "", "", "")
	}
}

// What no wait will do for says so, by the interceptors and by the tap handle.
func TestDenialsForEver(t *testing.T) {
	banned := rules.Rule{ID: "banned", Scope: []string{rules.Global}, Banned: true}
	costly := func(context.Context, string, any) (int64, error) { return 3, nil }
	for _, test := range []struct {
		config               grpclimit.Config
		subject, description string
		left, reset          string
	}{
		{grpclimit.Config{Rules: standing(t, banned)}, "rule:banned", "the client is banned", "", ""},
		{
			grpclimit.Config{Limiter: newLimiter(t, burst()), Cost: costly},
			"limit:test/burst", "the cost is above the limit of 2 permits", "2", "1790000001",
		},
	} {
		limits := newServer(t, test.config)
		for name, options := range map[string][]grpc.ServerOption{
			"interceptors": intercepted(limits), "tap": {grpc.InTapHandle(limits.TapHandle())},
		} {
			_, trailer, err := invoke(bounded(t), serve(t, options...))
			expectCode(t, err, codes.ResourceExhausted)
			retry, subject, description := details(t, err)
			if retry != -1 || subject != test.subject || description != test.description {
				t.Errorf("%s: details: %v, %q, %q, want %q", name, retry, subject, description, test.description)
			}
			if name == "interceptors" || test.left == "" {
				expectMetadata(t, trailer, test.left, test.left, test.reset, "")
			}
		}
	}
}

// Cost sees the request; 0 is free, and Decided is told of it as well.
func TestCost(t *testing.T) {
	limiter := newLimiter(t, stint.FixedWindow(10, time.Hour))
	var verdicts atomic.Int64
	conn := serve(t, intercepted(newServer(t, grpclimit.Config{
		Limiter: limiter,
		Key:     func(context.Context, string) (string, error) { return "k", nil },
		Decided: func(context.Context, string, *enforce.Verdict) { verdicts.Add(1) },
		Cost: func(_ context.Context, method string, request any) (int64, error) {
			if method != check {
				t.Errorf("cost of %s", method)
			}
			return int64(len(request.(*healthpb.HealthCheckRequest).GetService())), nil
		},
	}))...)
	for _, service := range []string{"1234", "", "12"} {
		_, err := healthpb.NewHealthClient(conn).Check(bounded(t), &healthpb.HealthCheckRequest{Service: service})
		if code := status.Code(err); code != codes.OK && code != codes.NotFound {
			t.Error(err)
		}
	}
	if d, err := limiter.Peek(t.Context(), "k"); err != nil || d.Remaining != 4 || verdicts.Load() != 3 {
		t.Errorf("%d permits remain, want 4 (%v); Decided is told of %d calls", d.Remaining, err, verdicts.Load())
	}
}
