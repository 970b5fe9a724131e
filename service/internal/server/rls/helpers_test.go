package rls_test

import (
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

const ok, over = pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT

// parsed are documents as domains.
func parsed(t testing.TB, documents ...string) (list []*domains.Domain) {
	t.Helper()
	for _, text := range documents {
		d, warnings, err := domains.Parse("test.yaml", []byte(text))
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		list = append(list, d)
	}
	return list
}

// still is a clock that stands still, so that no window ends meanwhile.
func still() time.Time { return time.UnixMicro(1_790_000_000_000_000) }

// newService is a service of domains on a memory store.
func newService(t testing.TB, config rls.Config, documents ...string) *rls.Service {
	t.Helper()
	if config.Store == nil {
		config.Store = memstore.New(memstore.Config{Now: still})
	}
	s := must.Get(rls.New(config))(t)
	must.Do(t, s.Swap(parsed(t, documents...)))
	return s
}

// entries are a descriptor, as in a=b,c=d.
func entries(text string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// costing is a descriptor with a cost of its own, below 0 to give back.
func costing(text string, hits int64) *common.RateLimitDescriptor {
	d := entries(text)
	d.IsNegativeHits = hits < 0
	d.HitsAddend = wrapperspb.UInt64(uint64(max(hits, -hits)))
	return d
}

// limited is a descriptor with a limit of its own.
func limited(text string, requests uint32, unit typed.RateLimitUnit) *common.RateLimitDescriptor {
	d := entries(text)
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return d
}

// ask asks about descriptors of the domain d.
func ask(t testing.TB, s *rls.Service, list ...*common.RateLimitDescriptor) *pb.RateLimitResponse {
	t.Helper()
	response, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: list})
	if err != nil {
		t.Fatalf("%v: %v", status.Code(err), err)
	}
	if len(response.Statuses) != len(list) {
		t.Fatalf("%d statuses for %d descriptors", len(response.Statuses), len(list))
	}
	return response
}
