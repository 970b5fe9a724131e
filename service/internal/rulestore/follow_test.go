package rulestore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// A follower follows a manager, in a bubble of synctest.
type follower struct {
	t     *testing.T
	stop  func()
	mu    sync.Mutex
	taken []string // each set in short
	told  []string
	sets  []*rules.Set // all that were taken
	in    []int64      // the revision in force at each
}

func follow(t *testing.T, r *rulestore.Manager) *follower {
	ctx, cancel := context.WithCancel(t.Context())
	f := &follower{t: t}
	ended := make(chan error, 1)
	go func() {
		ended <- r.Follow(ctx, func(set *rules.Set) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.taken = append(f.taken, capacities(set.Rules()))
			f.sets, f.in = append(f.sets, set), append(f.in, r.InForce())
		}, func(err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.told = append(f.told, err.Error())
		})
	}()
	f.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("following ends with %v", err)
		}
	}
	return f
}

// since returns what was taken and told since the last time.
func (f *follower) since() (taken, told []string) {
	synctest.Wait()
	return f.now()
}

func (f *follower) now() (taken, told []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken, told, f.taken, f.told = f.taken, f.told, nil, nil
	return taken, told
}

// expect compares what was taken and told since the last time; each of told is a part of it.
func (f *follower) expect(taken []string, told ...string) {
	f.t.Helper()
	gotTaken, gotTold := f.since()
	if !slices.Equal(gotTaken, taken) || !slices.EqualFunc(gotTold, told, strings.Contains) {
		f.t.Errorf("took %q and was told %q; want %q and %q", gotTaken, gotTold, taken, told)
	}
}

// bubble runs a test in one, with a store that two managers share.
func bubble(t *testing.T, test func(t *testing.T, kept *faulty, followed, other *rulestore.Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		kept := newFaulty()
		test(t, kept, manage(t, kept), manage(t, kept.at))
	})
}

func interval(n int) { <-time.After(time.Duration(n) * time.Second) }

// A follower gets the existing rules, edits of its manager before they return, and other edits at once.
func TestFollow(t *testing.T) {
	bubble(t, func(t *testing.T, _ *faulty, r, other *rulestore.Manager) {
		edit(t, other, put(rule("a", 1)))
		f := follow(t, r)
		f.expect([]string{" a:1"})
		edit(t, r, put(rule("a", 2)))
		if taken, _ := f.now(); len(taken) != 1 || taken[0] != " a:2" { // without waiting for anything
			t.Errorf("took %q when the edit returned", taken)
		}
		f.expect(nil)
		before := time.Now()
		edit(t, other, put(rule("b", 3)))
		f.expect([]string{" a:2 b:3"})
		edit(t, other, remove("a", "b"))
		f.expect([]string{""})
		if d := time.Since(before); d != 0 {
			t.Errorf("the notification took %s", d)
		}
		interval(5)
		f.expect(nil)
		f.stop()
		edit(t, r, put(rule("c", 1)))
		f.expect(nil)
	})
}

// A follower may ask of which revision the rules are that it is handed.
func TestInForce(t *testing.T) {
	bubble(t, func(t *testing.T, _ *faulty, r, other *rulestore.Manager) {
		edit(t, other, put(rule("a", 1)))
		f := follow(t, r)
		synctest.Wait()
		edit(t, r, put(rule("a", 2)))
		edit(t, other, put(rule("b", 3)))
		synctest.Wait()
		if f.stop(); !slices.Equal(f.in, []int64{1, 2, 3}) || len(f.told) > 0 {
			t.Errorf("the revisions are %v, and it was told %q", f.in, f.told)
		}
	})
}

// A manager without rules is followed too, and one that was read before at once.
func TestFollowAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, _ *rulestore.Manager) {
		f := follow(t, r)
		f.expect([]string{""})
		f.stop()
		edit(t, r, put(rule("a", 1)))
		kept.fails("")
		f = follow(t, r)
		f.expect([]string{" a:1"}, "pulled out")
		f.stop()
	})
}

