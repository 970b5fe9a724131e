package envoy_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
)

// These are tests of the subject alone: the pinned reference lacks what they test.

const (
	okay      = rls.RateLimitResponse_OK
	overLimit = rls.RateLimitResponse_OVER_LIMIT
)

// taking is a descriptor with hits of its own, which are given back if they are negative.
func taking(hits int, keysAndValues ...string) *common.RateLimitDescriptor {
	made := entries(keysAndValues...)
	made.IsNegativeHits = hits < 0
	made.HitsAddend = wrapperspb.UInt64(uint64(max(hits, -hits)))
	return made
}

// verdict returns the response of the subject, and fails the test if there is none.
func verdict(t *testing.T, subject *side, request *rls.RateLimitRequest) *rls.RateLimitResponse {
	t.Helper()
	got := subject.ask(t.Context(), request)
	if got.err != nil {
		t.Fatalf("%s: %v", text(request), got.err)
	}
	if len(got.response.GetStatuses()) != len(request.GetDescriptors()) {
		t.Fatalf("%s: %s", text(request), show(got))
	}
	return got.response
}

// TestNegativeHits: the counter falls by the hits, not below 0, and the answer is OK (ratelimit#1140).
func TestNegativeHits(t *testing.T) {
	subject := alone(t, files(t, map[string]string{"a.yaml": `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: year, requests_per_unit: 5}
  - key: b
    rate_limit: {unit: year, requests_per_unit: 0}
  - key: shadow
    rate_limit: {unit: year, requests_per_unit: 5}
    shadow_mode: true
  - key: unlimited
    rate_limit: {unlimited: true}
`}))
	ask := func(request *rls.RateLimitRequest) answer { return subject.ask(t.Context(), request) }
	expectRows(t, "negative_hits.txt", ask, summary)
	for i, left := range []uint32{2, 4} { // by the hits of the request: 1 if it says 0, else 2
		request := described(t, "a=z")
		request.Descriptors[0].IsNegativeHits = true
		request.HitsAddend = uint32(2 * i)
		if got := verdict(t, subject, request); got.GetStatuses()[0].GetLimitRemaining() != left {
			t.Errorf("%s, want %d left", text(got), left)
		}
	}
}

// TestUnitMultiplier: the window of an override is a multiple of its unit.
func TestUnitMultiplier(t *testing.T) {
	subject := alone(t, files(t, map[string]string{"a.yaml": "domain: d\n"}))
	override := func(value string, unit envoytype.RateLimitUnit, multiplier *wrapperspb.UInt32Value) *rls.RateLimitRequest {
		made := entries("a", value)
		made.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 2, Unit: unit, UnitMultiplier: multiplier}
		return requestFor("d", made)
	}
	for _, c := range []struct {
		name       string
		unit       envoytype.RateLimitUnit
		multiplier *wrapperspb.UInt32Value
		window     int64 // seconds
	}{
		{"none", envoytype.RateLimitUnit_HOUR, nil, 3600},
		{"one", envoytype.RateLimitUnit_HOUR, wrapperspb.UInt32(1), 3600},
		{"ten minutes", envoytype.RateLimitUnit_MINUTE, wrapperspb.UInt32(10), 600},
		{"three days", envoytype.RateLimitUnit_DAY, wrapperspb.UInt32(3), 3 * 24 * 3600},
	} {
		t.Run(c.name, func(t *testing.T) {
			// At the end of a window all starts again. It ends with a minute.
			for again := true; again; {
				avoidEnd(t.Context(), time.Minute)
				e := exchange{before: time.Now()}
				value := e.before.String()
				var got []*rls.RateLimitResponse
				for range 3 {
					got = append(got, verdict(t, subject, override(value, c.unit, c.multiplier)))
				}
				e.after = time.Now()
				if again = e.straddles(time.Minute); again {
					continue
				}
				for i, want := range []rls.RateLimitResponse_Code{okay, okay, overLimit} {
					one := got[i].GetStatuses()[0]
					if got[i].GetOverallCode() != want || one.GetLimitRemaining() != uint32(max(0, 1-i)) {
						t.Errorf("request %d: %s", i, text(got[i]))
					}
					limit, reset := one.GetCurrentLimit(), one.GetDurationUntilReset().GetSeconds()
					if limit.GetRequestsPerUnit() != 2 || int32(limit.GetUnit()) != int32(c.unit) ||
						limit.GetUnitMultiplier().GetValue() != c.multiplier.GetValue() {
						t.Errorf("request %d: %s", i, text(got[i]))
					}
					earliest, latest := c.window-e.after.Add(slack).Unix()%c.window, c.window-e.before.Add(-slack).Unix()%c.window
					if reset < earliest || reset > latest {
						t.Errorf("the window ends in %d s, not in %d to %d", reset, earliest, latest)
					}
				}
			}
		})
	}
}

