package rls_test

import (
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// Whatever bytes come, there is an answer or a code, and the answer is whole.
func FuzzRequest(f *testing.F) {
	for _, r := range []*pb.RateLimitRequest{
		{},
		{Domain: "d"},
		{Domain: "d", Descriptors: of(entries("a=1"), entries("b=x1"), entries("q=1"), entries("r=1"), entries("ban=1"))},
		{Domain: "d", HitsAddend: 3, Descriptors: of(costing("a=1", 0), costing("a=1", -2), costing("t=1", 1<<40))},
		{Domain: "d", Descriptors: of(limited("a=1", 2, typed.RateLimitUnit_MONTH), limited("a=1", 0, 0))},
	} {
		text := must.Get(proto.Marshal(r))(f)
		f.Add(text)
	}
	const config = `
domain: d
descriptors:
  - {key: a, value_to_metric: true, ` + years + `3}}
  - {key: b, value: "x*", share_threshold: true, detailed_metric: true, ` + years + `3, name: n}}
  - {key: q, quota_mode: true, ` + years + `1}}
  - {key: r, quota_mode: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: n}]}}
  - {key: t, metadata: {x: [1, {y: z}]}, rate_limit: {unit: minute, requests_per_unit: 9, algorithm: token_bucket}}
  - {key: ban, ` + years + `0}}
`
	both := []*rls.Service{
		newService(f, rls.Config{Metadata: true, Headers: rls.Headers{Limit: "L", Remaining: "R", Reset: "S"}}, config),
		newService(f, rls.Config{Accounting: domains.Reference, KeepDenied: true, Quota: true}, config),
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &pb.RateLimitRequest{}
		if proto.Unmarshal(text, r) != nil {
			return
		}
		for _, s := range both {
			response, err := s.ShouldRateLimit(t.Context(), r)
			if err != nil {
				if code := status.Code(err); code != codes.InvalidArgument {
					t.Fatalf("%v: %v", r, err)
				}
				continue
			}
			if len(response.Statuses) != len(r.Descriptors) {
				t.Fatalf("%v: %v", r, response)
			}
			for _, one := range response.Statuses {
				if limit := one.CurrentLimit; limit != nil && one.LimitRemaining > limit.RequestsPerUnit || one.Code == 0 {
					t.Fatalf("%v: %v", r, response)
				}
			}
			if _, err := proto.Marshal(response); err != nil {
				t.Fatalf("%v: %v", r, err)
			}
		}
	})
}
