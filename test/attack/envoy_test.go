package attack_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
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
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
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
			asked, _ := s.beside(t)
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

// beside asks as an innocent client while an attack lasts, and expects that each request is decided by the store. On a
// machine that has no time for the service a request may be refused since its turn did not come; that consumes nothing,
// and the client asks again, as it is told to.
func (s *service) beside(t *testing.T) (asked uint32, longest time.Duration) {
	t.Helper()
	client := s.caller(t, "127.0.5.1")
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
	ctx, stop := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	var made atomic.Int64
	for i := range 64 {
		crowd.Go(func() {
			for ctx.Err() == nil {
				s.halfSend(ctx, fmt.Sprintf("127.0.6.%d", 1+i%4), &made)
			}
		})
	}
	await(t, "the attack has begun", func() bool { return made.Load() > 64 })
	asked, _ := s.beside(t)
	stop()
	crowd.Wait()
	memory := s.resident(t, "VmHWM")
	t.Logf("half-sent messages: %d; innocent: %d, each decided; %d MiB", made.Load(), asked, memory>>20)
	if memory > 512<<20 {
		t.Errorf("the service has %d MiB", memory>>20)
	}
}

// halfSend begins as many calls on a connection as may be, with all but the end of the longest message, until the
// service ends the connection.
func (s *service) halfSend(ctx context.Context, address string, made *atomic.Int64) {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := from.DialContext(ctx, "tcp", s.grpc)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	go func() { _, _ = io.Copy(io.Discard, conn) }() // whatever it is told
	var fields bytes.Buffer
	encoder := hpack.NewEncoder(&fields)
	for _, field := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", rls.RateLimitService_ShouldRateLimit_FullMethodName},
		{":authority", "s"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true}) // the same bytes each time
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return
	}
	framer := http2.NewFramer(conn, nil)
	err = framer.WriteSettings()
	const frame = 16 << 10
	begin := append([]byte{0, 0, 0, 0xff, 0xff}, make([]byte, frame-5)...) // a message of 64 KiB
	for stream := uint32(1); err == nil && ctx.Err() == nil; stream += 2 {
		err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: fields.Bytes(), EndHeaders: true})
		for part := 0; err == nil && part < 3; part++ {
			err = framer.WriteData(stream, false, begin)
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
