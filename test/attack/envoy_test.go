package attack_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// domain has a limit for the innocent client, and what attackers can make the service keep something for.
const domain = `
domain: d
descriptors:
  - {key: innocent, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: a, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
`

// caller is a client of the gRPC listener from an address.
func (s *service) caller(t *testing.T, address string) rls.RateLimitServiceClient {
	t.Helper()
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := grpc.NewClient("passthrough:///"+s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return from.DialContext(ctx, "tcp", addr) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return rls.NewRateLimitServiceClient(conn)
}

func envoyRequest(descriptors ...*common.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "d", Descriptors: descriptors}
}

func descriptor(key, value string) *common.RateLimitDescriptor {
	return &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}}
}

// TestEnvoy attacks the gRPC listener. A client with another address is answered by the store, each time, and the
// service's memory stays bounded.
func TestEnvoy(t *testing.T) {
	many := func(n int64, each func(i int64) *common.RateLimitDescriptor) *rls.RateLimitRequest {
		r := envoyRequest()
		for i := range int64(256) {
			r.Descriptors = append(r.Descriptors, each(256*n+i))
		}
		return r
	}
	for _, attack := range []struct {
		name    string
		callers int
		request func(n int64) *rls.RateLimitRequest
		cancel  bool // whether calls are given up at once
	}{
		{"a flood on one limit", 1000, func(int64) *rls.RateLimitRequest { return envoyRequest(descriptor("a", "x")) }, false},
		{"new names for statistics", 64, func(n int64) *rls.RateLimitRequest {
			return many(n, func(i int64) *common.RateLimitDescriptor { return descriptor("a", fmt.Sprint(i)) })
		}, false},
		{"new limits", 64, func(n int64) *rls.RateLimitRequest {
			return many(n, func(i int64) *common.RateLimitDescriptor {
				d := descriptor("b", fmt.Sprint(i%100))
				d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(i), Unit: typed.RateLimitUnit_YEAR}
				return d
			})
		}, false},
		{"unknown domains", 256, func(n int64) *rls.RateLimitRequest {
			r := envoyRequest(descriptor("a", "x"))
			r.Domain = fmt.Sprint("no", n)
			return r
		}, false},
		{"long values", 64, func(n int64) *rls.RateLimitRequest {
			return envoyRequest(descriptor("a", strings.Repeat("x", 200_000)+fmt.Sprint(n)))
		}, false},
		{"bad requests", 256, func(int64) *rls.RateLimitRequest { return envoyRequest(descriptor("", "")) }, false},
		{"calls given up", 256, func(int64) *rls.RateLimitRequest { return envoyRequest(descriptor("a", "x")) }, true},
	} {
		t.Run(attack.name, func(t *testing.T) {
			s := startService(t)
			ctx, stop := context.WithCancel(t.Context())
			var crowd sync.WaitGroup
			var made atomic.Int64
			for i := range attack.callers {
				client := s.caller(t, fmt.Sprintf("127.0.6.%d", 1+i%4))
				crowd.Go(func() {
					for ctx.Err() == nil {
						call, cancel := context.WithCancel(ctx)
						if attack.cancel {
							go cancel()
						}
						_, _ = client.ShouldRateLimit(call, attack.request(made.Add(1))) // whatever it is told
						cancel()
					}
				})
			}
			await(t, "the attack has begun", func() bool { return made.Load() > int64(attack.callers) })
			client, asked := s.caller(t, "127.0.5.1"), uint32(0)
			for until := time.Now().Add(*lasting); time.Now().Before(until); asked++ {
				call, cancel := context.WithTimeout(t.Context(), patience)
				response, err := client.ShouldRateLimit(call, envoyRequest(descriptor("innocent", "x")))
				cancel()
				if err != nil || response.GetStatuses()[0].GetLimitRemaining() != 1_000_000-asked-1 {
					t.Fatalf("request %d of the innocent client: %v, %v", asked, response, err)
				}
			}
			stop()
			crowd.Wait()
			memory := s.resident(t, "VmHWM")
			t.Logf("attackers: %d calls; innocent: %d, each decided; %d MiB", made.Load(), asked, memory>>20)
			const most = 1 << 30
			if memory > most {
				t.Errorf("the service has %d MiB", memory>>20)
			}
			if log := s.log(); strings.Contains(log, "unreachable") {
				t.Errorf("the store was called unreachable:\n%s", log)
			} else if lines := strings.Count(log, "\n"); lines > 40+int(lasting.Seconds()) {
				t.Errorf("%d lines of the log:\n%s", lines, log)
			}
		})
	}
}

// writeDomain puts the domain into a folder, and returns the file.
func writeDomain(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "domain.yaml")
	if err := os.WriteFile(name, []byte(domain), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
