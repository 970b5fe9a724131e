package rls_test

import (
	"strconv"
	"testing"

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
