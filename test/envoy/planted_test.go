package envoy_test

import (
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint/internal/must"
)

// sample is an answer with every field that the reference fills, and the exchange that it belongs to.
func sample(t *testing.T) (exchange, answer) {
	t.Helper()
	at := time.Unix(1_800_000_010, 100_000_000) // 10.1 s into a minute
	metadata := must.Get(structpb.NewStruct(map[string]any{
		"domain": "d", "quotaModeEnabled": false, "hitsAddend": 2.0, "descriptors": []any{
			map[string]any{"entries": []any{"a=b"}, "limit": "requests_per_unit:5  unit:MINUTE"},
		},
	}))(t)
	limit := &rls.RateLimitResponse_RateLimit{RequestsPerUnit: 5, Unit: rls.RateLimitResponse_RateLimit_MINUTE, Name: "n"}
	return exchange{before: at, after: at.Add(time.Second)}, answer{response: &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OVER_LIMIT,
		Statuses: []*rls.RateLimitResponse_DescriptorStatus{
			{Code: rls.RateLimitResponse_OK, LimitRemaining: 1<<32 - 1},
			{
				Code: rls.RateLimitResponse_OVER_LIMIT, CurrentLimit: limit, LimitRemaining: 1,
				DurationUntilReset: &durationpb.Duration{Seconds: 50},
			},
		},
		ResponseHeadersToAdd: []*core.HeaderValue{
			{Key: "RateLimit-Limit", Value: "5"}, {Key: "RateLimit-Remaining", Value: "1"}, {Key: resetHeader, Value: "50"},
		},
		DynamicMetadata: metadata,
	}}
}

