package rls_test

import (
	"strconv"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/rls"
)

// Of the metadata of several limits the first of a name counts, as in the reference service.
func TestMetadataOfSeveral(t *testing.T) {
	s := newService(t, rls.Config{Metadata: true}, `
domain: d
descriptors:
  - {key: service_1, quota_mode: true, metadata: {service_with_quota: {name: service_1}, a: null}, `+years+`5}}
  - {key: service_2, quota_mode: true, metadata: {service_with_quota: {name: service_2}, a: 1, b: 2}, `+years+`5}}
`)
	for want, list := range map[string][]*common.RateLimitDescriptor{
		`service_with_quota:{name:service_1} a:null b:2`: of(costing("service_1=", 0), costing("service_2=", 0)),
		`service_with_quota:{name:service_2} a:1 b:2`:    of(costing("service_2=", 0), costing("service_1=", 0)),
	} {
		response := must.Get(s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: list}))(t)
		merged := response.DynamicMetadata.Fields["metadata"].GetStructValue().GetFields()
		name := merged["service_with_quota"].GetStructValue().GetFields()["name"].GetStringValue()
		_, null := merged["a"].GetKind().(*structpb.Value_NullValue)
		if !strings.Contains(want, "{name:"+name+"}") || null != strings.Contains(want, "a:null") || merged["b"].GetNumberValue() != 2 {
			t.Errorf("%v, want %s", merged, want)
		}
	}
}

// A descriptor that is over a limit in shadow mode is named, so that Envoy can tell the upstream; one that is denied
// or within its limit is not.
func TestMetadataOfShadowMode(t *testing.T) {
	s := newService(t, rls.Config{Metadata: true}, `
domain: d
descriptors:
  - {key: soft, shadow_mode: true, `+years+`1}}
  - {key: hard, `+years+`1}}
  - {key: wide, shadow_mode: true, `+years+`100}}
`)
	list := of(costing("wide=", 1), costing("hard=", 1), costing("soft=", 1))
	for _, want := range []string{"", "2"} {
		response := must.Get(s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: list}))(t)
		var got []string
		for _, value := range response.DynamicMetadata.Fields["shadowModeViolations"].GetListValue().GetValues() {
			got = append(got, strconv.Itoa(int(value.GetNumberValue())))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("the descriptors %v are over in shadow mode, want %q", got, want)
		}
	}
}
