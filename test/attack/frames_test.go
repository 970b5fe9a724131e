package attack_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

const (
	// moreMemory is how much more memory an attack may cost.
	moreMemory = 256 << 20
	// late is how long an innocent client's answer may take beside an attack.
	late = time.Second
)

// A wire is an attacker's connection of HTTP/2. What is written leaves at times, or with [wire.flush].
type wire struct {
	*http2.Framer
	out    *bufio.Writer
	fields bytes.Buffer
	encode *hpack.Encoder
	stream uint32
}

// open begins a connection, of which nothing is read but to discard it.
func open(conn net.Conn, settings ...http2.Setting) (*wire, error) {
	go func() { _, _ = io.Copy(io.Discard, conn) }() // whatever it is told
	w := &wire{out: bufio.NewWriterSize(conn, 16<<10)}
	w.Framer, w.encode = http2.NewFramer(w.out, nil), hpack.NewEncoder(&w.fields)
	w.AllowIllegalWrites = true
	if _, err := io.WriteString(w.out, http2.ClientPreface); err != nil {
		return nil, err
	}
	if err := w.WriteSettings(settings...); err != nil {
		return nil, err
	}
	return w, w.out.Flush()
}

// call begins a call of gRPC, with a message unless it is nil.
func (w *wire) call(method string, message []byte, more ...string) error {
	w.stream += 2
	w.fields.Reset()
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "s", "content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = w.encode.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // into memory
	}
	err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.stream - 1, BlockFragment: w.fields.Bytes(), EndHeaders: true})
	if err == nil && message != nil {
		err = w.WriteData(w.stream-1, true, append([]byte{0, byte(len(message) >> 24), byte(len(message) >> 16), byte(len(message) >> 8), byte(len(message))}, message...))
	}
	return err
}

// A frameAttack is what attackers do on their connections.
type frameAttack struct {
	name        string
	connections int
	// settings begin a connection. each is what follows, again and again, n times so far.
	settings []http2.Setting
	each     func(w *wire, n int) error
	// pause is after each; 0 is none. Unless calls is 0, a connection stays as it is after so many times, and no other
	// takes its place.
	pause time.Duration
	calls int
	https bool // on the public listener, over TLS
}

func encoded(t *testing.T, m proto.Message) []byte {
	t.Helper()
	return must.Get(proto.Marshal(m))(t)
}

