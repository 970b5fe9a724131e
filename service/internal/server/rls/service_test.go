package rls_test

import (
	"fmt"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

const years = "rate_limit: {unit: year, requests_per_unit: "

// said is what a response says: its code, and of each descriptor the code and what remains.
func said(r *pb.RateLimitResponse) string {
	text := code(r.OverallCode)
	for _, s := range r.Statuses {
		text += fmt.Sprintf(" %s:%d", code(s.Code), s.LimitRemaining)
	}
	return text
}

func code(c pb.RateLimitResponse_Code) string {
	return map[pb.RateLimitResponse_Code]string{ok: "ok", over: "over"}[c]
}

// A step of a test asks about descriptors and wants an answer.
type step struct {
	ask  []*common.RateLimitDescriptor
	want string
}

func of(list ...*common.RateLimitDescriptor) []*common.RateLimitDescriptor { return list }

func walk(t *testing.T, s *rls.Service, steps []step) {
	t.Helper()
	for i, step := range steps {
		if got := said(ask(t, s, step.ask...)); got != step.want {
			t.Errorf("step %d, %v:\nsays %s\nwant %s", i, step.ask, got, step.want)
		}
	}
}

// What is denied consumes nothing anywhere in the atomic accounting, and everywhere in the reference one.
func TestAccountings(t *testing.T) {
	const config = `
domain: d
descriptors:
  - {key: a, ` + years + `2}}
  - {key: b, ` + years + `9}}
`
	a, b := entries("a=1"), entries("b=1")
	walk(t, newService(t, rls.Config{}, config), []step{
		{of(a, b), "ok ok:1 ok:8"},
		{of(a, b), "ok ok:0 ok:7"},
		{of(a, b), "over over:0 ok:7"},
		{of(b), "ok ok:6"},
		{of(costing("b=1", 7)), "over over:6"},
		{of(costing("b=1", 0)), "ok ok:6"},
		{of(costing("a=1", 0)), "over over:0"},
		{of(costing("a=1", -1)), "ok ok:1"},
		{of(costing("a=1", 0), b), "ok ok:1 ok:5"},
		{of(a, a), "over over:1 over:1"}, // one limit of 2 hits
		{of(a, costing("b=1", 0)), "ok ok:0 ok:5"},
		{of(costing("a=1", 0), b), "over over:0 ok:5"},
		{of(costing("a=1", -1), a), "over ok:0 over:0"},
		{of(costing("a=1", -1), costing("a=1", 0)), "over ok:0 over:0"},
	})
	walk(t, newService(t, rls.Config{Accounting: domains.Reference}, config), []step{
		{of(a, b), "ok ok:1 ok:8"},
		{of(a, b), "ok ok:0 ok:7"},
		{of(a, b), "over over:0 ok:6"},
		{of(costing("b=1", 7)), "over over:0"},
		{of(costing("b=1", 0)), "over over:0"},
		{of(costing("b=1", -2)), "ok ok:1"},
		{of(costing("a=1", 0)), "over over:0"},
		{of(costing("a=1", -1)), "ok ok:0"},
		{of(costing("a=1", 0)), "ok ok:0"}, // 2 of 2
		{of(costing("a=1", -9)), "ok ok:2"},
		{of(a, a), "ok ok:1 ok:0"},
	})
	walk(t, newService(t, rls.Config{Accounting: domains.Reference, KeepDenied: true}, config), []step{
		{of(a, b), "ok ok:1 ok:8"},
		{of(a, b), "ok ok:0 ok:7"},
		{of(a, b), "over over:0 ok:7"},
		{of(costing("a=1", -1)), "ok ok:0"}, // what denied was counted
	})
}

// A limit may have an accounting of its own, beside others in one request.
func TestAccountingOfALimit(t *testing.T) {
	s := newService(t, rls.Config{}, `
domain: d
descriptors:
  - {key: a, `+years+`1}}
  - {key: tokens, `+years+`10, accounting: reference}}
`)
	walk(t, s, []step{
		{of(entries("a=1"), costing("tokens=1", 4)), "ok ok:0 ok:6"},
		{of(entries("a=1"), costing("tokens=1", 4)), "over over:0 ok:2"},
		{of(costing("tokens=1", 40)), "over over:0"},
		{of(costing("tokens=1", 0)), "over over:0"},
	})
	// What one of them denies takes nothing from limits in the atomic accounting.
	walk(t, s, []step{
		{of(entries("a=2"), entries("tokens=1")), "over ok:1 over:0"},
		{of(entries("a=2")), "ok ok:0"},
	})
}

// A limit of 0 is over until the end of its window, whatever its accounting is.
func TestBanUntilTheEnd(t *testing.T) {
	store := memstore.New(memstore.Config{})
	s := newService(t, rls.Config{Store: store}, `
domain: d
descriptors:
  - {key: atomic, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: reference, rate_limit: {unit: year, requests_per_unit: 0, accounting: reference}}
`)
	list := ask(t, s, entries("atomic=1"), entries("reference=1")).Statuses
	a, b := list[0].DurationUntilReset.AsDuration(), list[1].DurationUntilReset.AsDuration()
	if list[0].Code != over || list[1].Code != over || (a-b).Abs() > time.Hour || a <= 0 {
		t.Errorf("%v", list)
	}
}

// Limits are found by key and value, then by wildcards in their order, then by the key, and only at the last level.
func TestLookup(t *testing.T) {
	s := newService(t, rls.Config{}, `
domain: d
descriptors:
  - {key: a, `+years+`1}}
  - {key: a, value: "x*", `+years+`2}}
  - {key: a, value: "*y", `+years+`3}}
  - {key: a, value: xy, `+years+`4}}
  - {key: a, value: "m*n*o", `+years+`5}}
  - key: p
    rate_limit: {unit: second, requests_per_unit: 50}
    descriptors:
      - {key: q, value: 8080, `+years+`6}}
      - {key: "r*", `+years+`7}}
`)
	for text, want := range map[string]string{
		"a=1": "ok ok:0", "a=x": "ok ok:1", "a=xz": "ok ok:1", "a=zy": "ok ok:2", "a=xy": "ok ok:3", "a=": "ok ok:0",
		"a=m-n-o": "ok ok:4", "a=mno": "ok ok:4", "a=mon": "ok ok:0", "p=1,q=8080": "ok ok:5", "p=1,q=80": "ok ok:0",
		"p=1": "ok ok:49", "p=1,rest=1": "ok ok:6", "a=1,b=1": "ok ok:0", "b=1": "ok ok:0",
	} {
		response := ask(t, s, entries(text))
		if got := said(response); got != want {
			t.Errorf("%s says %s, want %s", text, got, want)
		}
		if none := text == "p=1,q=80" || text == "a=1,b=1" || text == "b=1"; none != (response.Statuses[0].CurrentLimit == nil) {
			t.Errorf("%s has the limit %v", text, response.Statuses[0].CurrentLimit)
		}
	}
}

func TestModes(t *testing.T) {
	s := newService(t, rls.Config{}, `
domain: d
descriptors:
  - {key: shadow, shadow_mode: true, `+years+`1}}
  - {key: q, quota_mode: true, `+years+`1}}
  - {key: r, quota_mode: true, `+years+`3}}
  - {key: plain, `+years+`4}}
  - {key: ban, `+years+`0}}
  - {key: free, rate_limit: {unlimited: true, replaces: [{name: base}]}}
  - {key: base, rate_limit: {name: base, unit: day, requests_per_unit: 1}}
  - {key: pool, value: "p*", share_threshold: true, `+years+`2}}
`)
	q, r, plain := entries("q=1"), entries("r=1"), entries("plain=1")
	walk(t, s, []step{
		{of(entries("shadow=1")), "ok ok:0"},
		{of(entries("shadow=1")), "ok ok:0"},
		{of(q, r, plain), "ok ok:0 ok:2 ok:3"},
		{of(q, r, plain), "ok ok:0 ok:1 ok:2"},
		{of(q, plain), "over ok:0 ok:2"},
		{of(q, r, plain), "ok ok:0 ok:0 ok:1"},
		{of(q, r, plain), "over ok:0 ok:0 ok:1"}, // all in quota mode are exceeded, and nothing is taken
		{of(plain), "ok ok:0"},
		{of(entries("ban=1")), "over over:0"},
		{of(entries("free=1"), entries("base=1")), "ok ok:4294967295 ok:0"},
		{of(entries("base=1")), "ok ok:0"},
		{of(entries("base=1")), "over over:0"},
		{of(entries("pool=p1")), "ok ok:1"},
		{of(entries("pool=p2")), "ok ok:0"},
		{of(entries("pool=p3")), "over over:0"},
		{of(limited("plain=1", 2, typed.RateLimitUnit_YEAR)), "ok ok:1"},
		{of(limited("nothing=1", 1, typed.RateLimitUnit_YEAR), limited("nothing=1", 1, typed.RateLimitUnit_YEAR)), "over over:1 over:1"},
		{of(limited("nothing=1", 1, typed.RateLimitUnit_YEAR), limited("nothing=1", 5, typed.RateLimitUnit_YEAR)), "ok ok:0 ok:4"},
	})
}
