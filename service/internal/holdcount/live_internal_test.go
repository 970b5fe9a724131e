package holdcount

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/memstore"
)

// gauge tells how many holds are live, and how many expired.
func gauge(t *testing.T, s *Store) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	families := must.Get(registry.Gather())(t)
	live, expired := -1.0, -1.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "rate_limiter_holds_live" {
				live = m.GetGauge().GetValue()
			} else if m.GetLabel()[0].GetValue() == holdExpired {
				expired = m.GetCounter().GetValue()
			}
		}
	}
	if problems, err := testutil.CollectAndLint(s); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	return fmt.Sprintf("%v live, %v expired", live, expired)
}

// A hold is live while this process has reserved it and neither ended it nor let it expire, as docs/reference/metrics.md
// says. Two processes share a store: the first is counted.
func TestLiveHolds(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Name, Want, Steps string }](t, "testdata/live.txt") {
		t.Run(test.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &odd{memstore.New(memstore.Config{})}
				policy := must.Get(stint.NewPolicy("p", stint.Concurrency(2)))(t)
				processes := map[string]*Store{}
				for _, name := range []string{"1", "2"} {
					processes[name] = must.Get(New(store, prometheus.NewRegistry()))(t)
				}
				for step := range strings.SplitSeq(test.Steps, ", ") {
					if wait, err := time.ParseDuration(step); err == nil {
						time.Sleep(wait) //nolint:forbidigo // the bubble's time
						continue
					}
					var process, verb, id string
					_, _ = fmt.Sscan(step, &process, &verb, &id)
					op := stint.Op{Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}}
					switch process {
					case "scrape":
						gauge(t, processes["1"])
						continue
					case "flush":
						store.Store = memstore.New(memstore.Config{})
						continue
					case "reset":
						op.Verb, process = stint.VerbReset, "2"
					default:
						op.Verb = map[string]stint.Verb{"reserve": stint.VerbReserve, "commit": stint.VerbCommit, "cancel": stint.VerbCancel, "drop": stint.VerbDrop}[verb]
						op.Extra = &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: id, ExpiresAt: stint.Instant(time.Now().Add(30 * time.Second).UnixMicro())}}}
					}
					if _, err := processes[process].Decide(t.Context(), op); err != nil && !errors.Is(err, stint.ErrResolved) && !errors.Is(err, stint.ErrUnknownReservation) {
						t.Fatal(step, err)
					}
				}
				if got := gauge(t, processes["1"]); got != test.Want {
					t.Errorf("%s, want %s", got, test.Want)
				}
			})
		})
	}
}

// odd is a store that takes its time to answer the commit of the hold "slow"; a failure policy stands in for the hold "degraded".
type odd struct{ stint.Store }

func (s *odd) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	d, err := s.Store.Decide(ctx, op)
	d.Degraded = op.Hold() != nil && op.Hold().ID == "degraded"
	if op.Hold() != nil && op.Hold().ID == "slow" && op.Verb == stint.VerbCommit {
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's time
	}
	return d, err
}

// admitting is a store that admits everything.
type admitting struct{ stint.Store }

func (admitting) Decide(_ context.Context, op stint.Op) (stint.Decision, error) {
	op.Hold().ExpiresAt = stint.Instant(bounds.HoldTTL(op.Hold().TTL).Microseconds())
	return stint.Decision{Allowed: true}, nil
}

// A flood of IDs, each of which is held for a moment, takes no more memory than the bound says, and what was remembered
// before is counted as it was.
func TestLiveHoldsFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must.Get(New(admitting{}, prometheus.NewRegistry()))(t)
		hold := func(verb stint.Verb, id string) {
			extra := &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: id}}}
			must.Get(s.Decide(t.Context(), stint.Op{Verb: verb, Extra: extra}))(t)
		}
		before := heap()
		hold(stint.VerbReserve, "mine")
		for i := range 3 * maxLiveHolds {
			hold(stint.VerbReserve, strconv.Itoa(i))
		}
		if got := heap() - before; got > 4<<20 {
			t.Errorf("the holds take %d bytes", got)
		} else {
			t.Logf("the holds take %d bytes", got)
		}
		if got := len(s.live.until); got != maxLiveHolds {
			t.Errorf("%d holds are remembered, want %d", got, maxLiveHolds)
		}
		hold(stint.VerbCommit, "mine")
		hold(stint.VerbCommit, strconv.Itoa(3*maxLiveHolds-1)) // which is not remembered
		counts := func(want string) {
			t.Helper()
			if got := gauge(t, s); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		counts("99999 live, 0 expired")
		time.Sleep(bounds.DefaultHoldTTL) //nolint:forbidigo // the bubble's time
		counts("0 live, 99999 expired")
		hold(stint.VerbReserve, "next")
		counts("1 live, 99999 expired")
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