// frameAttacks are those of which none comes through a client library.
func frameAttacks(t *testing.T) []frameAttack {
	t.Helper()
	whole := envoyRequest()
	for range 128 {
		whole.Descriptors = append(whole.Descriptors, descriptor("a", "x"))
	}
	wide := encoded(t, whole)
	symbol := encoded(t, &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "envoy.service.ratelimit.v3.RateLimitService"}})
	noWindow := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}
	attacks := []frameAttack{
		{name: "refused calls with long timeouts", connections: 4, each: func(w *wire, _ int) error {
			return w.call(healthpb.Health_Watch_FullMethodName, []byte{}, "grpc-timeout", "99999999H")
		}},
		{name: "answers that nobody reads", connections: 100, settings: noWindow, calls: 256, each: func(w *wire, _ int) error {
			return w.call(rls.RateLimitService_ShouldRateLimit_FullMethodName, wide)
		}},
		{name: "header fields that do not end", connections: 64, each: func(w *wire, n int) error {
			w.fields.Reset()
			_ = w.encode.WriteField(hpack.HeaderField{Name: fmt.Sprint("x-", n), Value: strings.Repeat("v", 15_000), Sensitive: true}) // into memory
			if n == 0 {
				return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.fields.Bytes()})
			}
			return w.WriteContinuation(1, false, w.fields.Bytes())
		}},
		{name: "reflection", connections: 64, settings: noWindow, calls: 256, each: func(w *wire, _ int) error {
			return w.call(reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName, symbol)
		}},
		{name: "half messages on 2500 connections", connections: 2500, pause: time.Second, each: func(w *wire, _ int) error {
			err := w.call(rls.RateLimitService_ShouldRateLimit_FullMethodName, nil)
			if err == nil {
				err = w.WriteData(w.stream-1, false, []byte{0, 0, 0, 0, 50, 1})
			}
			return err
		}},
		{name: "watches", connections: 300, calls: 100, each: func(w *wire, _ int) error {
			return w.call(healthpb.Health_Watch_FullMethodName, []byte{})
		}},
	}
	for _, https := range []bool{false, true} {
		on := "gRPC"
		if https {
			on = "HTTPS"
		}
		for name, each := range map[string]func(w *wire, n int) error{
			"PING":          func(w *wire, _ int) error { return w.WritePing(false, [8]byte{}) },
			"SETTINGS":      func(w *wire, _ int) error { return w.WriteSettings() },
			"WINDOW_UPDATE": func(w *wire, _ int) error { return w.WriteWindowUpdate(0, 1) },
			"RST_STREAM": func(w *wire, _ int) error { // rapid resets, CVE-2023-44487
				if err := w.call(rls.RateLimitService_ShouldRateLimit_FullMethodName, wide); err != nil {
					return err
				}
				return w.WriteRSTStream(w.stream-1, http2.ErrCodeCancel)
			},
			"PRIORITY": func(w *wire, n int) error {
				return w.WritePriority(uint32(2*n+1), http2.PriorityParam{Weight: 1})
			},
			"empty DATA": func(w *wire, n int) error {
				if n == 0 {
					return w.call(rls.RateLimitService_ShouldRateLimit_FullMethodName, nil)
				}
				return w.WriteData(1, false, nil)
			},
		} {
			attacks = append(attacks, frameAttack{name: on + ", " + name, connections: 128, each: each, https: https})
		}
	}
	return attacks
}

// TestFrames attacks the gRPC listener, and the public one over TLS, with frames of HTTP/2 beside an innocent client, of
// which no request is refused. The service's memory stays bounded.
func TestFrames(t *testing.T) {
	for _, attack := range frameAttacks(t) {
		t.Run(attack.name, func(t *testing.T) {
			var arguments []string
			var roots *x509.CertPool
			if attack.https {
				authority := testredis.NewAuthority(t)
				cert, key := authority.Issue(t, "service")
				arguments = []string{"--tls-cert-file", cert, "--tls-key-file", key}
				roots = trusted(t, authority.CAFile)
			}
			s := startService(t, arguments...)
			before := s.resident(t, "VmRSS")
			var client *http.Client
			if attack.https {
				client = s.browser(t, roots)
			}
			var made, opened, settled atomic.Int64
			stop := attackBy(t, attack.connections, 4, func(ctx context.Context, from net.Addr) {
				opened.Add(1)
				s.attackByFrames(ctx, attack, from, roots, &made)
				settled.Add(1)
				if attack.calls > 0 {
					<-ctx.Done() // what stays is closed by the context
				}
			})
			await(t, "the attack has begun", func() bool {
				return made.Load() >= int64(attack.connections) && (attack.calls == 0 || settled.Load() >= int64(attack.connections))
			})
			if attack.calls > 0 {
				s.calm(t) // so many calls keep the service busy; their answers are what matters
			}
			var asked uint32
			var longest time.Duration
			if attack.https {
				asked, longest = s.besideHTTPS(t, client)
			} else {
				asked, longest = s.beside(t)
			}
			stop()
			memory := s.resident(t, "VmHWM") - before
			t.Logf("attackers: %d times on %d connections; innocent: %d, each decided, the longest in %s; %d MiB more",
				made.Load(), opened.Load(), asked, longest, memory>>20)
			expectBounded(t, memory, longest)
		})
	}
}

