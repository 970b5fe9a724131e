package envoy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xdsserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/ratelimit/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// A gateway is what Envoy Gateway is for its rate limit service: a control plane that asks for certificates.
type gateway struct {
	t       *testing.T
	cache   cache.SnapshotCache
	address string
	version int
}

// A secured is what a gateway and its rate limit service know each other by.
type secured struct {
	*testredis.Authority
	trusted *x509.CertPool
}

// newSecureGateway starts a gateway with certificates.
func newSecureGateway(t *testing.T) (*gateway, secured) {
	t.Helper()
	authority := testredis.NewAuthority(t)
	pair := must.Get(tls.LoadX509KeyPair(authority.Issue(t, "envoy-gateway")))(t)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(must.Get(os.ReadFile(authority.CAFile))(t))
	secure := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	g := &gateway{t: t, cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil)}
	ln := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	g.address = ln.Addr().String()
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(secure)))
	discovery.RegisterRateLimitConfigDiscoveryServiceServer(server, xdsserver.NewServer(t.Context(), g.cache, nil))
	served := make(chan struct{})
	go func() {
		_ = server.Serve(ln) // until it is stopped
		close(served)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return g, secured{authority, trusted}
}

// service starts the subject with the environment that the gateway's Deployment has, and more, and connects to it.
func (g *gateway) service(t *testing.T, secure secured, more ...string) (*side, rls.RateLimitServiceClient) {
	t.Helper()
	subject := start(t, "the subject", programs.subject, freePorts(t, 3), t.TempDir(), append([]string{
		"RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false", "LOG_LEVEL=info",
		"USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL=" + g.address,
		"CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit", "GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + secure.CertFile,
		"GRPC_SERVER_TLS_KEY=" + secure.KeyFile, "GRPC_SERVER_TLS_CA_CERT=" + secure.CAFile,
		"CONFIG_GRPC_XDS_SERVER_USE_TLS=true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT=" + secure.CertFile,
		"CONFIG_GRPC_XDS_CLIENT_TLS_KEY=" + secure.KeyFile, "CONFIG_GRPC_XDS_SERVER_TLS_CACERT=" + secure.CAFile,
		"FORCE_START_WITHOUT_INITIAL_CONFIG=true", "REDIS_SOCKET_TYPE=tcp",
	}, more...))
	trust := credentials.NewTLS(&tls.Config{RootCAs: secure.trusted, MinVersion: tls.VersionTLS12})
	conn := must.Get(grpc.NewClient(subject.target, grpc.WithTransportCredentials(trust)))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return subject, rls.NewRateLimitServiceClient(conn)
}

// offers returns nil once the limit of the first status is of so many requests.
func offers(requests uint32, ask func() (*rls.RateLimitResponse, error)) func() error {
	return func() error {
		response, err := ask()
		if err == nil && response.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() != requests {
			err = fmt.Errorf("%v", response)
		}
		return err
	}
}

// fetch is what is served at a port of this machine.
func fetch(t *testing.T, port int, path string) string {
	t.Helper()
	response := must.Get(http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path)))(t) //nolint:noctx // of this machine
	text, err := io.ReadAll(response.Body)
	must.Do(t, errors.Join(err, response.Body.Close()))
	return string(text)
}

// put has the gateway offer a limit for each of several routes, in one version.
func (g *gateway) put(routes int, requests uint32) {
	g.t.Helper()
	g.version++
	given := &config.RateLimitConfig{Name: "http", Domain: "http"}
	for route := range routes {
		given.Descriptors = append(given.Descriptors, &config.RateLimitDescriptor{
			Key: fmt.Sprint("route-", route), RateLimit: &config.RateLimitPolicy{Unit: config.RateLimitUnit_YEAR, RequestsPerUnit: requests},
		})
	}
	g.offer(fmt.Sprint(g.version), given)
}

// offer has the gateway offer a configuration.
func (g *gateway) offer(version string, given *config.RateLimitConfig) {
	g.t.Helper()
	resources := map[resource.Type][]types.Resource{resource.RateLimitConfigType: {given}}
	snapshot := must.Get(cache.NewSnapshot(version, resources))(g.t)
	must.Do(g.t, g.cache.SetSnapshot(g.t.Context(), "envoy-ratelimit", snapshot))
}

// Envoy Gateway's Deployment runs with the image changed and nothing else: with its variables the program starts before
// there is a configuration, is healthy, limits by what the gateway says, and follows it under load without a request that
// fails or sees half of a configuration.
func TestEnvoyGateway(t *testing.T) {
	g, secure := newSecureGateway(t)
	metrics := freePorts(t, 1)[0]
	subject, client := g.service(t, secure, "USE_PROMETHEUS=true",
		fmt.Sprintf("PROMETHEUS_ADDR=127.0.0.1:%d", metrics), "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml")
	until(t, "the subject is healthy before it has a configuration", subject.ready)
	ask := func(route int, value string) func() (*rls.RateLimitResponse, error) {
		request := requestFor("http", entries(fmt.Sprint("route-", route), value))
		return func() (*rls.RateLimitResponse, error) { return client.ShouldRateLimit(t.Context(), request) }
	}

	const routes = 50
	g.put(routes, 2)
	until(t, "the subject limits by the gateway's configuration", offers(2, ask(0, "first")))
	for i, want := range []rls.RateLimitResponse_Code{okay, okay, overLimit} {
		response, err := ask(1, "second")()
		if err != nil || response.GetOverallCode() != want {
			t.Errorf("request %d: %v, %v, want %v", i, response, err, want)
		}
	}

	// Under load, each request sees one version: the limits of two routes are always equal.
	ctx, stop := context.WithCancel(t.Context())
	faults, asked := make(chan string, 1), make(chan int, 1)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			response, err := client.ShouldRateLimit(context.WithoutCancel(ctx), requestFor("http", entries("route-0", fmt.Sprint(n)), entries(fmt.Sprint("route-", routes-1), fmt.Sprint(n))))
			if err != nil || response.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() != response.GetStatuses()[1].GetCurrentLimit().GetRequestsPerUnit() {
				select {
				case faults <- fmt.Sprint(response, err):
				default:
				}
			}
		}
		asked <- n
	}()
	for requests := uint32(3); requests < 23; requests++ {
		g.put(routes, requests)
		until(t, "the next configuration is in force", offers(requests, ask(2, "third")))
	}
	stop()
	n := <-asked
	select {
	case fault := <-faults:
		t.Errorf("of %d requests while the configuration changed one has %s", n, fault)
	default:
		t.Logf("%d requests while the configuration changed 20 times", n)
	}

	const over = `ratelimit_service_rate_limit_over_limit{domain="http",key1="route-1",key2=""} 1`
	if page := fetch(t, metrics, "/metrics"); !strings.Contains(page, over) {
		t.Errorf("the metrics are\n%s", page)
	}
	if !strings.Contains(subject.output.String(), "GRPC_SERVER_TLS_CA_CERT") {
		t.Errorf("the log does not name the variable that has no effect:\n%s", subject.output)
	}
}
