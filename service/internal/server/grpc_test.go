package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// someDomains are one with a limit of two a year for each user.
func someDomains() []*domains.Domain {
	return []*domains.Domain{{Name: "d", Descriptors: []domains.Descriptor{{
		Key: "user", RateLimit: &domains.RateLimit{Unit: domains.Year, RequestsPerUnit: 2},
	}}}}
}

// runGRPC is run with a gRPC listener, whose target it returns.
func runGRPC(t *testing.T, change func(*server.Config)) (r *running, target string) {
	t.Helper()
	r = run(t, func(c *server.Config) {
		c.GRPCListen = "127.0.0.1:0"
		if change != nil {
			change(c)
		}
	})
	target = r.server.GRPCAddr().String()
	if network := r.server.GRPCAddr().Network(); network == "unix" {
		target = "unix:" + target
	}
	return r, target
}

func dial(t *testing.T, target string, secure credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(secure))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func userRequest(user string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{{
		Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: user}},
	}}}
}

func should(t *testing.T, conn *grpc.ClientConn, user string) (pb.RateLimitResponse_Code, error) {
	t.Helper()
	response, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), userRequest(user))
	return response.GetOverallCode(), err
}

// Envoy asks over a port and over a socket; both are counted as long as they are open.
func TestGRPC(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
		r, target := runGRPC(t, func(c *server.Config) { c.GRPCListen = listen })
		if err := r.server.RateLimit().Swap(someDomains()); err != nil {
			t.Fatal(err)
		}
		conn := dial(t, target, insecure.NewCredentials())
		for i, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
			if code, err := should(t, conn, "ann"); err != nil || code != want {
				t.Errorf("%s: request %d: %v, %v", listen, i, code, err)
			}
		}
		counted := func(want string) func() bool {
			return func() bool {
				return strings.Contains(r.get(api.PathMetrics).body, want+"\n")
			}
		}
		eventually(t, counted(`rate_limiter_connections{service="grpc"} 1`))
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, counted(`rate_limiter_connections{service="grpc"} 0`))
		if body := r.get(api.PathMetrics).body; !strings.Contains(body, `rate_limiter_requests_total{algorithm="FIXED_WINDOW",allowed="false"} 1`) {
			t.Errorf("one event is counted as all others are:\n%s", body)
		}
	}
}

