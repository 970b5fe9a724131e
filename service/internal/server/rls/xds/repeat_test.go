package xds_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	configs "github.com/envoyproxy/go-control-plane/ratelimit/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/rls/xds"
)

// A hasty plane sends answers in turn, so many in all, and waits for nothing.
type hasty struct {
	configs.UnimplementedRateLimitConfigDiscoveryServiceServer
	answers []*discovery.DiscoveryResponse
	all     int
}

func (h *hasty) StreamRlsConfigs(stream configs.RateLimitConfigDiscoveryService_StreamRlsConfigsServer) error {
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				ended <- err
				return
			}
		}
	}()
	for i := range h.all {
		if err := stream.Send(h.answers[i%len(h.answers)]); err != nil {
			return err
		}
	}
	return <-ended
}

// answerOf is an answer with one limit, whose key may be empty, which is a fault.
func answerOf(t *testing.T, key string, requests uint32) *discovery.DiscoveryResponse {
	t.Helper()
	text := must.Get(proto.Marshal(limitOf("web", key, requests)))(t)
	return &discovery.DiscoveryResponse{TypeUrl: xds.TypeURL, Resources: []*anypb.Any{{TypeUrl: xds.TypeURL, Value: text}}}
}

// A plane that repeats itself is heard at a pace, and what it repeats is taken once.
func TestHastyPlane(t *testing.T) {
	const all = 1000
	good, other, bad, worse := answerOf(t, "a", 5), answerOf(t, "a", 6), answerOf(t, "", 5), answerOf(t, "", 6)
	worse.Resources[0].Value = []byte("no message")
	for name, test := range map[string]struct {
		answers        []*discovery.DiscoveryResponse
		taken, refused int
	}{
		"the same":            {[]*discovery.DiscoveryResponse{good}, 1, 0},
		"two in turn":         {[]*discovery.DiscoveryResponse{good, other}, all, 0},
		"the same refused":    {[]*discovery.DiscoveryResponse{bad}, 0, 1},
		"two refused in turn": {[]*discovery.DiscoveryResponse{bad, worse}, 0, all},
	} {
		t.Run(name, func(t *testing.T) {
			ln := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
			server := grpc.NewServer()
			configs.RegisterRateLimitConfigDiscoveryServiceServer(server, &hasty{answers: test.answers, all: all})
			serve(t, server, ln)
			var waited atomic.Int64
			k := &taker{}
			follow(t, xds.Config{Server: ln.Addr().String()}, k, func(ctx context.Context, d time.Duration) error {
				waited.Add(int64(d))
				return ctx.Err()
			})
			const pace = (all - 1) * 100 * time.Millisecond
			eventually(t, "all answers are heard, at a pace", func() bool {
				k.mu.Lock()
				defer k.mu.Unlock()
				return time.Duration(waited.Load()) >= pace && len(k.taken) >= test.taken && len(k.refused) >= test.refused
			})
			if len(k.taken) != test.taken || len(k.refused) != test.refused {
				t.Errorf("%d are taken, %d refused, want %d and %d", len(k.taken), len(k.refused), test.taken, test.refused)
			}
		})
	}
}
