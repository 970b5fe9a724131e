package redisstore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// contender is one of the stores that must answer alike.
type contender struct {
	name  string
	store stint.Store
}

// contenders are the memory store and a Redis store of each encoding of the log, all
// empty and under one clock.
func contenders(t testing.TB, conn redisconn.Conn, clock *storetest.Clock) []contender {
	list := []contender{{"memory", memstore.New(memstore.Config{Now: clock.Now})}}
	for _, encoding := range encodings {
		store, _ := storeOn(t, conn, redisstore.Options{LogEncoding: encoding, Now: clock.Now})
		list = append(list, contender{string(encoding), store})
	}
	return list
}

// compare carries out a sequence on all contenders and reports the first answer in
// which one differs from the first of them.
func compare(t testing.TB, clock *storetest.Clock, stores []contender, sequence storetest.Sequence) error {
	steps := sequence.Steps
	for from := 0; from < len(steps); {
		to := from + 1
		for to < len(steps) && steps[from].Batch != 0 && steps[to].Batch == steps[from].Batch {
			to++
		}
		clock.Set(steps[from].At)
		var want []stint.Result
		var wantEach [][]stint.Outcome
		for i, c := range stores {
			results, each := carryOut(t, c.store, steps[from:to])
			if i == 0 {
				want, wantEach = results, each
				continue
			}
			for j := range results {
				got, expected := results[j], want[j]
				if got.Err != nil || expected.Err != nil || got.Decision != expected.Decision || !slices.Equal(each[j], wantEach[j]) {
					return fmt.Errorf("step %d: %s answers\n%#v %+v\nand %s\n%#v %+v",
						from+j, c.name, got, each[j], stores[0].name, expected, wantEach[j])
				}
			}
		}
		from = to
	}
	return nil
}

func carryOut(t testing.TB, store stint.Store, steps []storetest.Step) ([]stint.Result, [][]stint.Outcome) {
	ops := make([]stint.Op, len(steps))
	each := make([][]stint.Outcome, len(steps))
	for i, step := range steps {
		ops[i] = step.Op
		if step.Each {
			each[i] = make([]stint.Outcome, ops[i].Limits())
			ops[i].Each = each[i]
		}
	}
	results := make([]stint.Result, len(ops))
	store.DecideAll(t.Context(), ops, results)
	return results, each
}

// nearlyForward keeps the clock of a sequence from stepping back by a second or
// more: a state that has been worthless for that long may or may not be remembered.
func nearlyForward(sequence storetest.Sequence) storetest.Sequence {
	var newest stint.Instant
	for i := range sequence.Steps {
		step := &sequence.Steps[i]
		step.At = max(step.At, newest-stint.Instant(900_000))
		newest = max(newest, step.At)
	}
	return sequence
}

// mustAgree fails the test when stores differ on a sequence.
func mustAgree(t *testing.T, conn redisconn.Conn, sequence storetest.Sequence) {
	t.Helper()
	clock := storetest.NewClock(dawn)
	if err := compare(t, clock, contenders(t, conn, clock), sequence); err != nil {
		t.Fatalf("%v\n%s", err, sequence)
	}
}
