package rls_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
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

func TestHoldEndsWithTheStream(t *testing.T) {
	walk(t, newService(t, rls.Config{}, holding), []step{
		{of(before("tokens=u", "1", 600)), "ok ok:400"},
		{of(before("tokens=u", "2", 600)), "over over:400"},
		{of(entries("tokens=u")), "ok ok:399"}, // what has no hold has the same limit
		{of(after("tokens=u", "1", 50)), "ok ok:949"},
		{of(after("tokens=u", "1", 50)), "ok ok:949"}, // a duplicate
		{of(before("tokens=u", "3", 1)), "ok ok:948"},
		{of(after("tokens=u", "3", 900)), "ok ok:49"}, // it cost more than was thought
	})
}

// Envoy asks when a denied stream ends, too. What that cost is charged, if anything is said.
func TestEndOfADeniedStream(t *testing.T) {
	walk(t, newService(t, rls.Config{}, holding), []step{
		{of(costing("tokens=u", 950)), "ok ok:50"},
		{of(before("tokens=u", "1", 600)), "over over:50"},
		{of(entries("tokens=u,stint_commit=1")), "ok ok:50"}, // ignored: nothing is known of it
		{of(after("tokens=u", "1", 20)), "ok ok:30"},
		{of(after("tokens=u", "1", 20)), "ok ok:30"},
		{of(after("tokens=u", "1", 0)), "ok ok:30"}, // it has ended, with another cost
		{of(entries("tokens=u")), "ok ok:29"},
	})
}

// So is what a stream cost that another limit denied, and whose hold was cancelled.
func TestEndOfAStreamThatAnotherLimitDenied(t *testing.T) {
	walk(t, newService(t, rls.Config{}, holding), []step{
		{of(costing("requests=u", 3)), "ok ok:0"},
		{of(before("tokens=u", "1", 100), entries("requests=u")), "over ok:900 over:0"},
		{of(entries("tokens=u,stint_commit=1")), "ok ok:1000"},
		{of(after("tokens=u", "1", 20)), "ok ok:980"},
		{of(after("tokens=u", "1", 20)), "ok ok:980"},
	})
}

// A limit that another one replaces is not held.
func TestHoldOfAReplacedLimit(t *testing.T) {
	const replacing = `
domain: d
descriptors:
  - {key: tokens, rate_limit: {name: all, unit: year, requests_per_unit: 1000}}
  - {key: premium, rate_limit: {unit: year, requests_per_unit: 2000, replaces: [{name: all}]}}
`
	walk(t, newService(t, rls.Config{}, replacing), []step{
		{of(before("tokens=u", "1", 600), before("premium=u", "1", 600)), "ok ok:0 ok:1400"},
		{of(after("tokens=u", "1", 10), after("premium=u", "1", 10)), "ok ok:0 ok:1990"},
	})
}

// Nor is one refused that could not be held, or that would have to be.
func TestReplacedLimitThatCantBeHeld(t *testing.T) {
	const replacing = `
domain: d
descriptors:
  - {key: counted, rate_limit: {name: sum, unit: year, requests_per_unit: 1000, accounting: reference}}
  - {key: places, rate_limit: {name: few, algorithm: concurrency, requests_per_unit: 1}}
  - {key: premium, rate_limit: {unit: year, requests_per_unit: 2000, replaces: [{name: sum}, {name: few}]}}
`
	walk(t, newService(t, rls.Config{}, replacing), []step{
		{of(before("counted=u", "1", 600), before("premium=u", "1", 600)), "ok ok:0 ok:1400"},
		{of(after("counted=u", "1", 10), after("premium=u", "1", 10)), "ok ok:0 ok:1990"},
		{of(entries("places=u"), entries("premium=u")), "ok ok:0 ok:1989"},
	})
}

// A place is one, whatever the hits are.
func TestPlaceOfNoHits(t *testing.T) {
	walk(t, newService(t, rls.Config{}, holding), []step{
		{of(before("places=u", "1", 0)), "ok ok:1"},
		{of(after("places=u", "1", 0)), "ok ok:2"},
	})
}

