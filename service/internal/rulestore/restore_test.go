package rulestore_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// A store that lost everything gets the rules back, which stay in force.
func TestFollowRestores(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, _ *rulestore.Manager) {
		f := follow(t, r)
		f.since()
		edit(t, r, put(rule("a", 1), rule("b", 2)))
		edit(t, r, put(rule("a", 3)))
		f.since()
		empty := rulestore.NewMemory()
		kept.set(func(f *faulty) { f.at = empty })
		interval(2)
		f.expect(nil)
		s, err := empty.Load(t.Context(), 0)
		if err != nil || s.Number != 1 || capacities(s.Rules) != " a:3 b:2" {
			t.Errorf("the store has %+v, %v", s, err)
		}
		v, err := r.Revision(t.Context(), 1)
		if err != nil || v.By != rulestore.RestoredBy || v.Action != "restore revision 2" || v.Comment == "" {
			t.Errorf("%+v, %v", v, err)
		}
		edit(t, manage(t, empty), put(rule("c", 1)))
		interval(1)
		f.expect([]string{" a:3 b:2 c:1"})
		f.stop()
	})
}

// The rules come back before an edit that is the first to notice the loss, so that it drops none.
func TestEditRestores(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, _ *rulestore.Manager) {
		kept.set(func(f *faulty) { f.noWatch = true })
		f := follow(t, r)
		f.since()
		edit(t, r, put(rule("a", 1), rule("b", 2)))
		f.since()
		kept.set(func(f *faulty) { f.at = rulestore.NewMemory() })
		edit(t, r, put(rule("c", 3)))
		f.expect([]string{" a:1 b:2 c:3"})
		holds(t, r, 2, " a:1 b:2 c:3")
		f.stop()
	})
}

// After a short outage the rules are restored. After a long one others may have changed them, so
// they stay in force and are not written.
func TestFollowRestoresWhatIsRecent(t *testing.T) {
	for outage, restored := range map[int]bool{1: true, 55: true, 65: false, 3600: false} {
		bubble(t, func(t *testing.T, kept *faulty, r, _ *rulestore.Manager) {
			f := follow(t, r)
			f.since()
			edit(t, r, put(rule("a", 1), rule("b", 2)))
			f.since()
			empty := rulestore.NewMemory()
			kept.fails("")
			interval(outage)
			f.expect(nil, "pulled out")
			kept.set(func(f *faulty) { f.at, f.before = empty, nil })
			interval(5)
			if restored {
				f.expect([]string{" a:1 b:2"}) // it answers again
				holds(t, manage(t, empty), 1, " a:1 b:2")
			} else {
				f.expect(nil, "the store has no rules any more, and revision 1 ")
				if head := now(t, empty); head != (rulestore.ID{}) {
					t.Errorf("after %ds: restored as %+v", outage, head)
				}
				holds(t, r, 0, "")
				edit(t, r, put(rule("c", 3)))
				f.expect([]string{" c:3"})
			}
			f.stop()
		})
	}
}

// A manager that begins to follow does not know whether rules that it read before are the newest.
func TestFollowRestoresNothingOld(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, other *rulestore.Manager) {
		edit(t, r, put(rule("a", 1)))
		edit(t, other, put(rule("a", 2)))
		empty := rulestore.NewMemory()
		kept.set(func(f *faulty) { f.at = empty })
		f := follow(t, r)
		f.expect([]string{" a:1"}, "the store has no rules any more")
		f.stop()
		f = follow(t, r)
		f.expect([]string{" a:1"}, "the store has no rules any more")
		edit(t, manage(t, empty), put(rule("b", 1)))
		f.expect([]string{" b:1"})
		f.stop()
		if head := now(t, empty); head.Number != 1 {
			t.Errorf("the head is %+v", head)
		}
	})
}

// A manager that is not followed restores nothing: it may have read the rules long ago.
func TestUnfollowedRestoresNothing(t *testing.T) {
	kept := newFaulty()
	r := manage(t, kept)
	edit(t, r, put(rule("a", 1)))
	edit(t, manage(t, kept), put(rule("a", 2)))
	kept.set(func(f *faulty) { f.at = rulestore.NewMemory() })
	holds(t, r, 0, "")
	if head := now(t, kept); head != (rulestore.ID{}) {
		t.Errorf("a read restored %+v", head)
	}
	edit(t, r, put(rule("b", 1)))
	holds(t, r, 1, " b:1")
}

