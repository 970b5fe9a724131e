package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

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
