package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// A call counts by the code that it ends with, of a panic INTERNAL; by rules by the status that HTTP has for it
// (google/rpc/code.proto).
func TestCountByCode(t *testing.T) {
	with := func(code codes.Code) func() error { return func() error { return status.Error(code, "") } }
	for name, test := range map[string]struct {
		handler func() error
		code    codes.Code
		status  int
	}{
		"OK":                {func() error { return nil }, codes.OK, 200},
		"UNAUTHENTICATED":   {with(codes.Unauthenticated), codes.Unauthenticated, 401},
		"wrapped":           {func() error { return fmt.Errorf("no: %w", status.Error(codes.PermissionDenied, "")) }, codes.PermissionDenied, 403},
		"NOT_FOUND":         {with(codes.NotFound), codes.NotFound, 404},
		"UNAVAILABLE":       {with(codes.Unavailable), codes.Unavailable, 503},
		"no code of gRPC":   {with(77), 77, 500},
		"an error":          {func() error { return errors.New("no") }, codes.Unknown, 500},
		"its client left":   {func() error { return context.Canceled }, codes.Canceled, 499},
		"its time was over": {func() error { return fmt.Errorf("no: %w", context.DeadlineExceeded) }, codes.DeadlineExceeded, 504},
		"a panic":           {func() error { panic("no") }, codes.Internal, 500},
	} {
		for _, counted := range []bool{true, false} {
			t.Run(fmt.Sprint(name, counted), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memstore.New(memstore.Config{})
					five := stint.SlidingWindowLog(5, time.Hour)
					limiter := must.Get(stint.New(store, "api", five))(t)
					var got []codes.Code
					plain := grpclimit.Config{
						Limiter: limiter, Key: func(context.Context, string) (string, error) { return "k", nil },
						Count: func(code codes.Code) bool {
							got = append(got, code)
							return counted
						},
					}
					rule := rules.Rule{ID: "r", Scope: []string{rules.Global}, Limits: []stint.Limit{five}}
					if rule.Count.Status = []int{test.status}; !counted {
						rule.Count.Status = []int{418}
					}
					set := must.Get(rules.Compile([]rules.Rule{rule}, rules.Options{}))(t)
					byRules := must.Get(enforce.New(enforce.Config{Store: store, Set: set}))(t)
					left := func() string {
						d := must.Get(limiter.Peek(t.Context(), "k"))(t)
						x := must.Get(byRules.Explain(t.Context(), &rules.Request{}))(t)
						return fmt.Sprint(d.Remaining, x.Rules[0].Each[0].Remaining)
					}
					for _, config := range []grpclimit.Config{plain, {Rules: byRules, Reserve: &stint.Hold{}}} {
						limits := newServer(t, config)
						func() {
							defer func() { _ = recover() }()
							_, _ = limits.UnaryServerInterceptor()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"},
								func(context.Context, any) (any, error) { return nil, test.handler() })
						}()
						func() {
							defer func() { _ = recover() }()
							_ = limits.StreamServerInterceptor()(nil, aStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a/b"},
								func(any, grpc.ServerStream) error { return test.handler() })
						}()
					}
					want := "5 5"
					if counted {
						want = "3 3"
					}
					if left() != want || len(got) != 2 || got[0] != test.code || got[1] != test.code {
						t.Errorf("%s are left, want %s; asked of %v, want %v", left(), want, got, test.code)
					}
				})
			})
		}
	}
}

// A call that is denied only by what calls under way hold is told to come again in a second.
func TestDenialByHeldCalls(t *testing.T) {
	limiter := must.Get(stint.New(memstore.New(memstore.Config{}), "api", stint.SlidingWindowLog(1, time.Hour)))(t)
	limits := newServer(t, grpclimit.Config{
		Limiter: limiter, Key: func(context.Context, string) (string, error) { return "k", nil },
		Count: func(code codes.Code) bool { return code == codes.Unauthenticated },
	})
	call := func(handler grpc.UnaryHandler) error {
		_, err := limits.UnaryServerInterceptor()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, handler)
		return err
	}
	_ = call(func(context.Context, any) (any, error) {
		if wait, _, _ := details(t, call(nil)); wait != time.Second {
			t.Errorf("it is told %v", wait)
		}
		return nil, status.Error(codes.Unauthenticated, "")
	})
	if wait, _, _ := details(t, call(nil)); wait <= time.Minute {
		t.Errorf("after a failed one it is told %v", wait)
	}
}
