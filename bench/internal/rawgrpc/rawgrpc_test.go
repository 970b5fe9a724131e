package rawgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stint-go/stint/bench/internal/rawgrpc"
)

// An echo answers with the domain and the number of bytes that it was asked for. A domain "bad" is an error, "wait" waits
// until the test ends it.
type echo struct {
	pb.UnimplementedRateLimitServiceServer
	waits chan struct{}
}

func (e echo) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	switch r.Domain {
	case "bad":
		return nil, status.Error(codes.InvalidArgument, "bad")
	case "wait":
		e.waits <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, RawBody: []byte(r.Domain)}, nil
}

// serve is a server with at most ten calls at once, and a connection to it.
func serve(t *testing.T) (*grpc.Server, *rawgrpc.Conn, echo) {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, service := grpc.NewServer(grpc.MaxConcurrentStreams(10)), echo{waits: make(chan struct{})}
	pb.RegisterRateLimitServiceServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	conn, err := rawgrpc.Dial(t.Context(), ln.Addr().String(), pb.RateLimitService_ShouldRateLimit_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return server, conn, service
}

func message(t *testing.T, domain string) []byte {
	t.Helper()
	text, err := proto.Marshal(&pb.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{{}}})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Each caller gets the answer to its own message, with more callers than calls, and more bytes than a window.
func TestInvoke(t *testing.T) {
	_, conn, _ := serve(t)
	var callers sync.WaitGroup
	for caller := range 64 {
		callers.Go(func() {
			call := rawgrpc.NewCall()
			for i := range 50 {
				domain := fmt.Sprint(caller, ".", i, strings.Repeat("x", 1000))
				answer, err := conn.Invoke(t.Context(), call, message(t, domain))
				var response pb.RateLimitResponse
				if err = errors.Join(err, proto.Unmarshal(answer, &response)); err != nil || string(response.RawBody) != domain {
					t.Errorf("caller %d, call %d: %v, %v", caller, i, &response, err)
					return
				}
			}
		})
	}
	callers.Wait()
}

func TestInvokeFails(t *testing.T) {
	server, conn, service := serve(t)
	call := rawgrpc.NewCall()
	if answer, err := conn.Invoke(t.Context(), call, message(t, "bad")); err == nil {
		t.Errorf("an error of the server: %v", answer)
	}
	if _, err := conn.Invoke(t.Context(), call, make([]byte, rawgrpc.MaxMessage)); err == nil || !strings.Contains(err.Error(), "allowed: 16379") {
		t.Errorf("a long message: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-service.waits
		cancel()
	}()
	if _, err := conn.Invoke(ctx, call, message(t, "wait")); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that is given up: %v", err)
	}
	if answer, err := conn.Invoke(t.Context(), call, message(t, "next")); err != nil || !strings.Contains(string(answer), "next") {
		t.Errorf("the next call: %q, %v", answer, err)
	}
	go func() {
		<-service.waits
		server.Stop()
	}()
	if _, err := conn.Invoke(t.Context(), call, message(t, "wait")); err == nil {
		t.Error("the server has stopped, and the call goes on")
	}
	if _, err := conn.Invoke(t.Context(), call, message(t, "next")); err == nil {
		t.Error("the server has stopped, and a call is answered")
	}
}
