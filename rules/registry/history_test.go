package registry_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/registry"
)

func TestVersions(t *testing.T) {
	r := newRegistry(t, registry.NewMemory())
	for n := range int64(5) {
		edit(t, r, put(rule("a", n+1)))
	}
	list, err := r.Versions(t.Context(), 4, 2)
	if err != nil || len(list) != 2 || list[0].Number != 3 || list[1].Number != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, bad := range [][2]int{{-1, 1}, {0, 0}, {0, registry.KeptVersions + 1}} {
		if _, err := r.Versions(t.Context(), int64(bad[0]), bad[1]); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if v, err := r.Version(t.Context(), 4); err != nil || v.Changes[0].After.Limits[0].Capacity != 4 {
		t.Errorf("version 4: %+v, %v", v, err)
	}
	for _, number := range []int64{-1, 0, 6, math.MaxInt64} {
		if _, err := r.Version(t.Context(), number); !errors.Is(err, registry.ErrNotKept) {
			t.Errorf("version %d: %v", number, err)
		}
	}
}

// A rollback makes a new version that is as an older one was, over however many it goes.
func TestRollback(t *testing.T) {
	r := newRegistry(t, registry.NewMemory())
	want := []string{""}
	note := func() {
		s, err := r.Current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, capacities(s.Rules))
	}
	for n := int64(1); n <= 130; n++ {
		switch n % 5 {
		case 0:
			edit(t, r, remove(fmt.Sprint("rule-", (n-2)%7), fmt.Sprint("rule-", (n-1)%7)))
		default:
			edit(t, r, put(rule(fmt.Sprint("rule-", n%7), n)))
		}
		note()
	}
	author := registry.Author{By: "ann", Action: "rollback"}
	for _, number := range []int64{129, 128, 80, 79, 30, 1, 0, 64} {
		v, err := r.Rollback(t.Context(), author, number, nil)
		if err != nil || v.Author != author {
			t.Fatalf("to %d: %+v, %v", number, v, err)
		}
		if v.Number != int64(len(want)) {
			t.Errorf("to %d is version %d, want %d", number, v.Number, len(want))
		}
		note()
		holds(t, r, v.Number, want[number])
	}
	head := int64(len(want) - 1)
	if v, err := r.Rollback(t.Context(), author, head, nil); err != nil || v.Number != head || len(v.Changes) > 0 {
		t.Errorf("to where it is: %+v, %v", v, err)
	}
	if _, err := r.Rollback(t.Context(), author, head+1, nil); !errors.Is(err, registry.ErrNotKept) {
		t.Errorf("to what was never: %v", err)
	}
	if _, err := r.Rollback(t.Context(), author, -1, nil); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("to below 0: %v", err)
	}
	mine := errors.New("mine")
	check := func(d *registry.Draft) error {
		if len(d.Changes()) > 0 || d.Head().Number != head {
			t.Errorf("check sees %+v of %+v", d.Changes(), d.Head())
		}
		return mine
	}
	if _, err := r.Rollback(t.Context(), author, 3, check); !errors.Is(err, mine) {
		t.Errorf("check says no: %v", err)
	}
	holds(t, r, head, want[head])
}

// thrifty is a backend that tells how many versions it was asked for at most.
type thrifty struct {
	registry.Backend
	most int
}

func (b *thrifty) Versions(ctx context.Context, before int64, n int) ([]registry.Version, error) {
	b.most = max(b.most, n)
	return b.Backend.Versions(ctx, before, n)
}

// A version may hold 8 MB of rules, so few are held at a time however far a rollback goes.
func TestRollbackReadsFewVersionsAtATime(t *testing.T) {
	backend := &thrifty{Backend: registry.NewMemory()}
	r := newRegistry(t, backend)
	for n := range int64(100) {
		edit(t, r, put(rule("a", n+1)))
	}
	if _, err := r.Rollback(t.Context(), registry.Author{}, 7, nil); err != nil {
		t.Fatal(err)
	}
	holds(t, r, 101, " a:7")
	if backend.most != 10 {
		t.Errorf("%d versions were asked for at a time, want 10", backend.most)
	}
}

// What is not kept any more can't be gone back to, and the versions since can.
func TestRollbackTooFar(t *testing.T) {
	r := newRegistry(t, registry.NewMemory())
	const made = registry.KeptVersions + 20
	for n := range int64(made) {
		edit(t, r, put(rule("a", n+1)))
	}
	for _, number := range []int64{0, 19} {
		if _, err := r.Rollback(t.Context(), registry.Author{}, number, nil); !errors.Is(err, registry.ErrNotKept) {
			t.Errorf("to %d: %v", number, err)
		}
	}
	holds(t, r, made, fmt.Sprintf(" a:%d", made))
	if _, err := r.Rollback(t.Context(), registry.Author{}, 20, nil); err != nil {
		t.Error(err)
	}
	holds(t, r, made+1, " a:20")
}

// An old version that this registry would refuse is not gone back to.
func TestRollbackToWhatIsRefused(t *testing.T) {
	backend := registry.NewMemory()
	bad := rule("bad", 1)
	bad.Scope = nil
	v := registry.Version{Head: registry.Head{Number: 1, At: 1}, Changes: []registry.Change{{ID: "bad", After: &bad}}}
	if err := backend.Commit(t.Context(), registry.Head{}, &v); err != nil {
		t.Fatal(err)
	}
	r := newRegistry(t, backend)
	if _, err := r.Edit(t.Context(), registry.Author{}, put(rule("a", 1))); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), `"bad"`) {
		t.Errorf("an edit that leaves it bad: %v", err)
	}
	edit(t, r, func(d *registry.Draft) error { d.Delete("bad"); d.Put(rule("a", 1)); return nil })
	if _, err := r.Rollback(t.Context(), registry.Author{}, 1, nil); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), `"bad"`) {
		t.Errorf("%v", err)
	}
	holds(t, r, 2, " a:1")
}

// holed is a backend that lost one version from among the others.
type holed struct {
	registry.Backend
	number int64
}

func (h holed) Versions(ctx context.Context, before int64, n int) ([]registry.Version, error) {
	list, err := h.Backend.Versions(ctx, before, n+1)
	list = slices.DeleteFunc(list, func(v registry.Version) bool { return v.Number == h.number })
	return list[:min(n, len(list))], err
}

// Nothing is gone back over that is not known.
func TestRollbackOverAHole(t *testing.T) {
	for hole := int64(2); hole <= 4; hole++ {
		r := newRegistry(t, holed{registry.NewMemory(), hole})
		for n := range int64(4) {
			edit(t, r, put(rule("a", n+1)))
		}
		if _, err := r.Rollback(t.Context(), registry.Author{}, 1, nil); !errors.Is(err, registry.ErrNotKept) {
			t.Errorf("without version %d: %v", hole, err)
		}
		holds(t, r, 4, " a:4")
	}
}
