package grpclimit_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// BenchmarkUnary measures a unary call over the loopback: without limits, with each
// way to limit it, and refused.
func BenchmarkUnary(b *testing.B) {
	config := func(permits int64) grpclimit.Config {
		return grpclimit.Config{
			Limiter: limiterOn(b, memstore.New(memstore.Config{}), stint.TokenBucket(permits, stint.Per(permits, bounds.MaxPeriod))),
		}
	}
	limits := func(permits int64) *grpclimit.Server { return newServer(b, config(permits)) }
	silent := func(permits int64) *grpclimit.Server {
		silent := config(permits)
		silent.NoMetadata = true
		return newServer(b, silent)
	}
	ruled := func(permits int64) *grpclimit.Server {
		rule := rules.Rule{ID: "r", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.TokenBucket(permits, stint.Per(permits, bounds.MaxPeriod))}}
		return newServer(b, grpclimit.Config{Rules: enforced(b, memstore.New(memstore.Config{}), rule)})
	}
	const plenty, few = bounds.MaxPermits, 1
	for _, c := range []struct {
		name    string
		options []grpc.ServerOption
		want    codes.Code
	}{
		{name: "limits=none"},
		{name: "limits=interceptor", options: intercepted(limits(plenty))},
		{name: "limits=interceptor-silent", options: intercepted(silent(plenty))},
		{name: "limits=tap", options: []grpc.ServerOption{grpc.InTapHandle(limits(plenty).TapHandle())}},
		{name: "limits=interceptor-rules", options: intercepted(ruled(plenty))},
		{name: "limits=tap-rules", options: []grpc.ServerOption{grpc.InTapHandle(ruled(plenty).TapHandle())}},
		{name: "limits=interceptor-refuses", options: intercepted(limits(few)), want: codes.ResourceExhausted},
		{name: "limits=tap-refuses", options: []grpc.ServerOption{grpc.InTapHandle(limits(few).TapHandle())}, want: codes.ResourceExhausted},
	} {
		b.Run(c.name, func(b *testing.B) {
			client := healthpb.NewHealthClient(serve(b, c.options...))
			request := &healthpb.HealthCheckRequest{}
			if _, err := client.Check(b.Context(), request); err != nil && c.want == codes.OK {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Check(b.Context(), request); status.Code(err) != c.want {
					b.Fatal(err)
				}
			}
		})
	}
}
