package attack_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint/internal/must"
)

// domain has a limit for the innocent client, and what attackers can make the service keep something for.
const domain = `
domain: d
descriptors:
  - {key: innocent, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: place, rate_limit: {algorithm: concurrency, requests_per_unit: 10000}}
  - {key: a, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
`

// caller is a client of the gRPC listener from an address.
func (s *service) caller(t *testing.T, address net.Addr) rls.RateLimitServiceClient {
	t.Helper()
	from := &net.Dialer{LocalAddr: address}
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

// streamOf is a descriptor of a stream's beginning or end.
func streamOf(key, entry, id string) *common.RateLimitDescriptor {
	d := descriptor(key, "x")
	d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: entry, Value: id})
	d.HitsAddend = wrapperspb.UInt64(1)
	return d
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
			return envoyRequest(descriptor("a", strings.Repeat("x", 60_000)+fmt.Sprint(n)))
		}, false},
		{"bad requests", 256, func(int64) *rls.RateLimitRequest { return envoyRequest(descriptor("", "")) }, false},
		{"streams that never end", 256, func(n int64) *rls.RateLimitRequest {
			return envoyRequest(streamOf("place", "stint_reserve", fmt.Sprint(n)))
		}, false},
		{"ends of no stream", 256, func(n int64) *rls.RateLimitRequest {
			return envoyRequest(streamOf("a", "stint_commit", fmt.Sprint(n)))
		}, false},
		{"calls given up", 256, func(int64) *rls.RateLimitRequest { return envoyRequest(descriptor("a", "x")) }, true},
	} {
		t.Run(attack.name, func(t *testing.T) {
			s := startService(t)
			var made atomic.Int64
			clients := make(chan rls.RateLimitServiceClient, attack.callers) // that nobody uses just now
			for i := range attack.callers {
				clients <- s.caller(t, addressOf(i, 4))
			}
			stop := attackBy(t, attack.callers, 1, func(ctx context.Context, _ net.Addr) {
				client := <-clients
				call, cancel := context.WithCancel(ctx)
				if attack.cancel {
					go cancel()
				}
				_, _ = client.ShouldRateLimit(call, attack.request(made.Add(1))) // whatever it is told
				cancel()
				clients <- client
			})
			await(t, "the attack has begun", func() bool { return made.Load() > int64(attack.callers) })
			asked, _ := s.beside(t)
			stop()
			memory := s.resident(t, "VmHWM")
			t.Logf("attackers: %d calls; innocent: %d, each decided; %d MiB", made.Load(), asked, memory>>20)
			const most = 1 << 30
			if memory > most {
				t.Errorf("the service has %d MiB", memory>>20)
			}
			s.expectReachable(t)
			if lines := strings.Count(s.Log(), "\n"); lines > 40+int(lasting.Seconds()) {
				t.Errorf("%d lines of the log:\n%s", lines, s.Log())
			}
		})
	}
}

// beside asks as an innocent client while an attack lasts, and expects that each request is decided by the store. On a
// machine that has no time for the service a request may be refused since its turn did not come; that consumes nothing,
// and the client asks again, as it is told to.
func (s *service) beside(t *testing.T) (asked uint32, longest time.Duration) {
	t.Helper()
	client := s.caller(t, innocentAddress)
	for until := time.Now().Add(*lasting); time.Now().Before(until); asked++ {
		begun := time.Now()
		call, cancel := context.WithTimeout(t.Context(), patience)
		response, err := client.ShouldRateLimit(call, envoyRequest(descriptor("innocent", "x")))
		cancel()
		longest = max(longest, time.Since(begun))
		for status.Code(err) == codes.ResourceExhausted && time.Since(begun) < patience {
			response, err = client.ShouldRateLimit(t.Context(), envoyRequest(descriptor("innocent", "x")))
		}
		if err != nil || response.GetStatuses()[0].GetLimitRemaining() != 1_000_000-asked-1 {
			t.Fatalf("request %d of the innocent client: %v, %v", asked, response, err)
		}
	}
	return asked, longest
}

// TestHalfSentMessages attacks the gRPC listener with calls whose messages do not come whole, on many connections, while
// an innocent client asks.
func TestHalfSentMessages(t *testing.T) {
	s := startService(t)
	var made atomic.Int64
	stop := attackBy(t, 64, 4, func(ctx context.Context, from net.Addr) {
		over(ctx, from, s.grpc, func(conn net.Conn) { halfSend(ctx, conn, &made) })
	})
	await(t, "the attack has begun", func() bool { return made.Load() > 64 })
	asked, _ := s.beside(t)
	stop()
	memory := s.resident(t, "VmHWM")
	t.Logf("half-sent messages: %d; innocent: %d, each decided; %d MiB", made.Load(), asked, memory>>20)
	if memory > 512<<20 {
		t.Errorf("the service has %d MiB", memory>>20)
	}
}

// halfSend begins as many calls on a connection as may be, with all but the end of the longest message, until the
// service ends the connection.
func halfSend(ctx context.Context, conn net.Conn, made *atomic.Int64) {
	w, err := open(conn)
	const frame = 16 << 10
	begin := append([]byte{0, 0, 0, 0xff, 0xff}, make([]byte, frame-5)...) // a message of 64 KiB
	for err == nil && ctx.Err() == nil {
		err = w.call(rls.RateLimitService_ShouldRateLimit_FullMethodName, nil)
		for part := 0; err == nil && part < 3; part++ {
			err = w.WriteData(w.stream-1, false, begin)
		}
		made.Add(1)
	}
}

// writeDomain puts the domain into a folder, and returns the file.
func writeDomain(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "domain.yaml")
	must.Do(t, os.WriteFile(name, []byte(domain), 0o600))
	return name
}
