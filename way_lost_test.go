package stint_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// forgetful is a store whose state is lost on demand.
type forgetful struct{ stint.Store }

// A Reservation names the way that it is on, so that a store which has lost it charges that way.
func TestACommitNamesItsWay(t *testing.T) {
	policy := func(name string, capacity int64) *stint.Policy {
		return must.Get(stint.NewPolicy(name, stint.FixedWindow(capacity, 24*time.Hour).FromFirst()))(t)
	}
	floor, parent := policy("floor", 1), policy("parent", 10)
	store := &forgetful{memstore.New(memstore.Config{})}
	op := stint.Op{
		Extra: &stint.Extra{Groups: [][]stint.Way{{
			{{Key: "k", Policy: floor, Permits: 1}, {Key: "k", Policy: parent, Permits: 1}},
			{{Key: "k", Policy: parent, Permits: 1}},
		}}},
	}
	for via, want := range []int64{0, 1} { // what the floor has left
		held, d, err := stint.Reserve(t.Context(), store, op, nil, stint.Hold{})
		if err != nil || int(d.Via) != via {
			t.Fatalf("%+v, %v", d, err)
		}
		before := store.Store
		store.Store = memstore.New(memstore.Config{})
		if end, err := held.Commit(t.Context(), 1); err != nil || !end.Late || end.Applied != 1 {
			t.Errorf("by way %d: %+v, %v", via, end, err)
		}
		left := stint.Op{Verb: stint.VerbPeek, Claim: stint.Claim{Key: "k", Policy: floor, Permits: 1}}
		if d, err := store.Decide(t.Context(), left); err != nil || d.Remaining != want {
			t.Errorf("by way %d: %d of the floor are left, want %d, %v", via, d.Remaining, want, err)
		}
		store.Store = before
	}
	wrong := op
	wrong.Verb = stint.VerbCommit
	wrong.Extra = &stint.Extra{Groups: op.Extra.Groups, Hold: &stint.HoldOp{Hold: stint.Hold{ID: "h"}, Via: 2}}
	if _, err := store.Decide(t.Context(), wrong); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a way that is not there: %v", err)
	}
}
