package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/server"
)

// healthOf asks gRPC's health service for a name.
func healthOf(t *testing.T, conn *grpc.ClientConn, name string) (healthpb.HealthCheckResponse_ServingStatus, error) {
	t.Helper()
	answer, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
	return answer.GetStatus(), err
}

// Health is told under three names: not serving before domains were loaded, then serving, and not while the server
// drains. Who watches is told of each change, and does not hold up the drain.
func TestGRPCHealth(t *testing.T) {
	r := run(t, func(c *server.Config) {
		c.GRPCListen, c.RateLimitLoads, c.Drain.Delay = "127.0.0.1:0", 1, 500*time.Millisecond
		c.Drain.Timeout = patience // if it passes, Run says so
	})
	conn := r.dial()
	names := []string{"", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"}
	watches := make([]grpc.ServerStreamingClient[healthpb.HealthCheckResponse], len(names))
	watched := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for i, watch := range watches {
			if answer, err := watch.Recv(); err != nil || answer.Status != want {
				t.Errorf("who watches %q is told %v, %v; want %v", names[i], answer, err, want)
			}
		}
	}
	told := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		watched(want)
		for i := range names {
			if got, err := healthOf(t, conn, names[i]); err != nil || got != want {
				t.Errorf("%q is %v, %v; want %v", names[i], got, err, want)
			}
		}
	}
	for i, name := range names {
		var err error
		if watches[i], err = healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{Service: name}); err != nil {
			t.Fatal(err)
		}
	}
	told(healthpb.HealthCheckResponse_NOT_SERVING)
	if status := r.get("/healthcheck").status; status != http.StatusInternalServerError {
		t.Errorf("/healthcheck: %d", status)
	}
	r.load()
	told(healthpb.HealthCheckResponse_SERVING)
	if got := r.get("/healthcheck"); got.status != http.StatusOK || got.body != "OK" {
		t.Errorf("/healthcheck: %d %s", got.status, got.body)
	}
	if _, err := healthOf(t, conn, "other"); status.Code(err) != codes.NotFound {
		t.Errorf("another name: %v", err)
	}
	r.stop()
	watched(healthpb.HealthCheckResponse_NOT_SERVING)
	for _, name := range names { // who asks anew may find the listener closed by now
		if got, err := healthOf(t, conn, name); err == nil && got != healthpb.HealthCheckResponse_NOT_SERVING ||
			err != nil && status.Code(err) != codes.Unavailable {
			t.Errorf("%q is %v, %v while the server drains", name, got, err)
		}
	}
	for i, watch := range watches {
		if answer, err := watch.Recv(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("who watches %q is told %v, %v after the end", names[i], answer, err)
		}
	}
	if err := r.end(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// A server whose domains need not be loaded is ready without.
func TestGRPCHealthWithoutDomains(t *testing.T) {
	r := run(t, func(c *server.Config) { c.GRPCListen = "127.0.0.1:0" })
	if got, err := healthOf(t, r.dial(), "ratelimit"); err != nil || got != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := rate(t.Context(), r.dial(), "x"); status.Code(err) != codes.Unavailable {
		t.Errorf("a request without domains: %v", err)
	}
}

// With a store that is required and unreachable the service is not serving.
func TestGRPCHealthOfTheStore(t *testing.T) {
	var down atomic.Bool
	r := runGRPC(t, func(c *server.Config) {
		c.StoreRequired = true
		c.StoreHealth = func(context.Context) error {
			if down.Load() {
				return stint.ErrUnavailable
			}
			return nil
		}
	})
	conn := r.dial()
	for _, is := range []bool{false, true, false} {
		down.Store(is)
		want := map[bool]healthpb.HealthCheckResponse_ServingStatus{false: healthpb.HealthCheckResponse_SERVING, true: healthpb.HealthCheckResponse_NOT_SERVING}[is]
		eventually(t, func() bool {
			got, err := healthOf(t, conn, "ratelimit")
			return err == nil && got == want
		})
	}
}