// TestCompare plants one difference in an answer, in each field, and some that are none.
func TestCompare(t *testing.T) {
	type response = rls.RateLimitResponse
	for _, c := range []struct {
		name  string
		plant func(*response)
		want  string // the beginning of the difference that is found; none if it is empty
	}{
		{"nothing", func(*response) {}, ""},
		{"another second", func(r *response) { r.Statuses[1].DurationUntilReset.Seconds = 49 }, ""},
		{"another second in the header", func(r *response) { r.ResponseHeadersToAdd[2].Value = "49" }, ""},
		{"spaces", func(r *response) {
			first := r.DynamicMetadata.Fields["descriptors"].GetListValue().GetValues()[0].GetStructValue()
			first.Fields["limit"] = structpb.NewStringValue("requests_per_unit:5 unit:MINUTE")
		}, ""},

		{"overall code", func(r *response) { r.OverallCode = rls.RateLimitResponse_OK }, "overall_code: "},
		{"a status less", func(r *response) { r.Statuses = r.Statuses[:1] }, "statuses: "},
		{"a status more", func(r *response) { r.Statuses = append(r.Statuses, r.Statuses[0]) }, "statuses: "},
		{"code", func(r *response) { r.Statuses[1].Code = rls.RateLimitResponse_OK }, "statuses[1].code: "},
		{"remaining", func(r *response) { r.Statuses[1].LimitRemaining++ }, "statuses[1].limit_remaining: "},
		{"remaining of unlimited", func(r *response) { r.Statuses[0].LimitRemaining = 0 }, "statuses[0].limit_remaining: "},
		{"no limit", func(r *response) { r.Statuses[1].CurrentLimit = nil }, "statuses[1].current_limit: "},
		{"an empty limit", func(r *response) {
			r.Statuses[0].CurrentLimit = &rls.RateLimitResponse_RateLimit{}
		}, "statuses[0].current_limit: "},
		{"requests", func(r *response) { r.Statuses[1].CurrentLimit.RequestsPerUnit++ }, "statuses[1].current_limit: "},
		{"unit", func(r *response) { r.Statuses[1].CurrentLimit.Unit++ }, "statuses[1].current_limit: "},
		{"name", func(r *response) { r.Statuses[1].CurrentLimit.Name = "" }, "statuses[1].current_limit: "},
		{"multiplier", func(r *response) {
			r.Statuses[1].CurrentLimit.UnitMultiplier = wrapperspb.UInt32(1)
		}, "statuses[1].current_limit: "},
		{"no reset", func(r *response) { r.Statuses[1].DurationUntilReset = nil }, "statuses[1].duration_until_reset: "},
		{"a reset too early", func(r *response) {
			r.Statuses[1].DurationUntilReset.Seconds = 48
		}, "statuses[1].duration_until_reset: "},
		{"a reset too late", func(r *response) {
			r.Statuses[1].DurationUntilReset.Seconds = 51
		}, "statuses[1].duration_until_reset: "},
		{"a part of a second", func(r *response) {
			r.Statuses[1].DurationUntilReset.Nanos = 1
		}, "statuses[1].duration_until_reset: "},
		{"a reset of nothing", func(r *response) {
			r.Statuses[0].DurationUntilReset = &durationpb.Duration{Seconds: 50}
		}, "statuses[0].duration_until_reset: "},
		{"quota of a status", func(r *response) {
			r.Statuses[1].Quota = &rls.RateLimitResponse_Quota{Requests: 1}
		}, "statuses[1].quota: "},
		{"no header", func(r *response) { r.ResponseHeadersToAdd = nil }, "response_headers_to_add: "},
		{"a header less", func(r *response) {
			r.ResponseHeadersToAdd = r.ResponseHeadersToAdd[:2]
		}, "response_headers_to_add: "},
		{"another order", func(r *response) {
			h := r.ResponseHeadersToAdd
			h[0], h[1] = h[1], h[0]
		}, "response_headers_to_add: "},
		{"another header", func(r *response) { r.ResponseHeadersToAdd[2].Key = "x" }, "response_headers_to_add: "},
		{"the header's value", func(r *response) { r.ResponseHeadersToAdd[1].Value = "0" }, "response_headers_to_add: "},
		{"the header's reset", func(r *response) { r.ResponseHeadersToAdd[2].Value = "48" }, "response_headers_to_add: "},
		{"the header's zeros", func(r *response) { r.ResponseHeadersToAdd[2].Value = "050" }, "response_headers_to_add: "},
		{"a header of the request", func(r *response) {
			r.RequestHeadersToAdd = r.ResponseHeadersToAdd
		}, "request_headers_to_add: "},
		{"a body", func(r *response) { r.RawBody = []byte("no") }, "raw_body: "},
		{"no metadata", func(r *response) { r.DynamicMetadata = nil }, "dynamic_metadata: "},
		{"a field of metadata", func(r *response) {
			r.DynamicMetadata.Fields["metadata"] = structpb.NewStringValue("")
		}, "dynamic_metadata: "},
		{"what is denied among those in shadow mode", func(r *response) {
			r.DynamicMetadata.Fields["shadowModeViolations"] = structpb.NewListValue(&structpb.ListValue{
				Values: []*structpb.Value{structpb.NewNumberValue(1)},
			})
		}, "dynamic_metadata: "},
		{"hits as text", func(r *response) {
			r.DynamicMetadata.Fields["hitsAddend"] = structpb.NewStringValue("2")
		}, "dynamic_metadata: "},
		{"quota", func(r *response) { r.Quota = &rls.RateLimitResponse_Quota{} }, "quota: "},
		{"an unknown field", func(r *response) { r.ProtoReflect().SetUnknown([]byte{0x98, 0x06, 0x01}) }, "the message: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, want := sample(t)
			got := answer{response: proto.CloneOf(want.response)}
			c.plant(got.response)
			found := strings.Join(e.compare(want, got), "\n")
			if c.want == "" && found != "" || c.want != "" && !strings.Contains("\n"+found, "\n"+c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// TestCompareErrors plants other statuses of gRPC.
func TestCompareErrors(t *testing.T) {
	e, fine := sample(t)
	invalid, failed := answer{err: status.Error(codes.InvalidArgument, "a")}, answer{err: status.Error(codes.Unknown, "b")}
	for _, c := range []struct {
		want, got answer
		differ    bool
	}{
		{invalid, answer{err: status.Error(codes.InvalidArgument, "another text")}, false},
		{invalid, failed, true},
		{invalid, fine, true},
		{fine, invalid, true},
	} {
		if found := e.compare(c.want, c.got); len(found) > 0 != c.differ {
			t.Errorf("want %v, got %v: %q", show(c.want), show(c.got), found)
		}
	}
}

// TestPlanted lets the reference stand on both sides. Nothing is found until a difference is planted: in the answers, in
// the environment of one side, or by expecting the differences that are meant, which it does not make.
func TestPlanted(t *testing.T) {
	const requests = 1000
	every := func(plant func(*rls.RateLimitResponse_DescriptorStatus)) func(*rls.RateLimitResponse) {
		return func(response *rls.RateLimitResponse) {
			for _, one := range response.GetStatuses() {
				plant(one)
			}
		}
	}
	for _, c := range []struct {
		name        string
		environment []string // of the subject
		plant       func(*rls.RateLimitResponse)
		meant       bool
		want        string // what a difference begins with; none if it is empty
	}{
		{name: "nothing"},
		{name: "the names of counters", environment: []string{"CACHE_KEY_PREFIX=x"}},
		{name: "the meant ones", meant: true, want: "meant: "},
		{
			name: "denied requests", environment: []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"},
			want: "limit_remaining: ",
		},
		{name: "shadow", environment: []string{"SHADOW_MODE=true"}, want: "overall_code: want OVER_LIMIT, got OK"},
		{name: "quota", environment: []string{"QUOTA_MODE=true"}, want: "code: want OVER_LIMIT, got OK"},
		{name: "no headers", environment: []string{"LIMIT_RESPONSE_HEADERS_ENABLED=false"}, want: "response_headers_to_add: "},
		{name: "a header", environment: []string{"LIMIT_RESET_HEADER=x"}, want: "response_headers_to_add: "},
		{name: "no metadata", environment: []string{"RESPONSE_DYNAMIC_METADATA=false"}, want: "dynamic_metadata: "},
		{name: "what is left", want: "limit_remaining: ", plant: every(func(one *rls.RateLimitResponse_DescriptorStatus) {
			if one.GetLimitRemaining() == 3 {
				one.LimitRemaining--
			}
		})},
		{name: "a late reset", want: "duration_until_reset: ", plant: every(func(one *rls.RateLimitResponse_DescriptorStatus) {
			if one.GetDurationUntilReset() != nil {
				one.DurationUntilReset.Seconds++
			}
		})},
		{name: "a unit", want: "current_limit: ", plant: every(func(one *rls.RateLimitResponse_DescriptorStatus) {
			if one.GetCurrentLimit().GetUnit() == rls.RateLimitResponse_RateLimit_WEEK {
				one.CurrentLimit.Unit = rls.RateLimitResponse_RateLimit_MONTH
			}
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := variant{first: 9000, domains: 50}
			compared := drawComparison(1, v, true)
			compared.meant, compared.plant = c.meant, c.plant
			root, ports := files(t, configuration(v, compared.domains, requests)), freePorts(t, 6)
			compared.reference = start(t, "the reference", programs.reference, ports[:3], root, nil)
			compared.subject = start(t, "the reference", programs.reference, ports[3:], root, c.environment)
			untilReady(t, compared.reference, compared.subject)
			compared.send(t.Context(), requests)
			found := strings.Join(compared.found, "\n")
			if c.want == "" && found != "" || !strings.Contains(found, c.want) {
				t.Errorf("%d differences, want %q:\n%.2000s", len(compared.found), c.want, found)
			}
		})
	}
}
