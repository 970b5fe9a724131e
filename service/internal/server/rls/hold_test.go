package rls_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/storetest"
)

const holding = `
domain: d
descriptors:
  - {key: tokens, rate_limit: {unit: year, requests_per_unit: 1000}}
  - {key: places, rate_limit: {algorithm: concurrency, requests_per_unit: 2}}
  - {key: requests, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: tried, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: counted, rate_limit: {unit: year, requests_per_unit: 10, accounting: reference}}
  - {key: none, rate_limit: {unlimited: true}}
`

// What Envoy's route sends: an estimate before a stream, the cost after it.
func before(text, id string, hits int64) *common.RateLimitDescriptor {
	return costing(text+",stint_reserve="+id, hits)
}

func after(text, id string, hits int64) *common.RateLimitDescriptor {
	return costing(text+",stint_commit="+id, hits)
}

// All that a request reserves is held or nothing is, whichever of its descriptors denies, and in whatever order they are.
func TestAnyDescriptorDenies(t *testing.T) {
	orders := [][]string{
		{"places", "tokens", "requests"},
		{"places", "requests", "tokens"},
		{"tokens", "places", "requests"},
		{"tokens", "requests", "places"},
		{"requests", "places", "tokens"},
		{"requests", "tokens", "places"},
	}
	for _, test := range []struct {
		denies      string
		taken, hits int64
		plain       bool // whether requests has no hold
		says        string
	}{
		{denies: "tokens", taken: 500, hits: 600, says: "over:500"},
		{denies: "tokens", taken: 500, hits: 600, says: "over:500", plain: true},
		{denies: "tokens", hits: 2000, says: "over:1000"}, // more than the limit itself
		{denies: "tokens", hits: 2000, says: "over:1000", plain: true},
		{denies: "places", taken: 2, hits: 1, says: "over:0"},
		{denies: "places", taken: 2, hits: 1, says: "over:0", plain: true},
		{denies: "requests", taken: 3, hits: 1, says: "over:0"},
	} {
		for _, order := range orders {
			s := newService(t, rls.Config{}, holding)
			for i := range test.taken {
				ask(t, s, before(test.denies+"=u", strconv.FormatInt(i, 10), 1))
			}
			left := map[string]string{"places": "ok:2", "tokens": "ok:1000", "requests": "ok:3"}
			left[test.denies] = test.says
			var request []*common.RateLimitDescriptor
			want := "over"
			for _, name := range order {
				d := before(name+"=u", "r", 1)
				if name == test.denies {
					d = before(name+"=u", "r", test.hits)
				} else if name == "requests" && test.plain {
					d = entries(name + "=u")
				}
				request, want = append(request, d), want+" "+left[name]
			}
			delete(left, test.denies)
			walk(t, s, []step{{request, want}, {request, want}}) // the same id may ask again
			for name, all := range left {
				walk(t, s, []step{{of(costing(name+"=u", 0)), "ok " + all}})
			}
			for name, n := range gathered(t, s) {
				if n != 0 && strings.Contains(name, "error") {
					t.Errorf("%s denies of %v: %s is %v", test.denies, order, name, n)
				}
			}
		}
	}
}

// A request that others deny stays denied when the store can't take back what was held for it: it expires.
func TestHoldThatCantBeTakenBack(t *testing.T) {
	store := storetest.NewFaulty(memstore.New(memstore.Config{}))
	store.Inject(func(c storetest.Call) (f storetest.Fault) {
		if c.Ops[0].Verb == stint.VerbCancel {
			f.Err = stint.ErrUnavailable
		}
		return f
	})
	walk(t, newService(t, rls.Config{Store: store}, holding), []step{
		{of(costing("requests=u", 3)), "ok ok:0"},
		{of(before("tokens=u", "1", 100), entries("requests=u")), "over ok:900 over:0"},
	})
}

// The guide's domain admits what the guide says.
func TestGuideOfStreams(t *testing.T) {
	guide := must.Get(os.ReadFile("../../../../docs/envoy-streams.md"))(t)
	_, text, _ := strings.Cut(string(guide), "# domains/llm.yaml\n")
	text, _, _ = strings.Cut(text, "```")
	s := newService(t, rls.Config{}, strings.Replace(text, "domain: llm", "domain: d", 1))
	begin := func(id string) []*common.RateLimitDescriptor {
		return of(before("streams=1,user=u", id, 1), before("tokens=1,user=u", id, 4000), entries("requests=1,user=u"))
	}
	for i := range 5 {
		if r := ask(t, s, begin(strconv.Itoa(i))...); r.OverallCode != ok {
			t.Fatal(i, said(r))
		}
	}
	walk(t, s, []step{
		{begin("5"), "over over:0 ok:980000 ok:95"},
		{of(after("streams=1,user=u", "0", 777), after("tokens=1,user=u", "0", 777)), "ok ok:1 ok:983223"},
		{begin("6"), "ok ok:0 ok:979223 ok:94"},
	})
}
