package main

import (
	"net"
	"net/http"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	configs "github.com/envoyproxy/go-control-plane/ratelimit/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/rls/xds"
)

// A plane answers what it is given, and nothing before.
type plane struct {
	configs.UnimplementedRateLimitConfigDiscoveryServiceServer
	answers chan *discovery.DiscoveryResponse
}

func (p *plane) StreamRlsConfigs(stream configs.RateLimitConfigDiscoveryService_StreamRlsConfigsServer) error {
	for {
		select {
		case answer := <-p.answers:
			if err := stream.Send(answer); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// The service is not ready while its control plane is unreachable, says nothing, or says nothing that is right. It is from
// the first configuration on, though that has no domains.
func TestNotReadyBeforeThePlane(t *testing.T) {
	t.Parallel()
	ready := func(url string) (int, string) { return get(t, url+"/actuator/health/readiness") }
	unreachable, log := start(t, "--grpc-listen", "127.0.0.1:0", "--envoy-xds-server", "127.0.0.1:1")
	eventually(t, "the control plane is unreachable", func() bool {
		return strings.Contains(log.String(), "the control plane of the domains is unreachable")
	})
	if status, text := ready(unreachable); status != http.StatusServiceUnavailable || !strings.Contains(text, `"domains":{"status":"DOWN"`) {
		t.Errorf("with an unreachable plane: %d %s", status, text)
	}

	ln := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	server, p := grpc.NewServer(), &plane{answers: make(chan *discovery.DiscoveryResponse)}
	configs.RegisterRateLimitConfigDiscoveryServiceServer(server, p)
	go func() { _ = server.Serve(ln) }() // until it is stopped
	t.Cleanup(server.Stop)
	url, log := start(t, "--grpc-listen", "127.0.0.1:0", "--envoy-xds-server", ln.Addr().String())
	if status, text := ready(url); status != http.StatusServiceUnavailable {
		t.Errorf("with a silent plane: %d %s", status, text)
	}
	p.answers <- &discovery.DiscoveryResponse{TypeUrl: "type.example/other"}
	awaitLog(t, log, "the domains are refused")
	if status, text := ready(url); status != http.StatusServiceUnavailable {
		t.Errorf("with a plane of another kind: %d %s", status, text)
	}
	p.answers <- &discovery.DiscoveryResponse{TypeUrl: xds.TypeURL}
	eventually(t, "the service is ready", func() bool {
		status, _ := ready(url)
		return status == http.StatusOK
	})
}