// expectBounded expects that an attack cost no more than memory and time that it may cost.
func expectBounded(t *testing.T, memory int, longest time.Duration) {
	t.Helper()
	if memory > moreMemory {
		t.Errorf("the service has %d MiB more", memory>>20)
	}
	if *strict && longest > late {
		t.Errorf("an answer took %s", longest)
	}
}

// calm waits until calls are decided one after another.
func (s *service) calm(t *testing.T) {
	t.Helper()
	client, decided := s.caller(t, innocentAddress), 0
	await(t, "calls are decided", func() bool {
		if _, err := client.ShouldRateLimit(t.Context(), envoyRequest(descriptor("a", "calm"))); err != nil {
			decided = -1
		}
		decided++
		return decided == 100
	})
}

// trusted are the authorities of a file.
func trusted(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	text := must.Get(os.ReadFile(file))(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

// attackByFrames attacks over one connection, until it ends.
func (s *service) attackByFrames(ctx context.Context, attack frameAttack, from net.Addr, roots *x509.CertPool, made *atomic.Int64) {
	addr := s.grpc
	if attack.https {
		addr = s.addr
	}
	raw, err := (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	context.AfterFunc(ctx, func() { _ = raw.Close() })
	if socket, ok := raw.(*net.TCPConn); ok {
		_ = socket.SetWriteBuffer(64 << 10) // so that attackers wait for the service
	}
	if attack.calls == 0 {
		defer func() { _ = raw.Close() }()
	}
	conn := raw
	if attack.https {
		secure := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
		if secure.HandshakeContext(ctx) != nil {
			return
		}
		conn = secure
	}
	w, err := open(conn, attack.settings...)
	for n := 0; err == nil && ctx.Err() == nil; n++ {
		if attack.calls > 0 && n == attack.calls {
			_ = w.out.Flush() // or it has ended
			return            // the connection stays as it is
		}
		if err = attack.each(w, n); err == nil && attack.pause > 0 {
			if err = w.out.Flush(); err == nil {
				made.Add(1)
				select {
				case <-time.After(attack.pause):
				case <-ctx.Done():
				}
				continue
			}
		}
		made.Add(1)
	}
}

// browser is a client of the public listener over HTTP/2.
func (s *service) browser(t *testing.T, roots *x509.CertPool) *http.Client {
	t.Helper()
	transport := &http.Transport{
		DialContext:     (&net.Dialer{LocalAddr: innocentAddress}).DialContext,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// besideHTTPS asks as an innocent client while an attack lasts, and expects that each request is decided by the store.
func (s *service) besideHTTPS(t *testing.T, client *http.Client) (asked uint32, longest time.Duration) {
	t.Helper()
	for until := time.Now().Add(*lasting); time.Now().Before(until); asked++ {
		begun := time.Now()
		status, decision, err := check(client, "https://"+s.addr)
		longest = max(longest, time.Since(begun))
		if err != nil || status != http.StatusOK || decision.Remaining != 1_000_000-int64(asked)-1 {
			t.Fatalf("request %d of the innocent client: %d %v, %v", asked, status, decision, err)
		}
	}
	return asked, longest
}

// TestJSON attacks the rate limit service over HTTP with bodies that take much more memory when they are parsed, of the
// longest that are.
func TestJSON(t *testing.T) {
	s := startService(t)
	before := s.resident(t, "VmRSS")
	body := `{"domain":"d","descriptors":[{"entries":[` + strings.Repeat("{},", 21_000) + "{}]}]}"
	crowd := s.startCrowd(t, connections, strings.Replace(post("/json", body), "\r\n", "\r\nAuthorization: Bearer "+token+"\r\n", 1), attackers{})
	crowd.await(t)
	asked, longest := s.beside(t)
	made := crowd.stop()
	memory := s.resident(t, "VmHWM") - before
	t.Logf("attackers: %s; innocent: %d, each decided, the longest in %s; %d MiB more", made, asked, longest, memory>>20)
	expectBounded(t, memory, longest)
}
