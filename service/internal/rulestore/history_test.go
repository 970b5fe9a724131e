package rulestore_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

func TestManagerHistory(t *testing.T) {
	m := manage(t, rulestore.NewMemory())
	for n := range int64(5) {
		edit(t, m, put(rule("a", n+1)))
	}
	list, err := m.History(t.Context(), 4, 2)
	if err != nil || len(list) != 2 || list[0].Number != 3 || list[1].Number != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, bad := range [][2]int{{-1, 1}, {0, 0}, {0, rulestore.KeptRevisions + 1}} {
		if _, err := m.History(t.Context(), int64(bad[0]), bad[1]); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if revision, err := m.Revision(t.Context(), 4); err != nil || capacities(revision.Rules) != " a:4" {
		t.Errorf("revision 4: %+v, %v", revision, err)
	}
	for _, number := range []int64{-1, 0, 6, math.MaxInt64} {
		if _, err := m.Revision(t.Context(), number); !errors.Is(err, rulestore.ErrNotKept) {
			t.Errorf("revision %d: %v", number, err)
		}
	}
}

// A rollback makes a new revision with the rules of an older one, over any number of revisions.
func TestRollback(t *testing.T) {
	r := manage(t, rulestore.NewMemory())
	want := []string{""}
	note := func() { want = append(want, capacities(must.Get(r.Current(t.Context()))(t).Rules)) }
	for n := int64(1); n <= 130; n++ {
		change := put(rule(fmt.Sprint("rule-", n%7), n))
		if n%5 == 0 {
			change = remove(fmt.Sprint("rule-", (n-2)%7), fmt.Sprint("rule-", (n-1)%7))
		}
		edit(t, r, change)
		note()
	}
	author := rulestore.Author{By: "ann", Action: "rollback"}
	for _, number := range []int64{129, 128, 80, 79, 30, 1, 0, 64} {
		v, err := r.Rollback(t.Context(), author, number, "", nil)
		if err != nil || v.Author != author {
			t.Fatalf("to %d: %+v, %v", number, v, err)
		}
		if v.Number != int64(len(want)) {
			t.Errorf("to %d is revision %d, want %d", number, v.Number, len(want))
		}
		note()
		holds(t, r, v.Number, want[number])
	}
	head := int64(len(want) - 1)
	if v, err := r.Rollback(t.Context(), author, head, "", nil); err != nil || v.Number != head || !v.None() {
		t.Errorf("to where it is: %+v, %v", v, err)
	}
	if _, err := r.Rollback(t.Context(), author, head+1, "", nil); !errors.Is(err, rulestore.ErrNotKept) {
		t.Errorf("to what was never: %v", err)
	}
	if _, err := r.Rollback(t.Context(), author, -1, "", nil); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("to below 0: %v", err)
	}
	mine := errors.New("mine")
	check := func(d *rulestore.Draft) error {
		if len(d.Changes()) > 0 || d.ID().Number != head {
			t.Errorf("check sees %+v of %+v", d.Changes(), d.ID())
		}
		return mine
	}
	if _, err := r.Rollback(t.Context(), author, 3, "", check); !errors.Is(err, mine) {
		t.Errorf("check says no: %v", err)
	}
	holds(t, r, head, want[head])
}

// A rollback to a revision that this manager would refuse fails.
func TestRollbackToWhatIsRefused(t *testing.T) {
	kept := rulestore.NewMemory()
	bad := rule("bad", 1)
	bad.Scope = nil
	v := rulestore.Revision{Info: rulestore.Info{ID: rulestore.ID{Number: 1, At: 1}}, Rules: []rules.Rule{bad}}
	must.Do(t, kept.Put(t.Context(), rulestore.ID{}, &v))
	r := manage(t, kept)
	if _, err := r.Edit(t.Context(), rulestore.Author{}, put(rule("a", 1))); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), `"bad"`) {
		t.Errorf("an edit that leaves it bad: %v", err)
	}
	edit(t, r, func(d *rulestore.Draft) error { d.Delete("bad"); d.Put(rule("a", 1)); return nil })
	if _, err := r.Rollback(t.Context(), rulestore.Author{}, 1, "", nil); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), `"bad"`) {
		t.Errorf("%v", err)
	}
	holds(t, r, 2, " a:1")
}