// A stream that lacks a place is told to come again in a second, as over HTTP.
func TestResetOfADenialByPlaces(t *testing.T) {
	s := newService(t, rls.Config{}, holding)
	walk(t, s, []step{{of(before("places=u", "1", 0)), "ok ok:1"}, {of(before("places=u", "2", 0)), "ok ok:0"}})
	if reset := ask(t, s, before("places=u", "3", 0)).GetStatuses()[0].GetDurationUntilReset().AsDuration(); reset != time.Second {
		t.Errorf("it is told %v", reset)
	}
}

// The same entry may stand in both phases, as a live hold is not reserved again.
func TestSameEntryInBothPhases(t *testing.T) {
	walk(t, newService(t, rls.Config{}, holding), []step{
		{of(before("tokens=u", "1", 600)), "ok ok:400"},
		{of(before("tokens=u", "1", 10)), "ok ok:990"},
		{of(before("tokens=u", "2", 600)), "ok ok:390"},
		{of(before("tokens=u", "2", 5000)), "ok ok:0"},
	})
}

// Docs: what may go wrong. A first call that is repeated is taken for the end, and the end is then ignored.
func TestFirstCallComesTwice(t *testing.T) {
	first := of(before("places=u", "1", 1), before("tokens=u", "1", 600))
	end := of(after("places=u", "1", 1), after("tokens=u", "1", 50))
	walk(t, newService(t, rls.Config{}, holding), []step{
		{first, "ok ok:1 ok:400"},
		{first, "ok ok:2 ok:400"},
		{end, "ok ok:2 ok:400"},
	})
	// An internal redirect ends the first pass, and begins the second with the same id.
	walk(t, newService(t, rls.Config{}, holding), []step{
		{first, "ok ok:1 ok:400"},
		{of(after("places=u", "1", 1), after("tokens=u", "1", 5)), "ok ok:2 ok:995"},
		{first, "ok ok:2 ok:995"},
		{end, "ok ok:2 ok:995"},
	})
}

func TestStreamsAtOnce(t *testing.T) {
	s := newService(t, rls.Config{}, holding)
	both := func(id string) []*common.RateLimitDescriptor {
		return of(before("places=u", id, 1), before("tokens=u", id, 100))
	}
	walk(t, s, []step{
		{both("1"), "ok ok:1 ok:900"},
		{both("2"), "ok ok:0 ok:800"},
		{both("3"), "over over:0 ok:800"}, // nothing was taken of the tokens
		{of(after("places=u", "1", 1), after("tokens=u", "1", 7)), "ok ok:1 ok:893"},
		{both("4"), "ok ok:0 ok:793"},
		{of(costing("places=u", 0)), "over over:0"}, // a look
	})
	response := ask(t, s, before("places=u", "5", 1))
	if l := response.Statuses[0].CurrentLimit; l.RequestsPerUnit != 2 || l.Unit != pb.RateLimitResponse_RateLimit_UNKNOWN {
		t.Errorf("the limit is %v", l)
	}
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

// An end by the first phase's entry is no hold that others could deny.
func TestEndThatOthersDeny(t *testing.T) {
	walk(t, newService(t, rls.Config{}, holding), []step{
		{of(before("tokens=u", "1", 100), costing("requests=u", 3)), "ok ok:900 ok:0"},
		{of(after("tokens=u", "1", 50)), "ok ok:950"},
		{of(before("tokens=u", "1", 50), entries("requests=u")), "over ok:950 over:0"}, // it ended before
	})
}

// What another limit denies holds nothing, and its id has ended.
func TestHoldOfARequestThatOthersDeny(t *testing.T) {
	walk(t, newService(t, rls.Config{}, holding), []step{
		{of(before("tokens=u", "1", 100), costing("requests=u", 3)), "ok ok:900 ok:0"},
		{of(before("tokens=u", "2", 100), entries("requests=u")), "over ok:800 over:0"},
		{of(costing("tokens=u", 0)), "ok ok:900"},
		{of(entries("tokens=u,stint_commit=2")), "ok ok:900"},
		{of(before("tokens=u", "3", 5000), costing("requests=v", 1)), "over over:900 ok:3"},
		{of(costing("requests=v", 0)), "ok ok:3"}, // nor does it count elsewhere
	})
}

func TestHoldInShadow(t *testing.T) {
	walk(t, newService(t, rls.Config{}, holding), []step{
		{of(before("tried=u", "1", 8), before("tokens=u", "1", 8)), "ok ok:2 ok:992"},
		{of(before("tried=u", "2", 8), before("tokens=u", "2", 8)), "ok ok:2 ok:984"},
		{of(after("tried=u", "1", 1), after("tokens=u", "1", 1)), "ok ok:9 ok:991"},
	})
}

func TestHoldsOfDomainsAreApart(t *testing.T) {
	s := newService(t, rls.Config{}, holding, strings.Replace(holding, "domain: d", "domain: e", 1))
	long := strings.Repeat("ä", 300)
	for _, domain := range []string{"d", "e"} {
		r, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{
			Domain: domain, Descriptors: of(before("tokens=u", long, 600)),
		})
		if err != nil || said(r) != "ok ok:400" {
			t.Error(domain, r, err)
		}
	}
}