// A manager can be followed once at a time.
func TestFollowTwice(t *testing.T) {
	bubble(t, func(t *testing.T, _ *faulty, r, _ *rulestore.Manager) {
		f := follow(t, r)
		f.expect([]string{""})
		take, refused := func(*rules.Set) { t.Error("taken") }, func(error) { t.Error("refused") }
		if err := r.Follow(t.Context(), take, refused); err == nil || !strings.Contains(err.Error(), "followed already") {
			t.Errorf("followed twice: %v", err)
		}
		done, cancel := context.WithCancel(t.Context())
		cancel()
		for range 20 {
			if err := r.Follow(done, take, refused); err != nil && !strings.Contains(err.Error(), "followed already") {
				t.Errorf("following for no time: %v", err)
			}
		}
		edit(t, r, put(rule("a", 1)))
		f.expect([]string{" a:1"})
		f.stop()
	})
}

// Without notifications a revision is taken within the interval.
func TestPolling(t *testing.T) {
	for name, change := range map[string]func(f *faulty){
		"unsupported": func(f *faulty) { f.set(func(f *faulty) { f.noWatch = true }) },
		"cut":         func(f *faulty) { f.fails("Watch") },
		"none sent":   func(f *faulty) { f.set(func(f *faulty) { f.at = mute{f.at} }) },
		"endless":     func(f *faulty) { f.set(func(f *faulty) { f.at = flood{f.at} }) },
	} {
		bubble(t, func(t *testing.T, kept *faulty, r, other *rulestore.Manager) {
			change(kept)
			f := follow(t, r)
			f.since()
			for n := int64(1); n <= 3; n++ {
				edit(t, other, put(rule("a", n)))
				interval(1)
				if taken, told := f.since(); len(taken) != 1 || len(told) > 0 {
					t.Errorf("%s: took %q, was told %q", name, taken, told)
				}
			}
			f.stop()
		})
	}
}

// Of 10,000 rules one that changes is in force within an interval too, by one poll and one load.
func TestPollingManyRules(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, other *rulestore.Manager) {
		kept.set(func(f *faulty) { f.at = mute{f.at} })
		edit(t, other, put(many(10_000)...))
		f := follow(t, r)
		f.since()
		for n := int64(1); n <= 3; n++ {
			edit(t, other, put(rule("rule-000001", 1_000_000+n)))
			synctest.Wait()
			loads, heads := kept.called("Load"), kept.called("Head")
			interval(1)
			taken, told := f.since()
			if len(taken) != 1 || len(told) > 0 || !strings.Contains(taken[0], fmt.Sprintf(" rule-000001:%d ", 1_000_000+n)) || strings.Count(taken[0], ":") != 10_000 {
				t.Errorf("edit %d: took %d sets, was told %q", n, len(taken), told)
			}
			if loads, heads = kept.called("Load")-loads, kept.called("Head")-heads; loads != 1 || heads != 1 {
				t.Errorf("edit %d: %d loads after %d polls, want 1 and 1", n, loads, heads)
			}
		}
		f.stop()
	})
}

// mute is a store that never notifies.
type mute struct{ rulestore.Store }

func (mute) Watch(ctx context.Context, ready, _ func()) error {
	ready()
	<-ctx.Done()
	return ctx.Err()
}

// flood ends each watch at once.
type flood struct{ rulestore.Store }

func (flood) Watch(_ context.Context, ready, _ func()) error {
	ready()
	return errUnreachable
}

// After notifications were cut, they are received again.
func TestNewsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, other *rulestore.Manager) {
		kept.fails("Watch")
		f := follow(t, r)
		f.expect([]string{""})
		kept.heals()
		interval(1)
		f.expect(nil)
		edit(t, other, put(rule("a", 1)))
		f.expect([]string{" a:1"}) // no time has passed
		f.stop()
	})
}

