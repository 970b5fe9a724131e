package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// Each client address makes two calls at once, and one a minute after that.
func Example() {
	still := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	limiter, err := stint.New(memstore.New(memstore.Config{Now: still}), "calls", stint.TokenBucket(2, stint.PerMinute(1)))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.New(grpclimit.Config{Limiter: limiter})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(limits.UnaryServerInterceptor()),
		grpc.StreamInterceptor(limits.StreamServerInterceptor()),
	)
	healthpb.RegisterHealthServer(server, health.NewServer())
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(listener) //nolint:errcheck // it ends with Stop
	defer server.Stop()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing is left to do
	for range 3 {
		_, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
		fmt.Println(status.Code(err))
		for _, detail := range status.Convert(err).Details() {
			switch detail := detail.(type) {
			case *errdetails.QuotaFailure:
				fmt.Println(detail.GetViolations()[0].GetSubject(), "-", detail.GetViolations()[0].GetDescription())
			case *errdetails.RetryInfo:
				fmt.Println("retry after", detail.GetRetryDelay().AsDuration())
			}
		}
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
	// limit:calls - the limit of 2 permits is reached
	// retry after 1m0s
}

// A client keeps to its own limit, waits when the server asks it to, and asks again
// up to twice.
func ExampleNewClient() {
	limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.TokenBucket(20, stint.PerSecond(10)))
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.NewClient(grpclimit.ClientConfig{Limiter: limiter, MaxWait: 5 * time.Second, Retries: 2})
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient("127.0.0.1:50051",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(limits.UnaryClientInterceptor()),
		grpc.WithStreamInterceptor(limits.StreamClientInterceptor()),
	)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(conn.Target(), conn.Close())
	// Output: 127.0.0.1:50051 <nil>
}

// The methods of one service for each account, and no more than a hundred calls a second of
// all.
func ExampleNew_rules() {
	set, err := rules.Compile([]rules.Rule{
		{
			ID: "books", Match: rules.Match{Paths: []string{"/library.v1.Books/*"}}, Scope: []string{rules.Custom("account")},
			Missing: rules.MissingDeny, Limits: []stint.Limit{stint.SlidingWindowCounter(10, time.Minute)},
		},
		{ID: "all", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.TokenBucket(100, stint.PerSecond(100))}},
	}, rules.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.New(grpclimit.Config{
		Rules: limiter,
		Describe: func(ctx context.Context, _ string, r *rules.Request) error {
			if account := metadata.ValueFromIncomingContext(ctx, "account"); len(account) == 1 {
				r.Attributes = map[string]string{"account": account[0]}
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.UnaryInterceptor(limits.UnaryServerInterceptor()),
		grpc.StreamInterceptor(limits.StreamServerInterceptor()),
	)
	defer server.Stop()

	// What the interceptor does for calls with and without an account:
	info := &grpc.UnaryServerInfo{FullMethod: "/library.v1.Books/Lend"}
	lend := func(context.Context, any) (any, error) { return "lent", nil }
	for _, ctx := range []context.Context{
		metadata.NewIncomingContext(context.Background(), metadata.Pairs("account", "42")), context.Background(),
	} {
		reply, err := limits.UnaryServerInterceptor()(ctx, nil, info, lend)
		fmt.Println(reply, status.Code(err))
		for _, detail := range status.Convert(err).Details() {
			if quota, ok := detail.(*errdetails.QuotaFailure); ok {
				fmt.Println(quota.GetViolations()[0].GetSubject(), "-", quota.GetViolations()[0].GetDescription())
			}
		}
	}
	// Output:
	// lent OK
	// <nil> ResourceExhausted
	// rule:books - the call lacks what the rule asks for
}

// Calls of a client that wait for their turn, by the target of the connection.
func ExampleClientConfig_rules() {
	set, err := rules.Compile([]rules.Rule{{
		ID: "pace", Scope: []string{rules.Custom("target")}, Missing: rules.MissingDeny,
		Limits: []stint.Limit{stint.TokenBucket(10, stint.PerSecond(10))}, OnExceed: rules.Wait, MaxWait: 5 * time.Second,
	}}, rules.Options{})
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := grpclimit.NewClient(grpclimit.ClientConfig{Rules: limiter})
	if err != nil {
		log.Fatal(err)
	}
	options := []grpc.DialOption{
		grpc.WithUnaryInterceptor(limits.UnaryClientInterceptor()),
		grpc.WithStreamInterceptor(limits.StreamClientInterceptor()),
	}
	fmt.Println(len(options), "options for grpc.NewClient")
	// Output: 2 options for grpc.NewClient
}
