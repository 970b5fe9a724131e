package envoy_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
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

// described is the request that a table writes as "five=x, b=y *3 | ten= @2/year": descriptors of keys and values, with
// hits of their own, or with an override. A domain but d stands before it: "nowhere: five=".
func described(t *testing.T, text string) *rls.RateLimitRequest {
	t.Helper()
	domain, list, found := strings.Cut(text, ": ")
	if !found {
		domain, list = "d", text
	}
	request := requestFor(domain)
	for one := range strings.SplitSeq(list, " | ") {
		one, override, isOverride := strings.Cut(one, " @")
		one, hits, hasHits := strings.Cut(one, " *")
		var pairs []string
		for entry := range strings.SplitSeq(one, ", ") {
			key, value, _ := strings.Cut(entry, "=")
			pairs = append(pairs, key, value)
		}
		made := entries(pairs...)
		if hasHits {
			made = taking(must.Get(strconv.Atoi(hits))(t), pairs...)
		}
		if isOverride {
			requests := must.Get(strconv.Atoi(strings.TrimSuffix(override, "/year")))(t)
			made.Limit = &common.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: uint32(requests), Unit: envoytype.RateLimitUnit_YEAR,
			}
		}
		request.Descriptors = append(request.Descriptors, made)
	}
	return request
}

// expectRows sends the requests of a table in testdata, in order, and compares what is said of the answers.
func expectRows(t *testing.T, file string, ask func(*rls.RateLimitRequest) answer, say func(answer) string) {
	t.Helper()
	for i, row := range testtable.Rows[struct{ Request, Answer string }](t, "testdata/"+file) {
		if got := say(ask(described(t, row.Request))); got != row.Answer {
			t.Errorf("%s, row %d: %s is answered %s, want %s", file, i, row.Request, got, row.Answer)
		}
	}
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
	reference, subject := pair(t, root)
	both := func(request *rls.RateLimitRequest) answer {
		_, got := agree(t, reference, subject, request)
		return got
	}
	expectRows(t, "quirks.txt", both, summary)
	expectRows(t, "headers.txt", both, func(got answer) string {
		values := []string{}
		for _, header := range got.response.GetResponseHeadersToAdd() {
			if header.GetKey() != resetHeader {
				values = append(values, header.GetValue())
			}
		}
		return strings.Join(values, " ")
	})
	reference, subject = pair(t, root, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true")
	expectRows(t, "stop.txt", both, summary)
}

// TestYAML: booleans in the spellings of YAML 1.1, anchors, aliases, merge keys and a second document in a file are read
// as the reference's library reads them. The summaries are those of the reference.
func TestYAML(t *testing.T) {
	reference, subject := pair(t, files(t, map[string]string{"a.yaml": `
domain: d
descriptors:
  - {key: shadow, shadow_mode: True, rate_limit: &none {unit: year, requests_per_unit: 0}}
  - {key: yes, shadow_mode: yes, rate_limit: *none}
  - {key: off, shadow_mode: Off, rate_limit: *none}
  - {key: free, rate_limit: {unlimited: ON}}
  - {key: share, value: "x*", share_threshold: y, rate_limit: {unit: year, requests_per_unit: 5}}
  - &base {key: base, shadow_mode: on, rate_limit: {name: base, unit: day, requests_per_unit: 5}}
  - {<<: *base, key: same}
  - {shadow_mode: no, <<: *base, key: before}
  - {<<: *base, key: filled, shadow_mode: no, rate_limit: {unit: year}}
  - {<<: *base, key: empty, rate_limit: }
  - {<<: [{shadow_mode: no}, *base], key: first}
  - {key: seven, rate_limit: {unit: year, requests_per_unit: 007}}
---
domain: second
descriptors: [{key: a, rate_limit: {unit: year, requests_per_unit: 0}}]
`}))
	expectRows(t, "yaml.txt", func(request *rls.RateLimitRequest) answer {
		_, got := agree(t, reference, subject, request)
		return got
	}, summary)
}