// TestWildcards: `*` stands for any text, anywhere in a value, and is compared with the key, "_" and the value.
func TestWildcards(t *testing.T) {
	subject := alone(t, files(t, map[string]string{"a.yaml": `
domain: d
descriptors:
  - {key: k, rate_limit: {name: bare, unit: year, requests_per_unit: 9}}
  - {key: k, value: "abc", rate_limit: {name: exact, unit: year, requests_per_unit: 9}}
  - {key: k, value: "a*c", rate_limit: {name: a-c, unit: year, requests_per_unit: 9}}
  - {key: k, value: "a*", rate_limit: {name: a, unit: year, requests_per_unit: 9}}
  - {key: k, value: "x*y*z", rate_limit: {name: x-y-z, unit: year, requests_per_unit: 9}}
  - {key: k, value: "*bb*", rate_limit: {name: bb, unit: year, requests_per_unit: 9}}
  - {key: k, value: "*.png", rate_limit: {name: png, unit: year, requests_per_unit: 9}}
  - {key: k, value: "m**n", rate_limit: {name: m-n, unit: year, requests_per_unit: 9}}
  - key: s
    value: "f*g"
    share_threshold: true
    rate_limit: {name: shared, unit: year, requests_per_unit: 9}
  - key: s
    value: "*h"
    rate_limit: {name: own, unit: year, requests_per_unit: 9}
  - key: l
    value: "*p*"
    descriptors:
      - {key: m, value: "q*r", rate_limit: {name: below, unit: year, requests_per_unit: 9}}
`}))
	for _, c := range testtable.Rows[struct{ Entries, Name string }](t, "testdata/wildcards.txt") {
		got := verdict(t, subject, described(t, c.Entries))
		limit := got.GetStatuses()[0].GetCurrentLimit()
		if limit.GetName() != c.Name || (limit != nil) != (c.Name != "") {
			t.Errorf("%q: %s, want the limit %q", c.Entries, text(got), c.Name)
		}
	}
	ask := func(request *rls.RateLimitRequest) answer { return subject.ask(t.Context(), request) }
	expectRows(t, "wildcard_counters.txt", ask, summary)
}

// TestMetadata: the metadata of the limits that a request asks for is in dynamic_metadata.metadata.
func TestMetadata(t *testing.T) {
	subject := alone(t, files(t, map[string]string{"a.yaml": `
domain: d
descriptors:
  - key: a
    rate_limit: {unit: year, requests_per_unit: 1000}
    metadata: {tier: gold, weight: 1.5, active: true, nothing: null, list: [1, two, {three: 3}], inner: {x: {deep: z}}}
  - key: b
    value: "1"
    rate_limit: {unit: year, requests_per_unit: 1000}
    metadata: {region: eu}
  - key: c
    rate_limit: {unit: year, requests_per_unit: 1000}
  - key: e
    metadata: {above: true}
    descriptors:
      - key: e
        rate_limit: {unit: year, requests_per_unit: 1000}
        metadata: {below: true}
`}))
	const gold = `"tier": "gold", "weight": 1.5,
		"active": true, "nothing": null, "list": [1, "two", {"three": 3}], "inner": {"x": {"deep": "z"}}`
	for _, c := range []struct {
		name, request string
		want          string // none if it is empty
	}{
		{"one", "a=1", "{" + gold + "}"},
		{"two", "a=1 | b=1", "{" + gold + `, "region": "eu"}`},
		{"one of two", "b=1 | c=1", `{"region": "eu"}`},
		{"the same twice", "b=1 | b=1", `{"region": "eu"}`},
		{"beside no limit", "z=1 | b=1", `{"region": "eu"}`},
		{"that of the limit", "e=1, e=1", `{"below": true}`},
		{"no limit", "b=2", ""},
		{"no metadata", "c=1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := verdict(t, subject, described(t, c.request))
			field, found := got.GetDynamicMetadata().GetFields()["metadata"]
			if c.want == "" {
				if found {
					t.Errorf("%s, want no metadata", text(got))
				}
				return
			}
			var want any
			must.Do(t, json.Unmarshal([]byte(c.want), &want))
			if !found || !reflect.DeepEqual(field.AsInterface(), want) {
				t.Errorf("%s, want the metadata %v", text(got), want)
			}
		})
	}
}

// TestGreatestLimit: counters end at 1,000,000,000 hits, and a limit above counts as that. The reference goes on to
// 4,294,967,295.
func TestGreatestLimit(t *testing.T) {
	const most = 1_000_000_000
	root := files(t, map[string]string{"a.yaml": "domain: d\ndescriptors: [{key: a, rate_limit: {unit: year, requests_per_unit: 4294967295}}]\n"})
	subject := alone(t, root)
	for i := range 2 {
		got := verdict(t, subject, requestFor("d", taking(most, "a", "x")))
		if status := got.GetStatuses()[0]; status.GetLimitRemaining() != 4294967295-most || status.GetCurrentLimit().GetRequestsPerUnit() != 4294967295 {
			t.Errorf("request %d: %s", i, text(got))
		}
	}
}