func TestGRPCWithTLS(t *testing.T) {
	ours, others := testredis.NewAuthority(t), testredis.NewAuthority(t)
	client := func(authority *testredis.Authority, name string) credentials.TransportCredentials {
		text, err := os.ReadFile(ours.CAFile)
		if err != nil {
			t.Fatal(err)
		}
		config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		config.RootCAs.AppendCertsFromPEM(text)
		if authority != nil {
			cert, key := authority.Issue(t, name)
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		return credentials.NewTLS(config)
	}
	cert, key := ours.Issue(t, "service")
	for name, test := range map[string]struct {
		change func(*server.Config)
		client credentials.TransportCredentials
		code   codes.Code
	}{
		"TLS":                 {nil, client(nil, ""), codes.OK},
		"plain":               {nil, insecure.NewCredentials(), codes.Unavailable},
		"no certificate":      {func(c *server.Config) { c.GRPCTLS.ClientCAFile = ours.CAFile }, client(nil, ""), codes.Unavailable},
		"another authority's": {func(c *server.Config) { c.GRPCTLS.ClientCAFile = ours.CAFile }, client(others, "envoy"), codes.Unavailable},
		"a certificate":       {func(c *server.Config) { c.GRPCTLS.ClientCAFile = ours.CAFile }, client(ours, "envoy"), codes.OK},
		"the name": {func(c *server.Config) {
			c.GRPCTLS.ClientCAFile, c.GRPCClientName = ours.CAFile, "proxy-of-web"
		}, client(ours, "proxy-of-web"), codes.OK},
		"another name": {func(c *server.Config) {
			c.GRPCTLS.ClientCAFile, c.GRPCClientName = ours.CAFile, "proxy-of-web"
		}, client(ours, "proxy-of-mail"), codes.Unavailable},
	} {
		r, target := runGRPC(t, func(c *server.Config) {
			c.GRPCTLS = server.TLS{CertFile: cert, KeyFile: key}
			if test.change != nil {
				test.change(c)
			}
		})
		if err := r.server.RateLimit().Swap(someDomains()); err != nil {
			t.Fatal(err)
		}
		if _, err := should(t, dial(t, target, test.client), "ann"); status.Code(err) != test.code {
			t.Errorf("%s: %v, want %v", name, err, test.code)
		}
	}
}

// Health says what the service's own does, and watching it does not keep the service from ending.
func TestGRPCHealth(t *testing.T) {
	r, target := runGRPC(t, func(c *server.Config) { c.RateLimitLoads = 1 })
	conn := dial(t, target, insecure.NewCredentials())
	health := healthpb.NewHealthClient(conn)
	watch, err := health.Watch(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
	if err != nil {
		t.Fatal(err)
	}
	watched := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if said, err := watch.Recv(); err != nil || said.Status != want {
			t.Fatalf("health is %v, %v, want %v", said, err, want)
		}
	}
	watched(healthpb.HealthCheckResponse_NOT_SERVING)
	if _, err := should(t, conn, "ann"); status.Code(err) != codes.Unavailable {
		t.Errorf("without domains: %v", err)
	}
	if err := r.server.RateLimit().Swap(someDomains()); err != nil {
		t.Fatal(err)
	}
	watched(healthpb.HealthCheckResponse_SERVING)
	for _, name := range []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"} {
		said, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || said.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", name, said, err)
		}
	}
	if _, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nobody"}); status.Code(err) != codes.NotFound {
		t.Errorf("of an unknown service: %v", err)
	}

	list, err := reflectpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err == nil {
		err = list.Send(&reflectpb.ServerReflectionRequest{MessageRequest: &reflectpb.ServerReflectionRequest_ListServices{}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if said, err := list.Recv(); err != nil || !strings.Contains(fmt.Sprint(said), "envoy.service.ratelimit.v3.RateLimitService") {
		t.Errorf("reflection says %v, %v", said, err)
	}
	if err := list.CloseSend(); err != nil {
		t.Fatal(err)
	}
	r.stop()
	watched(healthpb.HealthCheckResponse_NOT_SERVING)
	if err := r.end(); err != nil {
		t.Errorf("the service ends with %v", err)
	}
}

// A request that is under way when the service ends is answered, and no request is lost: a client that is told to go
// makes no further one on that connection.
func TestGRPCDrain(t *testing.T) {
	r, target := runGRPC(t, nil)
	if err := r.server.RateLimit().Swap(someDomains()); err != nil {
		t.Fatal(err)
	}
	entered, goOn := make(chan struct{}), make(chan struct{})
	r.store.enter = func(context.Context) {
		entered <- struct{}{}
		<-goOn
	}
	conn := dial(t, target, insecure.NewCredentials())
	answered := make(chan error, 1)
	go func() {
		_, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(context.WithoutCancel(t.Context()), userRequest("ann"))
		answered <- err
	}()
	<-entered
	r.stop()
	goOn <- struct{}{}
	if err := <-answered; err != nil {
		t.Errorf("the request under way: %v", err)
	}
}

// What is too large is refused, and others go on.
func TestGRPCBounds(t *testing.T) {
	r, target := runGRPC(t, nil)
	if err := r.server.RateLimit().Swap(someDomains()); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, target, insecure.NewCredentials())
	if _, err := should(t, conn, strings.Repeat("x", 10<<20)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("10 MiB: %v", err)
	}
	if _, err := should(t, conn, strings.Repeat("x", 100<<10)); err != nil {
		t.Errorf("100 KiB: %v", err)
	}
}

// The rate limit service over HTTP needs what naming a key needs.
func TestRateLimitJSON(t *testing.T) {
	const body = `{"domain": "d", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}`
	ask := func(r *running, body string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.server.Addr().String()+"/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := r.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	r, _ := runGRPC(t, func(c *server.Config) { c.API.Tokens = []string{"a-token-of-many-letters"} })
	if got := ask(r, body); got != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got)
	}
	r, _ = runGRPC(t, func(c *server.Config) { c.API.Tokens, c.OpenJSON = []string{"a-token-of-many-letters"}, true })
	if got := ask(r, body); got != http.StatusServiceUnavailable {
		t.Errorf("without domains: %d", got)
	}
	if err := r.server.RateLimit().Swap(someDomains()); err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		body string
		want int
	}{{body, 200}, {body, 200}, {body, 429}, {`{"domain": "d"}`, 400}, {`{"domain": 1}`, 400}, {`{`, 400}, {``, 400}} {
		if got := ask(r, test.body); got != test.want {
			t.Errorf("request %d: %d, want %d", i, got, test.want)
		}
	}
	if got := r.get("/healthcheck"); got.status != http.StatusOK || got.body != "OK" {
		t.Errorf("/healthcheck: %d, %s", got.status, got.body)
	}
}