func TestHoldExpires(t *testing.T) {
	now := stint.Instant(1_700_000_000_000_000)
	store := memstore.New(memstore.Config{Now: func() time.Time { return now.Time() }})
	s := newService(t, rls.Config{Store: store}, holding)
	walk(t, s, []step{
		{of(before("tokens=u,stint_ttl=10s", "1", 600)), "ok ok:400"},
		{of(before("tokens=u", "2", 100)), "ok ok:300"},
	})
	now += stint.Instant((10 * time.Second).Microseconds())
	walk(t, s, []step{{of(costing("tokens=u", 0)), "ok ok:900"}})
	now += stint.Instant((50 * time.Second).Microseconds())
	walk(t, s, []step{
		{of(costing("tokens=u", 0)), "ok ok:1000"},
		{of(after("tokens=u", "1", 50)), "ok ok:950"}, // late, and charged
	})
}

func TestWrongHolds(t *testing.T) {
	s := newService(t, rls.Config{}, holding)
	ask(t, s, before("tokens=u", "live", 1))
	for _, c := range []struct {
		name string
		ask  []*common.RateLimitDescriptor
		want string
	}{
		{"no id", of(before("tokens=u", "", 1)), "descriptors[0].entries[1].value"},
		{"two ids", of(before("tokens=u", "1", 1), before("tokens=v", "2", 1)), "descriptors[1].entries[1].value"},
		{"both phases", of(before("tokens=u", "1", 1), after("tokens=v", "1", 1)), "descriptors[1].entries[1].value"},
		{"a long time", of(before("tokens=u,stint_ttl=2h", "1", 1)), "1s to 1h"},
		{"no time", of(before("tokens=u,stint_ttl=x", "1", 1)), "1s to 1h"},
		{"no limit", of(entries("stint_reserve=1")), "descriptors[0].entries"},
		{"given back", of(before("tokens=u", "1", -1)), "is_negative_hits"},
		{"counted", of(before("counted=u", "1", 1)), "accounting: atomic"},
		{"a place without a hold", of(entries("places=u")), "stint_reserve"},
		{"other limits", of(after("tokens=other", "live", 1)), "stint_commit is \"live\"; allowed: an id with the limits that it was reserved for"},
		{"reserved for other limits", of(before("tokens=other", "live", 1)), "stint_reserve is \"live\""},
	} {
		_, err := s.ShouldRateLimit(t.Context(), &pb.RateLimitRequest{Domain: "d", Descriptors: c.ask})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	walk(t, s, []step{ // what has no limit is not held
		{of(before("none=u", "9", 1), before("unknown=u", "9", 1)), "ok ok:4294967295 ok:0"},
		{of(after("none=u", "9", 1), after("unknown=u", "9", 1)), "ok ok:4294967295 ok:0"},
	})
}

// The guide's domain admits what the guide says.
func TestGuideOfStreams(t *testing.T) {
	guide, err := os.ReadFile("../../../../docs/envoy-streams.md")
	if err != nil {
		t.Fatal(err)
	}
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

func TestHoldInTheReferenceAccounting(t *testing.T) {
	s := newService(t, rls.Config{Accounting: domains.Reference}, holding)
	walk(t, s, []step{
		{of(before("places=u", "1", 1)), "ok ok:1"},
		{of(after("places=u", "1", 1)), "ok ok:2"},
	})
}
