package rls_test

import (
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"

	"github.com/stint-go/stint/service/internal/server/rls"
)

// A unit that is none is refused also when its last byte is a unit of which there is a limit already.
func TestOverrideOfAKnownUnitModulo256(t *testing.T) {
	s := newService(t, rls.Config{}, simple)
	ask(t, s, limited("a=1", 1, typed.RateLimitUnit_SECOND))
	fails(t, s, &pb.RateLimitRequest{Domain: "d", Descriptors: of(limited("a=1", 1, 257))}, codes.InvalidArgument, "limit.unit")
}
