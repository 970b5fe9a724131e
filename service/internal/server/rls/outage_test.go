package rls_test

import (
	"context"
	"slices"
	"strconv"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/storetest"
)

// In an outage a limit of the reference accounting is decided by the mode as any other is: by this process's share of it,
// or by the cost alone.
func TestOutages(t *testing.T) {
	for _, test := range []struct {
		mode      failover.Mode
		instances int
		hits      int64
		want      []string // by each of the accountings
	}{
		{failover.Local, 1, 1, []string{"ok ok:4", "ok ok:3", "ok ok:2", "ok ok:1", "ok ok:0", "over over:0"}},
		{failover.Local, 2, 1, []string{"ok ok:1", "ok ok:0", "over over:0"}},
		{failover.Local, 3, 1, []string{"ok ok:0", "over over:0"}},
		{failover.Local, 2, 6, []string{"over over"}},
		{failover.Local, 100_000, 1, []string{"ok ok:0", "over over:0"}},
		{failover.Open, 2, 1, []string{"ok ok:5", "ok ok:5"}},
		{failover.Open, 2, 6, []string{"over over:5"}},
	} {
		store := storetest.NewFaulty(memstore.New(memstore.Config{Now: still}))
		store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
		guarded := must.Get(failover.New(store, failover.Config{
			Mode: test.mode, Local: memstore.New(memstore.Config{Now: still}), Instances: func() int { return test.instances },
		}))(t)
		for _, keep := range []bool{false, true} {
			s := newService(t, rls.Config{Store: guarded, KeepDenied: keep}, simple)
			for i, want := range test.want {
				for _, key := range []string{"a=", "b="} {
					got := said(ask(t, s, costing(key+strconv.FormatBool(keep), test.hits)))
					if got = got[:min(len(got), len(want))]; got != want {
						t.Errorf("%v of %d, hits of %d, %s%t, request %d: %s, want %s", test.mode, test.instances, test.hits, key, keep, i, got, want)
					}
				}
			}
		}
		guarded.Close()
	}
}

// What denies a request without the store, or by this process's share, denies it in an outage, and while the store has no
// time, though nothing can be said of its other limits.
func TestDeniedInAnOutage(t *testing.T) {
	for _, test := range []struct {
		mode    failover.Mode
		fault   error
		request []*common.RateLimitDescriptor
		want    string
	}{
		{failover.Open, stint.ErrUnavailable, of(entries("banned=1"), entries("a=1")), "over over:0 ok:0"},
		{failover.Open, stint.ErrUnavailable, of(entries("a=1"), costing("a=1", -1), entries("banned=1")), "over ok:0 ok:0 over:0"},
		{failover.Closed, stint.ErrUnavailable, of(entries("banned=1"), entries("a=1"), costing("a=2", 0)), "over over:0 ok:0 ok:0"},
		{failover.Local, stint.ErrUnavailable, of(costing("b=1", 6), entries("a=1")), "over over:0 ok:0"},
		{failover.Local, stint.ErrUnavailable, of(entries("banned=1"), entries("a=1,stint_reserve=1")), "over over:0 ok:4"},
		{failover.Open, stint.ErrOverloaded, of(entries("banned=1"), entries("a=1")), "over over:0 ok:0"},
	} {
		store := storetest.NewFaulty(memstore.New(memstore.Config{Now: still}))
		store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: test.fault} })
		guarded := must.Get(failover.New(store, failover.Config{
			Mode: test.mode, Local: memstore.New(memstore.Config{Now: still}), Instances: func() int { return 1 },
		}))(t)
		s := newService(t, rls.Config{Store: guarded}, simple+"  - {key: banned, rate_limit: {unit: year, requests_per_unit: 0}}\n")
		if got := said(ask(t, s, test.request...)); got != test.want {
			t.Errorf("%v, %v: %s, want %s", test.mode, test.request, got, test.want)
		}
		code := map[error]codes.Code{stint.ErrUnavailable: codes.Unavailable, stint.ErrOverloaded: codes.ResourceExhausted}[test.fault]
		fails(t, s, &pb.RateLimitRequest{Domain: "d", Descriptors: of(costing("a=1", 0))}, code, "")
		guarded.Close()
	}
}

// A request that is denied in an outage holds nothing of this process's share. Its cost is never admitted only if the
// whole limit is less.
func TestSharesOfDenied(t *testing.T) {
	store := storetest.NewFaulty(memstore.New(memstore.Config{Now: still}))
	store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
	guarded := must.Get(failover.New(store, failover.Config{
		Mode: failover.Local, Local: memstore.New(memstore.Config{Now: still}), Instances: func() int { return 2 },
	}))(t)
	defer guarded.Close()
	var reasons []stint.Reason
	s := newService(t, rls.Config{Store: guarded, Observe: func(_ context.Context, e *stint.Event) {
		reasons = append(reasons, e.Reason)
	}}, simple+"  - {key: banned, rate_limit: {unit: year, requests_per_unit: 0}}\n")
	for _, id := range []string{"1", "2", "3"} {
		if got := said(ask(t, s, of(entries("banned=1"), entries("a=1,stint_reserve="+id), entries("a=2"))...)); got != "over over:0 ok:1 ok:0" {
			t.Errorf("hold %s: %s", id, got)
		}
	}
	reasons = nil
	for _, hits := range []int64{3, 5, 6} {
		ask(t, s, costing("b=1", hits))
	}
	if want := []stint.Reason{stint.ReasonLimit, stint.ReasonLimit, stint.ReasonNever}; !slices.Equal(reasons, want) {
		t.Errorf("%v, want %v", reasons, want)
	}
}
