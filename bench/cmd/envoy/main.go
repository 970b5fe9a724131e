// Command envoy measures Envoy's rate limit service: stint, a bare grpc-go server that answers a constant OK, and, where
// it was built, the reference service. All are asked the same by the same client, by turns.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/bench/internal/proc"
)

func main() { cli.Main("envoy", run) }

// options are the flags.
type options struct {
	stint, reference string
	rounds           int
	duration         time.Duration
	inFlight         []int
	keys             int
	connections      int
	rate             int
	stores, bare     string
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("envoy", flag.ContinueOnError)
	flags.StringVar(&o.stint, "stint", "stint", "the program `PATH`")
	flags.StringVar(&o.reference, "reference", "", "the reference service's program `PATH`; none without it")
	cli.Number(flags, &o.rounds, "rounds", 9, 1, 1000, "rounds")
	cli.Number(flags, &o.duration, "duration", 2*time.Second, time.Millisecond, time.Hour, "of each server in a round")
	cli.Numbers(flags, &o.inFlight, "in-flight", []int{64, 512}, 1, 10_000, "calls in flight")
	cli.Number(flags, &o.keys, "keys", 100_000, 1, 100_000_000, "clients")
	cli.Number(flags, &o.connections, "connections", 4, 1, 1000, "connections")
	cli.Number(flags, &o.rate, "rate", 7000, 1, 1_000_000, "calls per second where latencies are compared")
	flags.StringVar(&o.stores, "stores", "memory,redis", "where stint keeps its state: `STORES`")
	flags.StringVar(&o.bare, "bare", "", "be the bare server at `ADDRESS`")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	if o.bare != "" {
		return cli.Serve(ctx, o.bare, serveBare)
	}
	for _, store := range strings.Split(o.stores, ",") {
		if err := measure(ctx, o, store); err != nil {
			return err
		}
	}
	return nil
}

// config are the domains that all servers have: a limit that nobody reaches.
const config = `
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1000000000}
`

// bare answers what stint answers to the first request of a client.
type bare struct {
	pb.UnimplementedRateLimitServiceServer
}

var limit = &pb.RateLimitResponse_RateLimit{RequestsPerUnit: 1_000_000_000, Unit: pb.RateLimitResponse_RateLimit_DAY}

func (bare) ShouldRateLimit(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	return &pb.RateLimitResponse{
		OverallCode: pb.RateLimitResponse_OK,
		Statuses: []*pb.RateLimitResponse_DescriptorStatus{{
			Code: pb.RateLimitResponse_OK, CurrentLimit: limit, LimitRemaining: 999_999_999,
			DurationUntilReset: &durationpb.Duration{Seconds: 43_200},
		}},
	}, nil
}

func serveBare(ln net.Listener) error {
	server := grpc.NewServer()
	pb.RegisterRateLimitServiceServer(server, bare{})
	return server.Serve(ln)
}

// An entrant is a server that takes part.
type entrant struct {
	name   string
	server *proc.Process
	target string // of gRPC
}

// start starts the servers on a store.
func start(ctx context.Context, o options, store string) (entrants []entrant, stop func() error, err error) {
	var stops []func() error
	stop = func() (err error) {
		for _, end := range slices.Backward(stops) {
			err = errors.Join(err, end())
		}
		return err
	}
	add := func(name string, redis bool, begin func(address string) (*proc.Process, string, error)) {
		if err != nil {
			return
		}
		address := ""
		if redis {
			server, redisErr := proc.StartRedis(ctx, -1)
			if redisErr != nil {
				err = redisErr
				return
			}
			stops = append(stops, server.Stop)
			address = server.Addr
		}
		server, target, startErr := begin(address)
		if startErr != nil {
			err = startErr
			return
		}
		stops = append(stops, server.Stop)
		entrants = append(entrants, entrant{name, server, target})
	}
	self, err := os.Executable()
	if err != nil {
		return nil, stop, err
	}
	add("bare", false, func(string) (*proc.Process, string, error) {
		server, err := proc.Start(ctx, nil, self, "-bare", proc.Addr)
		if err != nil {
			return nil, "", err
		}
		return server, server.Addr, nil
	})
	add("stint", store == "redis", func(redis string) (*proc.Process, string, error) {
		url := "memory://"
		if redis != "" {
			url = "redis://" + redis
		}
		program, err := filepath.Abs(o.stint)
		if err != nil {
			return nil, "", err
		}
		// The gRPC listener has the address that is waited for.
		server, err := proc.Start(
			ctx, map[string]string{"domains.yaml": config}, program, "serve", "--store", url, "--store-timeout", "5s",
			"--listen", "127.0.0.1:0", "--admin-listen", "off", "--grpc-listen", proc.Addr, "--envoy-config", "domains.yaml",
		)
		if err != nil {
			return nil, "", err
		}
		return server, server.Addr, nil
	})
	if store == "redis" && o.reference != "" {
		add("reference", true, func(redis string) (*proc.Process, string, error) { return startReference(ctx, o, redis) })
		// As its documents advise for many requests at once.
		add("reference_pipelined", true, func(redis string) (*proc.Process, string, error) {
			return startReference(ctx, o, redis, "REDIS_PIPELINE_WINDOW=150us", "REDIS_PIPELINE_LIMIT=8")
		})
	}
	return entrants, stop, err
}

// startReference starts the reference service, whose HTTP listener is waited for. It counts, as stint does.
func startReference(ctx context.Context, o options, redis string, more ...string) (*proc.Process, string, error) {
	ports, err := proc.FreePorts(ctx, 2) // of gRPC and of its metrics
	if err != nil {
		return nil, "", err
	}
	target := "127.0.0.1:" + ports[0]
	program, err := filepath.Abs(o.reference)
	if err != nil {
		return nil, "", err
	}
	arguments := append([]string{
		"HOST=127.0.0.1", "PORT=" + proc.Port,
		"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + ports[0], "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + proc.OtherPort, "RUNTIME_ROOT=.",
		"RUNTIME_SUBDIRECTORY=", "RUNTIME_APPDIRECTORY=.", "RUNTIME_WATCH_ROOT=false", "USE_STATSD=false", "USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:" + ports[1], "LOG_LEVEL=error",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
	}, more...)
	server, err := proc.Start(ctx, map[string]string{"domains.yaml": config}, "env", append(arguments, program)...)
	if err != nil {
		return nil, "", err
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		response, err := http.Get("http://" + server.Addr + "/healthcheck") //nolint:noctx // a local one
		if err == nil {
			_ = response.Body.Close()
			return server, target, nil
		}
	}
	return server, target, errors.New("the reference service does not answer")
}

// request asks for a client.
func request(key int) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "bench", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprintf("user-%08d", key)}},
	}}}
}