// Cut is called once if notifications end while the store answers, until they are back. It is not called while the store
// is unreachable.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := newFaulty()
		told := 0
		r := must.Get(rulestore.NewManager(kept, rulestore.Options{Cut: func(err error) {
			if !errors.Is(err, errUnreachable) {
				t.Errorf("told %v", err)
			}
			told++
		}}))(t)
		expect := func(what string, want int) {
			t.Helper()
			interval(5)
			synctest.Wait()
			if told != want {
				t.Errorf("%s: told %d times, want %d", what, told, want)
			}
		}
		kept.set(func(f *faulty) { f.at = flood{f.at} })
		kept.fails("Watch")
		f := follow(t, r)
		expect("cut", 1)
		kept.heals()
		expect("received", 1)
		kept.fails("")
		expect("unreachable", 1)
		kept.heals()
		expect("back", 1)
		kept.fails("Watch")
		expect("cut again", 2)
		kept.set(func(f *faulty) { f.noWatch, f.before = true, nil })
		expect("unsupported", 2)
		f.stop()
	})
}

// While the store is unreachable the rules stay in force. The follower is told once, until the store is back.
func TestFollowUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, other *rulestore.Manager) {
		edit(t, other, put(rule("a", 1)))
		f := follow(t, r)
		f.expect([]string{" a:1"})
		for n := int64(2); n <= 3; n++ {
			kept.fails("")
			edit(t, other, put(rule("a", n)))
			interval(5)
			f.expect(nil, "pulled out")
			kept.heals()
			interval(1)
			f.expect([]string{" a:" + string(rune('0'+n))})
		}
		f.stop()
	})
}

// Unreadable rules are reported after an outage too, each fault once, and again if there was no fault in between.
func TestFollowTells(t *testing.T) {
	unreadable := func(what string) error {
		return fmt.Errorf("%w: %w", rulestore.ErrUnreadable, stint.Invalid(what, "garbage", "JSON"))
	}
	bubble(t, func(t *testing.T, kept *faulty, r, other *rulestore.Manager) {
		edit(t, other, put(rule("a", 1)))
		f := follow(t, r)
		f.expect([]string{" a:1"})
		asked := 0
		for i, step := range []struct {
			fault func() error
			told  []string
		}{
			{func() error { asked++; return fmt.Errorf("%w: port %d", stint.ErrUnavailable, asked) }, []string{"port "}},
			{func() error { return context.DeadlineExceeded }, nil}, // it still is unreachable
			{func() error { return unreadable("rule a") }, []string{"rule a"}},
			{func() error { return unreadable("rule b") }, []string{"rule b"}},
			{func() error { return errUnreachable }, []string{"pulled out"}},
			{func() error { return unreadable("rule b") }, []string{"rule b"}},
			{func() error { return nil }, nil},
			{func() error { return unreadable("rule b") }, []string{"rule b"}},
			{func() error { return nil }, nil},
			{func() error { return errUnreachable }, []string{"pulled out"}},
		} {
			kept.set(func(f *faulty) {
				f.before = func(call string) error {
					if call == "Head" {
						return step.fault()
					}
					return nil
				}
			})
			interval(5)
			taken, told := f.since()
			again := 0 // nothing is wrong any more
			if step.told == nil && step.fault() == nil {
				again = 1
			}
			if len(taken) != again || len(told) != len(step.told) || len(told) > 0 && !strings.Contains(told[0], step.told[0]) {
				t.Errorf("step %d: took %q, was told %q; want %q", i, taken, told, step.told)
			}
		}
		f.stop()
	})
}

// When a fault is over, take is called with the same rules, so that the follower knows that they are those of
// the store. A fault that returns after an edit is reported again.
func TestFollowTakesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, _ *rulestore.Manager) {
		kept.set(func(f *faulty) { f.noWatch = true })
		f := follow(t, r)
		f.expect([]string{""})
		kept.fails("")
		interval(3)
		f.expect(nil, "pulled out")
		kept.heals()
		edit(t, r, put(rule("a", 1)))
		kept.fails("")
		interval(3)
		f.expect([]string{" a:1"}, "pulled out")
		kept.heals()
		interval(3)
		f.expect([]string{" a:1"})
		interval(3)
		f.expect(nil)
		f.stop()
	})
}

// While a follower waits for a long edit, it does not report the store as unreachable.
func TestFollowLongEdit(t *testing.T) {
	bubble(t, func(t *testing.T, _ *faulty, r, _ *rulestore.Manager) {
		f := follow(t, r)
		f.expect([]string{""})
		edit(t, r, func(d *rulestore.Draft) error {
			interval(12)
			d.Put(rule("a", 1))
			return nil
		})
		interval(2)
		f.expect([]string{" a:1"})
		f.stop()
	})
}

