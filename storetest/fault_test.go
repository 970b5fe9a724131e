package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

var errBroken = errors.New("broken")

// Until it is told to fail, a faulty store is the store that it wraps.
func TestFaultyPassesThrough(t *testing.T) {
	Run(t, func(t testing.TB, clock *Clock) stint.Store {
		f := NewFaulty(like(&reference{})(t, clock))
		f.Inject(func(Call) Fault { return Fault{After: true} })
		return f
	}, Options{Operations: 500, NoHolds: true, NoWays: true})
}

// A fault before the call consumes nothing, one after it has consumed.
func TestFaultyFails(t *testing.T) {
	policy := policyOf(t, "", simpleLimit(stint.AlgorithmTokenBucket, 9))
	op := operation(stint.VerbTake, "k", policy, 2)
	for _, row := range []struct {
		name  string
		fault Fault
		batch bool
		left  int64
	}{
		{"before", Fault{Err: errBroken}, false, 9},
		{"after", Fault{Err: errBroken, After: true}, false, 7},
		{"before a batch", Fault{Err: errBroken}, true, 9},
		{"after a batch", Fault{Err: errBroken, After: true}, true, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := NewFaulty(like(&reference{})(t, NewClock(noon)))
			var seen []Call
			f.Inject(func(c Call) Fault { seen = append(seen, c); return row.fault })
			if row.batch {
				results := make([]stint.Result, 2)
				f.DecideAll(t.Context(), []stint.Op{op, op}, results)
				for _, r := range results {
					if !errors.Is(r.Err, errBroken) || r.Decision != (stint.Decision{}) {
						t.Errorf("%+v, expected the fault's error alone", r)
					}
				}
			} else if d, err := f.Decide(t.Context(), op); !errors.Is(err, errBroken) || d != (stint.Decision{}) {
				t.Errorf("%+v, error %v, expected the fault's error alone", d, err)
			}
			if len(seen) != 1 || seen[0].Batch != row.batch || seen[0].Ops[0].Key != "k" {
				t.Errorf("the plan was asked about %+v", seen)
			}
			f.Inject(nil)
			d, err := f.Decide(t.Context(), operation(stint.VerbPeek, "k", policy, 1))
			if err != nil || d.Remaining != row.left {
				t.Errorf("then %+v, error %v, expected %d left", d, err, row.left)
			}
			if f.Calls() != 2 {
				t.Errorf("%d calls, expected 2", f.Calls())
			}
		})
	}
}

// A blocked call ends with its context, and not before.
func TestFaultyBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaulty(like(&reference{})(t, NewClock(noon)))
		policy := policyOf(t, "", simpleLimit(stint.AlgorithmFixedWindow, 9))
		f.Inject(func(c Call) Fault { return Fault{Block: true, After: c.Batch} })
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := f.Decide(ctx, operation(stint.VerbTake, "k", policy, 1)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Decide: error %v, expected the context's", err)
			}
		})
		group.Go(func() {
			results := make([]stint.Result, 1)
			f.DecideAll(ctx, []stint.Op{operation(stint.VerbTake, "k", policy, 1)}, results)
			if !errors.Is(results[0].Err, context.DeadlineExceeded) {
				t.Errorf("DecideAll: error %v, expected the context's", results[0].Err)
			}
		})
		group.Wait()
		if waited := time.Since(start); waited != 3*time.Second {
			t.Errorf("blocked for %s, expected 3s", waited)
		}
		f.Inject(nil)
		if d, err := f.Decide(t.Context(), operation(stint.VerbPeek, "k", policy, 1)); err != nil || d.Remaining != 8 {
			t.Errorf("then %+v, error %v, expected 8 left: only the batch was carried out", d, err)
		}
	})
}

// A reset of policies fails before the store hears of it, or after it is done.
func TestFaultyResets(t *testing.T) {
	policy := policyOf(t, "", simpleLimit(stint.AlgorithmTokenBucket, 9))
	for _, r := range []stint.Scope{{Policy: ""}, {All: true}} {
		for name, row := range map[string]struct {
			fault Fault
			left  int64
		}{"before": {Fault{Err: errBroken}, 7}, "after": {Fault{Err: errBroken, After: true}, 9}} {
			t.Run(r.String()+" "+name, func(t *testing.T) {
				f := NewFaulty(like(&reference{})(t, NewClock(noon)))
				must.Get(f.Decide(t.Context(), operation(stint.VerbTake, "k", policy, 2)))(t)
				f.Inject(func(c Call) Fault {
					if !c.Reset || c.Ops != nil {
						t.Errorf("the plan was asked about %+v", c)
					}
					return row.fault
				})
				if err := f.ResetAll(t.Context(), r); !errors.Is(err, errBroken) {
					t.Errorf("error %v, expected the fault's", err)
				}
				f.Inject(nil)
				d, err := f.Decide(t.Context(), operation(stint.VerbPeek, "k", policy, 1))
				if err != nil || d.Remaining != row.left {
					t.Errorf("%+v, error %v, expected %d left", d, err, row.left)
				}
			})
		}
	}
}
