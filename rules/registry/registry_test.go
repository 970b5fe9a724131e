package registry_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/registry"
)

func TestOptions(t *testing.T) {
	_, err := registry.New(nil, registry.Options{Interval: time.Millisecond})
	for _, fault := range []string{"backend is ", "Interval is 1ms"} {
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), fault) {
			t.Errorf("%v; want that %q", err, fault)
		}
	}
	if _, err := registry.New(registry.NewMemory(), registry.Options{Interval: 2 * time.Minute}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("an interval of two minutes: %v", err)
	}
	if _, err := registry.New(registry.NewMemory(), registry.Options{IPv6Prefix: 129}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a prefix of 129 bits: %v", err)
	}
}

// Overrides name the networks by which the registry's clients are counted.
func TestIPv6Prefix(t *testing.T) {
	r, err := registry.New(registry.NewMemory(), registry.Options{IPv6Prefix: 56})
	if err != nil {
		t.Fatal(err)
	}
	for key, sound := range map[string]bool{"2001:db8::/56": true, "2001:db8::/64": false} {
		limited := rule("a", 1)
		limited.Scope, limited.Overrides = []string{rules.PerIP}, []rules.Override{{Key: key, Banned: true}}
		if _, err := r.Edit(t.Context(), registry.Author{}, put(limited)); (err == nil) != sound {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// An edit makes a version that says who made it, when, and what it changed.
func TestEdit(t *testing.T) {
	now := time.UnixMicro(5000)
	r, err := registry.New(registry.NewMemory(), registry.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	author := registry.Author{By: "ann", Action: "create", Comment: "why"}
	v, err := r.Edit(t.Context(), author, put(rule("b", 1), rule("a", 1)))
	if err != nil || v.Head != (registry.Head{Number: 1, At: 5000}) || v.Author != author || v.Time() != now {
		t.Fatalf("%+v, %v", v, err)
	}
	now = time.UnixMicro(4000) // a clock that steps back makes no version that is older than one before
	v, err = r.Edit(t.Context(), registry.Author{}, func(d *registry.Draft) error {
		if d.Head().Number != 1 {
			t.Errorf("the draft begins with %+v", d.Head())
		}
		d.Put(rule("c", 3))
		d.Put(rule("b", 1)) // as it is
		d.Put(rule("a", 2))
		d.Put(rule("d", 1))
		if was := d.Delete("d"); !was {
			t.Error("what is put is not deleted")
		}
		if was := d.Delete("nobody"); was {
			t.Error("nobody was there")
		}
		return nil
	})
	a1, a2, c := rule("a", 1), rule("a", 2), rule("c", 3)
	want := registry.Version{Head: registry.Head{Number: 2, At: 5001}, Changes: []registry.Change{{ID: "a", Before: &a1, After: &a2}, {ID: "c", After: &c}}}
	if err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf("%+v, %v; want %+v", v, err, want)
	}
	kept, err := r.Version(t.Context(), 2)
	if err != nil || !reflect.DeepEqual(kept, want) {
		t.Errorf("kept is %+v, %v; want %+v", kept, err, want)
	}
	holds(t, r, 2, " a:2 b:1 c:3")
}

// A draft is what was edited so far, and nobody else's.
func TestDraft(t *testing.T) {
	r := newRegistry(t, registry.NewMemory())
	edit(t, r, put(rule("a", 1), rule("b", 1), rule("c", 1)))
	edit(t, r, func(d *registry.Draft) error {
		mine := rule("a", 2)
		d.Put(mine)
		mine.Limits[0].Capacity = 9
		got, found := d.Rule("a")
		if !found || got.Limits[0].Capacity != 2 {
			t.Errorf("a is %+v", got)
		}
		got.Limits[0].Capacity = 8
		if b, found := d.Rule("b"); !found || b.Limits[0].Capacity != 1 {
			t.Errorf("b is %+v", b)
		} else {
			b.Limits[0].Capacity = 7
		}
		d.Delete("b")
		if _, found := d.Rule("b"); found {
			t.Error("b is deleted and there")
		}
		if got := capacities(d.Rules()); got != " a:2 c:1" {
			t.Error(got)
		}
		return nil
	})
	holds(t, r, 2, " a:2 c:1")
	v := edit(t, r, func(d *registry.Draft) error {
		d.Replace([]rules.Rule{rule("z", 1), rule("c", 1), rule("b", 4), rule("z", 5)})
		return nil
	})
	holds(t, r, 3, " b:4 c:1 z:5")
	if len(v.Changes) != 3 {
		t.Errorf("changes are %+v", v.Changes)
	}
}

// An edit that changes nothing makes no version.
func TestNothingChanged(t *testing.T) {
	backend := newFaulty()
	r := newRegistry(t, backend)
	first := edit(t, r, put(rule("a", 1)))
	for name, change := range map[string]func(*registry.Draft) error{
		"none":         func(*registry.Draft) error { return nil },
		"as it is":     put(rule("a", 1)),
		"to and fro":   func(d *registry.Draft) error { d.Delete("a"); d.Put(rule("a", 1)); return nil },
		"nobody":       remove("b"),
		"come and go":  func(d *registry.Draft) error { d.Put(rule("b", 1)); d.Delete("b"); return nil },
		"all the same": func(d *registry.Draft) error { d.Replace(d.Rules()); return nil },
	} {
		if v := edit(t, r, change); v.Head != first.Head || len(v.Changes) > 0 {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if n := backend.called("Commit"); n != 1 {
		t.Errorf("%d commits", n)
	}
}

// When another edit comes first, change is called again with what that one made.
func TestEditConflicts(t *testing.T) {
	backend := newFaulty()
	mine, other := newRegistry(t, backend), newRegistry(t, backend.at)
	edit(t, mine, put(rule("count", 1)))
	calls := 0
	count := func(d *registry.Draft) error {
		calls++
		r, _ := d.Rule("count")
		d.Put(rule("count", r.Limits[0].Capacity+1))
		if calls <= 3 {
			edit(t, other, put(rule("count", r.Limits[0].Capacity+10)))
		}
		return nil
	}
	v := edit(t, mine, count)
	if calls != 4 || v.Number != 5 {
		t.Errorf("%d calls made %+v", calls, v.Head)
	}
	holds(t, other, 5, " count:32")
	calls = -1000
	if _, err := mine.Edit(t.Context(), registry.Author{}, count); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("others are first for ever: %v", err)
	}
}

// An edit that fails leaves everything as it was.
func TestEditsRefused(t *testing.T) {
	backend := newFaulty()
	r := newRegistry(t, backend)
	edit(t, r, put(rule("a", 1)))
	mine := errors.New("mine")
	bad := rule("bad", 1)
	bad.Match.Paths = []string{"no slash"}
	worse := rules.Rule{ID: "worse"}
	latin := rule("latin", 1)
	latin.Labels = map[string]string{"name": "M\xfcller"}
	large := sized(t, "large", registry.MaxRuleBytes+1)
	var list []rules.Rule
	for i := range 5 {
		list = append(list, sized(t, fmt.Sprintf("large-%d", i), registry.MaxRuleBytes))
	}
	for name, test := range map[string]struct {
		author registry.Author
		change func(*registry.Draft) error
		want   error
		says   string
	}{
		"its own error":    {change: func(d *registry.Draft) error { d.Delete("a"); return mine }, want: mine, says: "mine"},
		"bad":              {change: put(rule("b", 1), bad), want: stint.ErrInvalid, says: `rule "bad": match.path`},
		"every fault":      {change: put(bad, worse), want: stint.ErrInvalid, says: `rule "worse": scope`},
		"not UTF-8":        {change: put(latin), want: stint.ErrInvalid, says: `rule "latin" is `},
		"author":           {author: registry.Author{By: "M\xfcller"}, change: put(rule("b", 1)), want: stint.ErrInvalid, says: "author"},
		"too large":        {change: put(list...), want: stint.ErrInvalid, says: `the edit is "104`},
		"a rule too large": {change: put(rule("b", 1), large), want: stint.ErrInvalid, says: `rule "large" is 2097`},
		"an unsound rule":  {change: put(rules.Rule{ID: "x", Limits: []stint.Limit{{}}}), want: stint.ErrInvalid, says: `rule "x"`},
	} {
		v, err := r.Edit(t.Context(), test.author, test.change)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || !reflect.DeepEqual(v, registry.Version{}) {
			t.Errorf("%s: %+v, %v; want that %q", name, v, err, test.says)
		}
	}
	if _, err := r.Edit(t.Context(), registry.Author{}, put(bad)); !errors.As(err, new(*rules.Fault)) {
		t.Errorf("%v is no Fault", err)
	}
	if n := backend.called("Commit"); n != 1 {
		t.Errorf("%d commits", n)
	}
	holds(t, r, 1, " a:1")
}

// sized is a rule of so many bytes of JSON.
func sized(t *testing.T, id string, bytes int) rules.Rule {
	t.Helper()
	r := rule(id, 1)
	r.Labels = map[string]string{"text": ""}
	text, err := notation.JSON(r)
	if err != nil {
		t.Fatal(err)
	}
	r.Labels["text"] = strings.Repeat("x", bytes-len(text))
	return r
}

// The largest edit that is allowed is made.
func TestLargestEdit(t *testing.T) {
	r := newRegistry(t, registry.NewMemory())
	list := []rules.Rule{{}}
	for i := range 4 {
		list = append(list, sized(t, fmt.Sprintf("large-%d", i), registry.MaxRuleBytes-1000))
	}
	bytes := func(v registry.Version) int {
		text, err := v.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	list[0] = sized(t, "last", 1000)
	first := edit(t, r, put(list...))
	edit(t, r, func(d *registry.Draft) error { d.Replace(nil); return nil })
	first.Number = 3
	room := registry.MaxVersionBytes - bytes(first)
	list[0] = sized(t, "last", 1000+room+1)
	if _, err := r.Edit(t.Context(), registry.Author{}, put(list...)); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("one byte more: %v", err)
	}
	list[0] = sized(t, "last", 1000+room)
	if n := bytes(edit(t, r, put(list...))); n != registry.MaxVersionBytes {
		t.Errorf("the largest edit has %d bytes", n)
	}
}

// The largest rule that is allowed can be edited, and one byte more can't be made.
func TestLargestRule(t *testing.T) {
	r := newRegistry(t, registry.NewMemory())
	if _, err := r.Edit(t.Context(), registry.Author{}, put(sized(t, "large", registry.MaxRuleBytes+1))); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("one byte more: %v", err)
	}
	large := sized(t, "large", registry.MaxRuleBytes)
	edit(t, r, put(large))
	large.Labels = map[string]string{"text": strings.Replace(large.Labels["text"], "x", "y", 1)}
	edit(t, r, put(large))
	edit(t, r, remove("large"))
	if _, err := r.Rollback(t.Context(), registry.Author{}, 1, nil); err != nil {
		t.Error(err)
	}
}

// While the backend is away, edits and reads fail by its error; what may have been made is seen
// when it is back.
func TestBackendAway(t *testing.T) {
	backend := newFaulty()
	r := newRegistry(t, backend)
	edit(t, r, put(rule("a", 1)))
	for _, call := range []string{"Head", "Commit"} {
		backend.set(func(f *faulty) {
			f.before = func(name string) error {
				if name == call {
					return errAway
				}
				return nil
			}
		})
		_, err := r.Edit(t.Context(), registry.Author{}, put(rule("a", 2)))
		if !errors.Is(err, stint.ErrUnavailable) || errors.Is(err, registry.ErrNotBegun) != (call == "Head") || errors.Is(err, registry.ErrRefused) {
			t.Errorf("%s: %v", call, err)
		}
	}
	backend.set(func(f *faulty) { f.before = func(string) error { return errAway } })
	if _, err := r.Current(t.Context()); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("Current: %v", err)
	}
	backend.set(func(f *faulty) { f.before = nil })
	holds(t, r, 1, " a:1")
	backend.set(func(f *faulty) { f.after = func() error { return errAway } })
	if _, err := r.Edit(t.Context(), registry.Author{}, put(rule("a", 3))); !errors.Is(err, stint.ErrUnavailable) || errors.Is(err, registry.ErrNotBegun) {
		t.Errorf("made and not told: %v", err)
	}
	holds(t, r, 2, " a:3")
	backend.set(func(f *faulty) {
		f.after, f.before = nil, func(call string) error {
			if call == "Versions" {
				return errAway
			}
			return nil
		}
	})
	if _, err := r.Rollback(t.Context(), registry.Author{}, 1, nil); !errors.Is(err, registry.ErrNotBegun) || !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("a rollback over versions that can't be read: %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Edit(done, registry.Author{}, put(rule("a", 4))); !errors.Is(err, registry.ErrNotBegun) || !errors.Is(err, context.Canceled) {
		t.Errorf("an edit that nobody waits for: %v", err)
	}
}

// A registry that is few versions behind reads those, and one that is many behind reads all rules.
func TestCatchingUp(t *testing.T) {
	backend := newFaulty()
	behind, ahead := newRegistry(t, backend), newRegistry(t, backend.at)
	edit(t, ahead, put(rule("a", 1)))
	holds(t, behind, 1, " a:1")
	loads := backend.called("Load")
	number := int64(1)
	for _, steps := range []int{1, 4} {
		for range steps {
			number++
			edit(t, ahead, put(rule("a", number)))
		}
		holds(t, behind, number, fmt.Sprintf(" a:%d", number))
	}
	if n := backend.called("Load") - loads; n != 0 {
		t.Errorf("%d loads for a few versions", n)
	}
	for range 5 {
		number++
		edit(t, ahead, put(rule("a", number)))
	}
	holds(t, behind, number, fmt.Sprintf(" a:%d", number))
	if n := backend.called("Load") - loads; n != 1 {
		t.Errorf("%d loads for many versions, want 1", n)
	}
}

// A version that is made between the look at the head and that at the versions does not hide
// that those before were made anew.
func TestOtherPast(t *testing.T) {
	for _, other := range []int64{1, 2, 3} {
		backend := newFaulty()
		r := newRegistry(t, backend)
		edit(t, r, put(rule("lost", 1)))
		edit(t, r, put(rule("lost", 2)))
		anew := registry.NewMemory()
		their := newRegistry(t, anew)
		for n := range other {
			edit(t, their, put(rule("theirs", n+1)))
		}
		backend.set(func(f *faulty) {
			f.at = anew
			f.before = func(call string) error {
				if call == "Versions" {
					edit(t, their, put(rule("theirs", 9)))
				}
				return nil
			}
		})
		if _, err := r.Current(t.Context()); err != nil {
			t.Fatal(err)
		}
		backend.set(func(f *faulty) { f.before = nil })
		now, err := r.Current(t.Context())
		if err != nil || strings.Contains(capacities(now.Rules), "lost") {
			t.Errorf("after %d other versions: %s, %v", other, capacities(now.Rules), err)
		}
	}
}

// An edit is made of the rules that are there, also when these were lost and others made anew with the same
// number since they were read.
func TestEditAfterAnotherPast(t *testing.T) {
	anew := registry.NewMemory()
	edit(t, newRegistry(t, anew), put(rule("theirs", 1)))
	r := newRegistry(t, &replaced{registry.NewMemory(), anew})
	edit(t, r, put(rule("lost", 1)))
	first := true
	edit(t, r, func(d *registry.Draft) error {
		_, lost := d.Rule("lost")
		_, theirs := d.Rule("theirs")
		if lost != first || theirs == first {
			t.Errorf("the draft has%s", capacities(d.Rules()))
		}
		first = false
		d.Put(rule("mine", 1))
		return nil
	})
	holds(t, r, 2, " mine:1 theirs:1")
	holds(t, newRegistry(t, anew), 2, " mine:1 theirs:1")
}

// replaced is a backend in whose place another is as the second version is made.
type replaced struct {
	registry.Backend
	by registry.Backend
}

func (l *replaced) Commit(ctx context.Context, before registry.Head, v *registry.Version) error {
	if v.Number == 2 {
		l.Backend = l.by
	}
	return l.Backend.Commit(ctx, before, v)
}