// If several managers notice the loss, one restores the rules.
func TestRestoredOnce(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, _ *rulestore.Manager) {
		others := []*rulestore.Manager{r, manage(t, kept), manage(t, kept)}
		edit(t, r, put(rule("a", 1)))
		var followers []*follower
		for _, r := range others {
			f := follow(t, r)
			f.expect([]string{" a:1"})
			followers = append(followers, f)
		}
		empty := rulestore.NewMemory()
		kept.set(func(f *faulty) { f.at = empty })
		interval(3)
		for _, f := range followers {
			taken, told := f.since()
			if slices.ContainsFunc(taken, func(set string) bool { return set != " a:1" }) || len(told) > 0 {
				t.Errorf("took %q and was told %q", taken, told)
			}
		}
		if head, err := empty.Head(t.Context()); err != nil || head.Number != 1 {
			t.Errorf("the head is %+v, %v", head, err)
		}
		for _, f := range followers {
			f.stop()
		}
	})
}

// The manager that restores rules reports it once, with the revision that they were: also when an edit
// notices the loss first, and when the store did not confirm them.
func TestRestoringIsTold(t *testing.T) {
	for name, notice := range map[string]func(t *testing.T, kept *faulty, r *rulestore.Manager){
		"by a look": func(*testing.T, *faulty, *rulestore.Manager) { interval(3) },
		"by an edit": func(t *testing.T, _ *faulty, r *rulestore.Manager) {
			edit(t, r, put(rule("b", 2)))
		},
		"not confirmed": func(_ *testing.T, kept *faulty, _ *rulestore.Manager) {
			kept.set(func(f *faulty) { f.after = func() error { return errUnreachable } })
			interval(2)
			kept.set(func(f *faulty) { f.after = nil })
			interval(2)
		},
		"unreachable for too long": func(_ *testing.T, kept *faulty, _ *rulestore.Manager) {
			kept.fails("")
			interval(65)
			kept.heals()
			interval(2)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			kept := newFaulty()
			kept.noWatch = true
			var told []string
			options := rulestore.Options{Restored: func(made rulestore.Info, was rulestore.ID) {
				told = append(told, fmt.Sprintf("%d by %s of %d, %d rules", made.Number, made.By, was.Number, made.Count))
			}}
			var all []*rulestore.Manager
			for range 3 {
				all = append(all, must.Get(rulestore.NewManager(kept, options))(t))
			}
			edit(t, all[0], put(rule("a", 1)))
			edit(t, all[0], put(rule("a", 2)))
			var followers []*follower
			for _, r := range all {
				followers = append(followers, follow(t, r))
			}
			synctest.Wait()
			kept.set(func(f *faulty) { f.at = rulestore.NewMemory() })
			notice(t, kept, all[0])
			synctest.Wait()
			want := "[1 by stint of 2, 1 rules]"
			if name == "unreachable for too long" {
				want = "[]"
			}
			if got := fmt.Sprint(told); got != want {
				t.Errorf("%s: told %s, want %s", name, got, want)
			}
			for _, f := range followers {
				f.stop()
			}
		})
	}
}

// Revisions of the same number, before and after a loss, are distinguished.
func TestFollowAnotherPast(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, _ *rulestore.Manager) {
		f := follow(t, r)
		f.since()
		edit(t, r, put(rule("a", 1)))
		edit(t, r, put(rule("b", 2)))
		f.since()
		interval(1)
		other := rulestore.NewMemory()
		their := manage(t, other)
		edit(t, their, put(rule("x", 1)))
		edit(t, their, put(rule("y", 2)))
		kept.set(func(f *faulty) { f.at = other })
		interval(1)
		f.expect([]string{" x:1 y:2"})
		edit(t, r, put(rule("z", 3)))
		f.expect([]string{" x:1 y:2 z:3"})
		f.stop()
	})
}
