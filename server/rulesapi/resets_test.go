package rulesapi

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
)

// ender is a store whose resets end with an error.
type ender struct {
	stint.Store
	err error
}

func (e ender) ForgetPolicy(context.Context, string, func(stint.ForgetProgress)) error { return e.err }

// Who sees that a reset has ended finds it in the log and in the metrics.
func TestResetIsRecordedBeforeItsEndIsSeen(t *testing.T) {
	for end, err := range map[string]error{api.ResetDone: nil, api.ResetFailed: errors.New("the cable is loose")} {
		m, failed := newMetrics(prometheus.NewRegistry())
		if failed != nil {
			t.Fatal(failed)
		}
		var all *resets
		recorded := 0
		all = newResets(ender{err: err}, m, func(r record) {
			recorded++
			if shown := all.list()[0]; shown.State != api.ResetRunning || shown.EndedAt != 0 {
				t.Errorf("%s: seen as %+v before it is recorded", end, shown)
			}
			if r.outcome != end || !errors.Is(r.err, err) {
				t.Errorf("%s: recorded as %+v", end, r)
			}
			if n := testutil.ToFloat64(m.resets.WithLabelValues(end)); n != 1 {
				t.Errorf("%s: counted %v times", end, n)
			}
		})
		if _, err := all.start("a", Caller{}); err != nil {
			t.Fatal(err)
		}
		all.running.Wait()
		if shown := all.list()[0]; recorded != 1 || shown.State != end || shown.EndedAt == 0 || (shown.Error == "") != (err == nil) {
			t.Errorf("%s: recorded %d times, and shown as %+v", end, recorded, shown)
		}
	}
}
