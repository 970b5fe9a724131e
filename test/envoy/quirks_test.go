package envoy_test

import (
	"fmt"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
)

// summary is what a response says in short: the overall code, and of each status the code, what is left and the limit.
func summary(a answer) string {
	if a.err != nil {
		return a.err.Error()
	}
	text := &strings.Builder{}
	text.WriteString(a.response.GetOverallCode().String() + ":")
	for _, one := range a.response.GetStatuses() {
		fmt.Fprintf(text, " %s %d", one.GetCode(), one.GetLimitRemaining())
		if limit := one.GetCurrentLimit(); limit != nil {
			fmt.Fprintf(text, "/%d%s", limit.GetRequestsPerUnit(), limit.GetName())
		}
	}
	return text.String()
}

func overridden(one *common.RateLimitDescriptor, requests uint32, unit envoytype.RateLimitUnit) *common.RateLimitDescriptor {
	one = proto.CloneOf(one)
	one.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return one
}

// TestQuirks spells out what is easily missed, and what the reference answers. All of it is the subject's, too.
func TestQuirks(t *testing.T) {
	root := files(t, map[string]string{"a.yaml": `
domain: d
descriptors:
  - {key: a, value: b, rate_limit: {name: ab, unit: year, requests_per_unit: 5}}
  - {key: p, value: "x*", rate_limit: {name: px, unit: year, requests_per_unit: 5}}
  - {key: p, value: "xy*", rate_limit: {name: pxy, unit: year, requests_per_unit: 5}}
  - {key: p, rate_limit: {name: p, unit: year, requests_per_unit: 5}}
  - {key: "w*", rate_limit: {name: w, unit: year, requests_per_unit: 5}}
  - {key: zero, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: most, rate_limit: {unit: year, requests_per_unit: 4294967295}}
  - {key: five, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: ten, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: shadow, rate_limit: {unit: year, requests_per_unit: 1}, shadow_mode: true}
  - {key: one, rate_limit: {name: one, unit: year, requests_per_unit: 5, replaces: [{name: two}]}}
  - {key: two, rate_limit: {name: two, unit: year, requests_per_unit: 5, replaces: [{name: one}]}}
  - {key: free, rate_limit: {name: free, unlimited: true, replaces: [{name: one}]}}
  - key: top
    rate_limit: {name: top, unit: year, requests_per_unit: 5}
    descriptors:
      - {key: below, rate_limit: {name: below, unit: year, requests_per_unit: 5}}
  - {key: s, value: "f*", share_threshold: true, rate_limit: {unit: year, requests_per_unit: 5}}
`})
	stop := "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"
	type step struct {
		descriptors []*common.RateLimitDescriptor
		want        string // of the reference
	}
	one := func(want string, descriptors ...*common.RateLimitDescriptor) step { return step{descriptors, want} }
	for _, c := range []struct {
		name        string
		environment []string
		steps       []step
	}{
		{"a key is found by the text of another's key and value", nil, []step{
			one("OK: OK 4/5ab", entries("a_b", "z")), one("OK: OK 4/5ab", entries("a_b", "")),
		}},
		{"the first wildcard of the file is taken, not the longest", nil, []step{
			one("OK: OK 4/5px", entries("p", "xyz")), one("OK: OK 4/5p", entries("p", "y")), one("OK: OK 4/5p", entries("p", "")),
		}},
		{"a key may be a wildcard", nil, []step{one("OK: OK 4/5w", entries("wide", "1")), one("OK: OK 4/5w", entries("w", ""))}},
		{"a peek at a ban, or at a full window, is within the limit", nil, []step{
			one("OK: OK 0/0", taking(0, "zero", "")), one("OVER_LIMIT: OVER_LIMIT 0/0", taking(1, "zero", "")),
			one("OVER_LIMIT: OVER_LIMIT 0/0", taking(0, "zero", "")),
			one("OK: OK 0/5", taking(5, "five", "peek")), one("OK: OK 0/5", taking(0, "five", "peek")),
		}},
		{"hits that are denied count in full", nil, []step{
			one("OK: OK 2/5", taking(3, "five", "denied")), one("OVER_LIMIT: OVER_LIMIT 0/5", taking(4, "five", "denied")),
			one("OVER_LIMIT: OVER_LIMIT 0/5", taking(1, "five", "denied")),
		}},
		{"siblings of what is denied count", nil, []step{
			one("OVER_LIMIT: OVER_LIMIT 0/5 OK 9/10", taking(6, "five", "sibling"), taking(1, "ten", "sibling")),
			one("OK: OK 8/10", taking(1, "ten", "sibling")),
		}},
		{"with STOP_CACHE_KEY, siblings of what is denied do not count, and what is denied does", []string{stop}, []step{
			one("OK: OK 2/5", taking(3, "five", "stop")),
			one("OVER_LIMIT: OVER_LIMIT 0/5 OK 10/10", taking(4, "five", "stop"), taking(1, "ten", "stop")),
			one("OVER_LIMIT: OVER_LIMIT 0/5", taking(1, "five", "stop")),
			one("OK: OK 0/1 OK 8/10", taking(1, "shadow", "stop"), taking(2, "ten", "stop")),
			one("OK: OK 0/1 OK 8/10", taking(1, "shadow", "stop"), taking(2, "ten", "stop")), // shadow stops them, too
		}},
		{"with STOP_CACHE_KEY, what is asked for twice is looked at once", []string{stop}, []step{
			one("OK: OK 1/5", taking(4, "five", "twice")),
			one("OVER_LIMIT: OK 0/5 OVER_LIMIT 0/5", taking(1, "five", "twice"), taking(1, "five", "twice")),
		}},
		{"limits may replace each other", nil, []step{
			one("OK: OK 0 OK 0", entries("one", ""), entries("two", "")),
			one("OK: OK 4294967295 OK 0", entries("free", ""), entries("one", "")),
			one("OK: OK 4/5one", entries("one", "")), // neither was counted
		}},
		{"only the depth of the whole descriptor counts", nil, []step{
			one("OK: OK 0", entries("top", "1", "other", "1")), one("OK: OK 0", entries("top", "1", "below", "1", "more", "1")),
			one("OK: OK 4/5below", entries("top", "1", "below", "1")), one("OK: OK 4/5top", entries("top", "1")),
		}},
		{"an override counts with the configured limit of its unit, needs no match, and needs the domain", nil, []step{
			one("OK: OK 2/5", taking(3, "five", "over")),
			one("OVER_LIMIT: OVER_LIMIT 0/3", overridden(entries("five", "over"), 3, envoytype.RateLimitUnit_YEAR)),
			one("OK: OK 2/3", overridden(entries("nothing", ""), 3, envoytype.RateLimitUnit_YEAR)),
			one("OK: OK 2/3", overridden(entries("free", ""), 3, envoytype.RateLimitUnit_YEAR)),
		}},
		{"all values of a shared wildcard have one counter", nil, []step{
			one("OK: OK 4/5", entries("s", "f1")), one("OK: OK 3/5", entries("s", "f2")), one("OK: OK 2/5", entries("s", "f")),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			reference, subject := pair(t, root, c.environment...)
			for i, s := range c.steps {
				if _, got := agree(t, reference, subject, requestFor("d", s.descriptors...)); summary(got) != s.want {
					t.Errorf("step %d: the reference answers %s, want %s", i, summary(got), s.want)
				}
			}
		})
	}

	reference, subject := pair(t, root)
	nowhere := requestFor("nowhere", overridden(entries("five", ""), 0, envoytype.RateLimitUnit_YEAR))
	if _, got := agree(t, reference, subject, nowhere); summary(got) != "OK: OK 0" {
		t.Errorf("an override in an unknown domain: %s", summary(got))
	}
	for _, c := range []struct {
		name    string
		request *rls.RateLimitRequest
		want    string // the headers' values
	}{
		{"no limit", requestFor("d", entries("nothing", "")), ""},
		{"unlimited", requestFor("d", entries("free", "")), ""},
		{"the least left", requestFor("d", entries("ten", "1"), entries("five", "1")), "5 4"},
		{"the first of those with the least", requestFor("d", entries("five", "2"), taking(6, "ten", "2")), "5 4"},
		{"the last that is over", requestFor("d", entries("zero", "3"), taking(6, "five", "3"), entries("ten", "3")), "5 0"},
		{"what is over in shadow has nothing left", requestFor("d", taking(2, "shadow", "4"), entries("five", "4")), "1 0"},
		{"the greatest limit, unused", requestFor("d", taking(0, "most", "5")), ""},
		{"the greatest limit", requestFor("d", taking(1, "most", "5")), "4294967295 4294967294"},
	} {
		_, got := agree(t, reference, subject, c.request)
		values := []string{}
		for _, header := range got.response.GetResponseHeadersToAdd() {
			if header.GetKey() != resetHeader {
				values = append(values, header.GetValue())
			}
		}
		if strings.Join(values, " ") != c.want {
			t.Errorf("%s: the reference's headers say %q, want %q", c.name, values, c.want)
		}
	}
}