// A store that does not answer is reported after a timeout, and followed on when it answers.
func TestFollowHanging(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, other *rulestore.Manager) {
		edit(t, other, put(rule("a", 1)))
		hang := make(chan struct{})
		kept.set(func(f *faulty) { f.at = hanging{f.at, hang} })
		f := follow(t, r)
		f.expect(nil)
		interval(6)
		f.expect(nil, context.DeadlineExceeded.Error())
		close(hang)
		interval(10)
		f.expect([]string{" a:1"})
		f.stop()
	})
}

// hanging is a store whose Head does not return before until is closed.
type hanging struct {
	rulestore.Store
	until chan struct{}
}

func (h hanging) Head(ctx context.Context) (rulestore.ID, error) {
	select {
	case <-h.until:
		return h.Store.Head(ctx)
	case <-ctx.Done():
		return rulestore.ID{}, ctx.Err()
	}
}

// A revision that can't be enforced is refused once, with all its faults; the rules from before
// stay until the next revision that can. Reads and edits meanwhile do not suppress the report.
func TestFollowRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, kept *faulty, r, other *rulestore.Manager) {
		kept.set(func(f *faulty) { f.noWatch = true })
		f := follow(t, r)
		f.expect([]string{""})
		edit(t, r, put(rule("a", 1)))
		f.expect([]string{" a:1"})
		bad, worse := rule("bad", 1), rule("worse", 1)
		bad.Match.Paths, worse.Scope = []string{"no slash"}, nil
		v := rulestore.Revision{Info: rulestore.Info{ID: rulestore.ID{Number: 2, At: 1}}, Rules: []rules.Rule{rule("a", 1), bad, worse}}
		must.Do(t, kept.Put(t.Context(), now(t, kept), &v))
		if s, err := r.Current(t.Context()); err != nil || s.Number != 2 || len(s.Rules) != 3 {
			t.Errorf("current is %+v, %v", s, err)
		}
		if _, err := r.Edit(t.Context(), rulestore.Author{}, put(rule("b", 1))); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("an edit that leaves the faults: %v", err)
		}
		interval(3)
		taken, told := f.since()
		if len(taken) > 0 || len(told) != 1 || !strings.Contains(told[0], `revision 2: `) || !strings.Contains(told[0], `"bad"`) || !strings.Contains(told[0], `"worse"`) {
			t.Errorf("took %q, was told %q", taken, told)
		}
		f.stop()
		f = follow(t, r)
		f.expect([]string{" a:1"}, `revision 2: `)
		kept.fails("")
		interval(3)
		f.expect(nil, "pulled out")
		kept.heals()
		interval(3)
		f.expect(nil, `revision 2: `) // again, as it is what is wrong now
		edit(t, other, remove("bad", "worse"))
		interval(1)
		f.expect([]string{" a:1"})
		f.stop()
	})
}

// A reload keeps the limits that did not change, and so their clients' states.
func TestFollowKeepsPolicies(t *testing.T) {
	bubble(t, func(t *testing.T, _ *faulty, r, other *rulestore.Manager) {
		f := follow(t, r)
		edit(t, other, put(rule("a", 1), rule("b", 1)))
		synctest.Wait()
		edit(t, other, put(rule("b", 2)))
		synctest.Wait()
		edit(t, r, put(rule("c", 2)))
		f.stop()
		policies := map[*stint.Policy]bool{}
		for _, s := range f.sets[len(f.sets)-3:] {
			var m rules.Matches
			must.Do(t, s.Match(&rules.Request{}, &m))
			for i := range m.Len() {
				var held rules.Matched
				must.Do(t, m.At(i, stint.VerbTake, &held))
				if m.Rule(i).ID == "a" {
					policies[held.Claim.Policy] = true
				}
			}
		}
		if len(policies) != 1 {
			t.Errorf("%d policies of the rule that did not change", len(policies))
		}
	})
}
