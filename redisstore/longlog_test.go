package redisstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/storetest"
)

// trace makes a long sequence of operations on one log, which changes among limits
// now and then.
type trace struct {
	rng      *rand.Rand
	now      stint.Instant
	policies []*stint.Policy
	current  *stint.Policy
	batches  int
	steps    []storetest.Step
}

// newTrace starts a trace under the limits, the first of which comes back most.
func newTrace(t testing.TB, seed uint64, limits ...stint.Limit) *trace {
	tr := &trace{rng: rand.New(rand.NewPCG(seed, 5)), now: dawn}
	for _, l := range limits {
		tr.policies = append(tr.policies, policyOf(t, "", l))
	}
	tr.current = tr.policies[0]
	return tr
}

func (tr *trace) limit() stint.Limit { return tr.current.Limit(0) }

// add appends operations of one instant, as one batch.
func (tr *trace) add(verb stint.Verb, n int, permits func() int64) {
	tr.batches++
	for range n {
		tr.steps = append(tr.steps, storetest.Step{
			At: tr.now, Op: op(verb, "k", tr.current, permits()), Batch: tr.batches, Each: tr.rng.IntN(4) == 0,
		})
	}
}

func (tr *trace) few() int64 { return 1 + tr.rng.Int64N(3) }

// part is up to a k-th of the capacity.
func (tr *trace) part(k int64) int64 { return 1 + tr.rng.Int64N(tr.limit().Capacity/k+1) }

// pass moves the time on by up to us.
func (tr *trace) pass(us int64) { tr.now += stint.Instant(tr.rng.Int64N(us + 1)) }

// fill takes until the log is about full of records of different times.
func (tr *trace) fill() {
	l := tr.limit()
	for range l.Capacity / 2 {
		tr.pass(l.Window.Microseconds() / l.Capacity / 2)
		tr.add(stint.VerbTake, 1, tr.few)
	}
}

// event is what happens between stretches of takes.
func (tr *trace) event() {
	window := tr.limit().Window.Microseconds()
	if tr.rng.IntN(2) == 0 {
		window = tr.policies[0].Limit(0).Window.Microseconds()
	}
	switch tr.rng.IntN(12) {
	case 0: // longer than the residues of a packed record tell apart, or just as long
		modulus := int64(1)
		for modulus <= 2*window {
			modulus *= 256
		}
		tr.now += stint.Instant(modulus*(1+tr.rng.Int64N(3)) + tr.rng.Int64N(window) - window/2)
	case 1:
		tr.pass(window)
	case 2, 3: // a refund that ends within a record
		tr.add(stint.VerbSettle, 1+tr.rng.IntN(4), func() int64 { return -tr.part(20) })
	case 4:
		tr.add(stint.VerbSettle, 1, func() int64 { return -tr.part(1) })
	case 5: // a charge, at times into debt
		tr.add(stint.VerbSettle, 1, func() int64 { return 2 * tr.part(1) })
	case 6, 7:
		tr.current = tr.policies[tr.rng.IntN(len(tr.policies))]
		tr.add(stint.VerbSettle, 1, func() int64 { return -1 })
	case 8:
		tr.current = tr.policies[0]
	case 9: // a flood of requests, of which most are denied
		tr.add(stint.VerbTake, 100, func() int64 { return tr.part(8) })
	case 10:
		tr.now -= stint.Instant(tr.rng.Int64N(400))
	default:
		tr.add(stint.VerbTake, 3, func() int64 { return tr.limit().Capacity })
	}
}

// run makes a trace of about n operations.
func (tr *trace) run(n int) storetest.Sequence {
	tr.fill()
	// The pace is the first limit's, so that a log of it survives under the others.
	first := tr.policies[0].Limit(0)
	pace := 2 * first.Window.Microseconds() / first.Capacity
	for len(tr.steps) < n {
		for range tr.rng.IntN(8) {
			tr.pass(pace)
			tr.add(stint.VerbTake, 1+tr.rng.IntN(8), tr.few)
		}
		tr.add(stint.VerbPeek, 1, func() int64 { return tr.part(1) })
		tr.event()
	}
	return nearlyForward(storetest.Sequence{Steps: tr.steps})
}

// Long logs, which a packed value pages through, answer as short ones do: idle spans
// longer than a record can tell, limits widened and narrowed, refunds within a record,
// denied requests counted.
func TestLongLogsAgree(t *testing.T) {
	log := stint.SlidingWindowLog
	cases := []struct {
		name   string
		limits []stint.Limit
		ops    int
	}{
		{"L=1000", []stint.Limit{log(1000, time.Second)}, 2500},
		{"L=7000", []stint.Limit{log(7000, 7*24*time.Hour).WithMaxDebt(bounds.MaxPermits)}, 4500}, // more than 32 KB, read in pages
		{"widened", []stint.Limit{log(900, time.Second), log(5000, time.Hour), log(1_000_000, 24*time.Hour)}, 2500},
		{"narrowed", []stint.Limit{log(2000, time.Minute), log(1000, time.Second), log(20, time.Minute)}, 2500},
		{"wider and lower", []stint.Limit{log(3000, time.Second), log(2, time.Hour), log(3, 24*time.Hour).CountingDenied()}, 2500},
		{"shorter and higher", []stint.Limit{log(1000, time.Hour), log(1_000_000, time.Second)}, 2500},
		{"count denied", []stint.Limit{log(1500, 5*time.Second).CountingDenied(), log(1500, 5*time.Second)}, 2500},
		{"min interval", []stint.Limit{
			log(1000, time.Second).WithMinInterval(50 * time.Microsecond),
			log(1000, time.Second).WithMinInterval(time.Minute).CountingDenied(),
		}, 2500},
		{"no debt", []stint.Limit{log(1200, time.Second).WithMaxDebt(stint.NoDebt), log(1200, time.Second).WithMaxDebt(bounds.MaxPermits)}, 2500},
	}
	if testing.Short() {
		cases = cases[:1] // one caller has no races, whatever the limits are
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mustAgree(t, newConn(t), newTrace(t, 1, c.limits...).run(c.ops))
		})
	}
}
