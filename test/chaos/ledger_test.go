package chaos_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/oracle"
)

// An admission is permits that the store admitted a client.
type admission struct {
	at      stint.Instant
	permits int64
}

// A ledger holds what the store admitted a client to the policy's limits: the exact model must admit all of it. It
// knows of no admission whose answer was lost, and without those there is more room at every instant, so it finds no
// fault where there is none.
type ledger struct {
	policy   *stint.Policy
	model    *oracle.Oracle
	admitted []admission // since the last check, in any order
}

func newLedger(policy *stint.Policy) *ledger { return &ledger{policy: policy, model: oracle.New(0)} }

func (l *ledger) admit(a admission) { l.admitted = append(l.admitted, a) }

// check goes through what was admitted by the store's time. No admission that comes
// later may be older than those.
func (l *ledger) check() error {
	slices.SortFunc(l.admitted, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
	var faults []error
	for _, a := range l.admitted {
		op := stint.Op{Claim: stint.Claim{Key: "k", Policy: l.policy, Permits: a.permits}}
		if d := l.model.Decide(op, a.at).Decision; !d.Allowed {
			faults = append(faults, fmt.Errorf("%d permits were admitted at %v, and the model denies them: %+v by %+v",
				a.permits, a.at.Time().Format(time.StampMicro), d, l.policy.Limits()))
		}
	}
	l.admitted = nil
	return errors.Join(faults...)
}

// What a limit just admits passes, and one permit more is found.
func TestLedger(t *testing.T) {
	const window = time.Second
	limits := []stint.Limit{
		stint.TokenBucket(10, stint.PerSecond(10)),
		stint.LeakyBucket(10, stint.PerSecond(10)),
		stint.FixedWindow(10, window),
		stint.SlidingWindowLog(10, window),
		stint.SlidingWindowCounter(10, window),
	}
	// Half a window after ten permits buckets have five again, windows none.
	again := []int64{5, 5, 0, 0, 0}
	// Half of the next window has passed: the counter still has half of the ten.
	next := []int64{10, 10, 10, 10, 5}
	for i, limit := range limits {
		policy := must.Get(stint.NewPolicy("", limit))(t)
		for _, more := range []struct {
			at      time.Duration
			permits int64
		}{{window / 2, again[i]}, {window * 3 / 2, next[i]}} {
			for _, extra := range []int64{0, 1} {
				start := stint.Instant(1_790_000_000_000_000)
				l := newLedger(policy)
				if more.permits+extra > 0 {
					l.admit(admission{start.Add(more.at), more.permits + extra})
				}
				l.admit(admission{start, 4})
				l.admit(admission{start, 6})
				if err := l.check(); (err != nil) != (extra > 0) {
					t.Errorf("%v: %d permits after %v: %v", limit.Algorithm, more.permits+extra, more.at, err)
				}
			}
		}
	}
}
