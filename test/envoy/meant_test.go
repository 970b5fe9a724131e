package envoy_test

import (
	"slices"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stint-go/stint/internal/must"
)

// TestMeant: the differences that are meant apply where they have to, and nowhere else.
func TestMeant(t *testing.T) {
	valid := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "a"}}}
	noKey := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "a"}, {Value: "b"}}}
	noEntries := &common.RateLimitDescriptor{}
	request := func(domain string, descriptors ...*common.RateLimitDescriptor) *rls.RateLimitRequest {
		return &rls.RateLimitRequest{Domain: domain, Descriptors: descriptors}
	}
	failed := func(text string) answer { return answer{err: status.Error(codes.Unknown, text)} }

	// Statuses: the limit's name, none, over the quota q, or over another limit.
	answered := func(kinds ...string) answer {
		response, over := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}, []any{}
		for i, kind := range kinds {
			one := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK}
			if kind != "none" {
				one.CurrentLimit = &rls.RateLimitResponse_RateLimit{Unit: rls.RateLimitResponse_RateLimit_MINUTE, Name: kind[:2]}
			}
			switch kind {
			case "q1 over", "n1 by QUOTA_MODE":
				over = append(over, i)
			case "n1 over":
				one.Code, response.OverallCode = rls.RateLimitResponse_OVER_LIMIT, rls.RateLimitResponse_OVER_LIMIT
			}
			response.Statuses = append(response.Statuses, one)
		}
		if len(over) > 0 {
			metadata := must.Get(structpb.NewStruct(map[string]any{"quotaModeViolations": over}))(t)
			response.DynamicMetadata = metadata
		}
		return answer{response: response}
	}
	fine := request("d", valid)
	const invalid, descriptor = "an invalid request", "an invalid descriptor"
	const unloaded, away = "no configuration", "Redis is unreachable"
	const bad, unavailable, late = codes.InvalidArgument, codes.Unavailable, codes.DeadlineExceeded
	const reset, all = "the reset of a quota", "all quotas are over"
	quota, shadow := variant{quota: true}, variant{shadow: true}
	for _, c := range []struct {
		name      string
		variant   variant
		request   *rls.RateLimitRequest
		reference answer
		code      codes.Code
		over      bool
		names     []string
	}{
		{"valid", variant{}, fine, answered("n1"), codes.OK, false, nil},
		{"no domain", variant{}, request("", valid), failed("empty"), bad, false, []string{invalid}},
		{"no descriptors", variant{}, request("d"), failed("empty"), bad, false, []string{invalid}},
		{"no key", variant{}, request("d", valid, noKey), answered("n1", "none"), bad, false, []string{descriptor}},
		{"no entries", variant{}, request("d", noEntries), answered("none"), bad, false, []string{descriptor}},
		{"no configuration", variant{}, fine, failed(noConfiguration), unavailable, false, []string{unloaded}},
		{"no Redis", variant{}, fine, failed("dial tcp"), unavailable, false, []string{away}},
		{"another status", variant{}, fine, answer{err: status.Error(late, "")}, late, false, nil},

		{"over", variant{}, fine, answered("n1 over", "q1"), codes.OK, true, nil},
		{"no quota", variant{}, fine, answered("n1", "none"), codes.OK, false, nil},
		{"a quota", variant{}, fine, answered("q1", "none"), codes.OK, false, nil},
		{"the only quota", variant{}, fine, answered("q1 over"), codes.OK, true, []string{reset, all}},
		{"one quota beside a limit", variant{}, fine, answered("n1", "q1 over", "none"), codes.OK, true, []string{reset, all}},
		{"the only quota, and a limit", variant{}, fine, answered("q1 over", "n1 over"), codes.OK, true, []string{reset}},
		{"one of two quotas", variant{}, fine, answered("q1 over", "q2"), codes.OK, false, []string{reset}},
		{"both quotas", variant{}, fine, answered("q1 over", "q1 over"), codes.OK, true, []string{reset, all}},
		{"both quotas in shadow", shadow, fine, answered("q1 over", "q1 over"), codes.OK, false, []string{reset}},
		{"all, with QUOTA_MODE", quota, fine, answered("n1 by QUOTA_MODE", "q1 over"), codes.OK, true, []string{reset, all}},
		{"one, with QUOTA_MODE", quota, fine, answered("n1 by QUOTA_MODE", "n2"), codes.OK, false, []string{reset}},
		{"beside none, with QUOTA_MODE", quota, fine, answered("q1 over", "none"), codes.OK, false, []string{reset}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := exchange{variant: c.variant, request: c.request, before: time.Unix(1_800_000_010, 0)}
			before := show(c.reference)
			want, names := e.expect(c.reference)
			if status.Code(want.err) != c.code || !slices.Equal(names, c.names) {
				t.Errorf("got %v by %q, want %v by %q", show(want), names, c.code, c.names)
			}
			if got := want.response.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT; got != c.over {
				t.Errorf("got %v", show(want))
			}
			for _, i := range violations(want.response) {
				if got := want.response.GetStatuses()[i].GetDurationUntilReset().GetSeconds(); got != 50 {
					t.Errorf("the reset of status %d is in %d s, not in 50", i, got)
				}
			}
			if after := show(c.reference); after != before {
				t.Errorf("the reference's answer was changed from %v to %v", before, after)
			}
		})
	}
}
