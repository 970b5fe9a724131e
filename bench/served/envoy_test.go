package served

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
	"github.com/stint-go/stint/internal/testredis"
)

var (
	reference   = flag.String("reference", "", "the reference service's program `PATH`; none without it")
	envoyKeys   = flag.Int("envoy-keys", 1000, "`number` of clients")
	envoyOffers = flag.Int("envoy-rate", 7000, "calls per `second` where latencies are compared")
)

// domains are what all servers have: a limit that nobody reaches.
const domains = `
domain: bench
descriptors:
  - key: key
    rate_limit: {unit: day, requests_per_unit: 1000000000}
`

// bare answers what stint answers to the first request of a client.
type bare struct {
	pb.UnimplementedRateLimitServiceServer
}

var current = &pb.RateLimitResponse_RateLimit{RequestsPerUnit: 1_000_000_000, Unit: pb.RateLimitResponse_RateLimit_DAY}

func (bare) ShouldRateLimit(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return &pb.RateLimitResponse{
		OverallCode: pb.RateLimitResponse_OK,
		Statuses: []*pb.RateLimitResponse_DescriptorStatus{{
			Code: pb.RateLimitResponse_OK, CurrentLimit: current, LimitRemaining: 999_999_999,
			DurationUntilReset: &durationpb.Duration{Seconds: 43_200},
		}},
	}, nil
}

// BenchmarkEnvoy compares Envoy's rate limit service of stint with a bare grpc-go server, and on Redis with the reference
// service, if there is one: with so many calls in flight, and on Redis also at a rate.
func BenchmarkEnvoy(b *testing.B) {
	for _, store := range []string{"memory", "redis"} {
		b.Run("store="+store, func(b *testing.B) {
			listener := must.Get(new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0"))(b)
			server := grpc.NewServer()
			pb.RegisterRateLimitServiceServer(server, bare{})
			go func() { _ = server.Serve(listener) }()
			defer server.Stop()
			type target struct {
				name, addr string
				pid        int
			}
			url, addr := "memory://", testport.Address(b)
			if store == "redis" {
				url = testredis.Start(b).URL()
			}
			pid := serve(b, "", "--grpc-listen", addr, nil, "--store", url, "--store-timeout", "5s", "--envoy-config", written(b, "domains.yaml", domains))
			targets := []target{{"bare", listener.Addr().String(), os.Getpid()}, {"stint", addr, pid}}
			if store == "redis" && *reference != "" {
				for name, env := range map[string][]string{
					"reference": nil,
					// As its documents advise for many requests at once.
					"reference_pipelined": {"REDIS_PIPELINE_WINDOW=150us", "REDIS_PIPELINE_LIMIT=8"},
				} {
					addr, pid := startReference(b, testredis.Start(b).Addr(), env)
					targets = append(targets, target{name, addr, pid})
				}
			}
			loads := []string{"--callers 64", "--callers 512"}
			if store == "redis" {
				loads = append(loads, fmt.Sprintf("--callers 512 --rate %d/s", *envoyOffers))
			}
			for i, load := range loads {
				var entrants []entrant
				for _, t := range targets {
					entrants = append(entrants, entrant{t.name, t.pid, false, envoyOf(t.addr, load)})
					if i == 0 { // every client is known, and every server warm, before anything counts
						envoyOf(t.addr, "--callers 64")(b)
					}
				}
				name := strings.NewReplacer("--callers ", "in_flight=", " --rate ", "/offered=", "/s", "").Replace(load)
				b.Run(name, func(b *testing.B) { race(b, entrants...) })
			}
		})
	}
}

func envoyOf(addr, how string) func(testing.TB) figures {
	return func(tb testing.TB) figures {
		tb.Helper()
		args := fmt.Sprintf("--target rls --addr %s --limit fixed_window:1000000000:24h --keys %d %s", addr, *envoyKeys, how)
		return load(tb, strings.Fields(args)...)
	}
}

// startReference starts the reference service, which counts, as stint does.
func startReference(b *testing.B, redis string, env []string) (addr string, pid int) {
	ports := make([]string, 4) // of HTTP, gRPC, debugging and metrics
	for i := range ports {
		_, ports[i], _ = net.SplitHostPort(testport.Address(b))
	}
	dir := filepath.Dir(written(b, "domains.yaml", domains))
	addr = "127.0.0.1:" + ports[1]
	pid = proc.Start(b, addr, append([]string{
		"HOST=127.0.0.1", "PORT=" + ports[0], "GRPC_HOST=127.0.0.1", "GRPC_PORT=" + ports[1], "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + ports[2],
		"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=", "RUNTIME_APPDIRECTORY=.", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false",
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:" + ports[3], "LOG_LEVEL=error", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
	}, env...), *reference)
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		response, err := http.Get("http://127.0.0.1:" + ports[0] + "/healthcheck") //nolint:noctx // a local one
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return addr, pid
			}
		}
		if time.Now().After(deadline) {
			b.Fatalf("the reference service does not answer: %v", err)
		}
	}
}
