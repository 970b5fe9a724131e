package rulestore_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

func TestOptions(t *testing.T) {
	_, err := rulestore.NewManager(nil, rulestore.Options{Interval: time.Millisecond})
	for _, fault := range []string{"store is ", "Interval is 1ms"} {
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), fault) {
			t.Errorf("%v; want that %q", err, fault)
		}
	}
	for _, options := range []rulestore.Options{{Interval: 2 * time.Minute}, {IPv6Prefix: 129}} {
		if _, err := rulestore.NewManager(rulestore.NewMemory(), options); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%+v: %v", options, err)
		}
	}
}

// Overrides name the networks by which the manager's clients are counted.
func TestIPv6Prefix(t *testing.T) {
	r := must.Get(rulestore.NewManager(rulestore.NewMemory(), rulestore.Options{IPv6Prefix: 56}))(t)
	for key, sound := range map[string]bool{"2001:db8::/56": true, "2001:db8::/64": false} {
		limited := rule("a", 1)
		limited.Scope, limited.Overrides = []string{rules.PerIP}, []rules.Override{{Key: key, Banned: true}}
		if _, err := r.Edit(t.Context(), rulestore.Author{}, put(limited)); (err == nil) != sound {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// An edit makes a revision that says who made it, when, and what it changed.
func TestEdit(t *testing.T) {
	now := time.UnixMicro(5000)
	r := must.Get(rulestore.NewManager(rulestore.NewMemory(), rulestore.Options{Now: func() time.Time { return now }}))(t)
	author := rulestore.Author{By: "ann", Action: "create", Comment: "why"}
	v, err := r.Edit(t.Context(), author, put(rule("b", 1), rule("a", 1)))
	if err != nil || v.ID != (rulestore.ID{Number: 1, At: 5000}) || v.Author != author || v.Time() != now {
		t.Fatalf("%+v, %v", v, err)
	}
	now = time.UnixMicro(4000) // a clock that steps back makes no revision that is older than one before
	v, err = r.Edit(t.Context(), rulestore.Author{}, func(d *rulestore.Draft) error {
		if d.ID().Number != 1 {
			t.Errorf("the draft begins with %+v", d.ID())
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
	want := rulestore.ID{Number: 2, At: 5001}
	if err != nil || v.ID != want || v.Count != 3 || !reflect.DeepEqual(v.Changes, rulediff.Changes{Added: []string{"c"}, Changed: []string{"a"}}) {
		t.Errorf("%+v, %v; want %+v", v, err, want)
	}
	kept, err := r.Revision(t.Context(), 2)
	if err != nil || kept.Info != v.Info {
		t.Errorf("kept is %+v, %v; want %+v", kept, err, want)
	}
	holds(t, r, 2, " a:2 b:1 c:3")
}

// A draft has the edits so far, and belongs to one edit.
func TestDraft(t *testing.T) {
	r := manage(t, rulestore.NewMemory())
	edit(t, r, put(rule("a", 1), rule("b", 1), rule("c", 1)))
	edit(t, r, func(d *rulestore.Draft) error {
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
	v := edit(t, r, func(d *rulestore.Draft) error {
		d.Replace([]rules.Rule{rule("z", 1), rule("c", 1), rule("b", 4), rule("z", 5)})
		return nil
	})
	holds(t, r, 3, " b:4 c:1 z:5")
	if want := (rulediff.Changes{Added: []string{"b", "z"}, Removed: []string{"a"}}); !reflect.DeepEqual(v.Changes, want) {
		t.Errorf("changes are %+v, want %+v", v.Changes, want)
	}
}

// An edit that changes nothing makes no revision.
func TestNothingChanged(t *testing.T) {
	kept := newFaulty()
	r := manage(t, kept)
	first := edit(t, r, put(rule("a", 1)))
	for name, change := range map[string]func(*rulestore.Draft) error{
		"none":         func(*rulestore.Draft) error { return nil },
		"as it is":     put(rule("a", 1)),
		"to and fro":   func(d *rulestore.Draft) error { d.Delete("a"); d.Put(rule("a", 1)); return nil },
		"nobody":       remove("b"),
		"come and go":  func(d *rulestore.Draft) error { d.Put(rule("b", 1)); d.Delete("b"); return nil },
		"all the same": func(d *rulestore.Draft) error { d.Replace(d.Rules()); return nil },
	} {
		if v := edit(t, r, change); v.ID != first.ID || !v.None() {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if n := kept.called("Put"); n != 1 {
		t.Errorf("%d commits", n)
	}
}

// When another edit comes first, change is called again with its rules.
func TestEditConflicts(t *testing.T) {
	kept := newFaulty()
	mine, other := manage(t, kept), manage(t, kept.at)
	edit(t, mine, put(rule("count", 1)))
	calls := 0
	count := func(d *rulestore.Draft) error {
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
		t.Errorf("%d calls made %+v", calls, v.ID)
	}
	holds(t, other, 5, " count:32")
	calls = -1000
	if _, err := mine.Edit(t.Context(), rulestore.Author{}, count); !errors.Is(err, rulestore.ErrConflict) {
		t.Errorf("others are first for ever: %v", err)
	}
}

// An edit that fails leaves everything as it was.
func TestEditsRefused(t *testing.T) {
	kept := newFaulty()
	r := manage(t, kept)
	edit(t, r, put(rule("a", 1)))
	mine := errors.New("mine")
	bad := rule("bad", 1)
	bad.Match.Paths = []string{"no slash"}
	worse := rules.Rule{ID: "worse"}
	latin := rule("latin", 1)
	latin.Labels = map[string]string{"name": "M\xfcller"}
	large := sized(t, "large", rulestore.MaxRuleBytes+1)
	for name, test := range map[string]struct {
		author rulestore.Author
		change func(*rulestore.Draft) error
		want   error
		says   string
	}{
		"its own error":    {change: func(d *rulestore.Draft) error { d.Delete("a"); return mine }, want: mine, says: "mine"},
		"bad":              {change: put(rule("b", 1), bad), want: stint.ErrInvalid, says: `rule "bad": match.path`},
		"every fault":      {change: put(bad, worse), want: stint.ErrInvalid, says: `rule "worse": scope`},
		"not UTF-8":        {change: put(latin), want: stint.ErrInvalid, says: `rule "latin" is `},
		"author":           {author: rulestore.Author{By: "M\xfcller"}, change: put(rule("b", 1)), want: stint.ErrInvalid, says: "author"},
		"a rule too large": {change: put(rule("b", 1), large), want: stint.ErrInvalid, says: `rule "large" is 2097`},
		"an unsound rule":  {change: put(rules.Rule{ID: "x", Limits: []stint.Limit{{}}}), want: stint.ErrInvalid, says: `rule "x"`},
	} {
		v, err := r.Edit(t.Context(), test.author, test.change)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || !reflect.DeepEqual(v, rulestore.Edited{}) {
			t.Errorf("%s: %+v, %v; want that %q", name, v, err, test.says)
		}
	}
	if _, err := r.Edit(t.Context(), rulestore.Author{}, put(bad)); !errors.As(err, new(*rules.Fault)) {
		t.Errorf("%v is no Fault", err)
	}
	if n := kept.called("Put"); n != 1 {
		t.Errorf("%d commits", n)
	}
	holds(t, r, 1, " a:1")
}

// sized is a rule of so many bytes of JSON.
func sized(t *testing.T, id string, bytes int) rules.Rule {
	t.Helper()
	r := rule(id, 1)
	r.Labels = map[string]string{"text": ""}
	text := must.Get(rulefile.JSON(r))(t)
	r.Labels["text"] = strings.Repeat("x", bytes-len(text))
	return r
}

// A store that records the texts of rules that it is given.
type texts struct {
	rulestore.Store
	given map[string][]byte
}

func (s *texts) Put(ctx context.Context, expected rulestore.ID, next *rulestore.Revision) error {
	s.given = next.Texts
	return s.Store.Put(ctx, expected, next)
}

// A rule that is put is written once: the store and the author are given what the manager wrote.
func TestRuleIsWrittenOnce(t *testing.T) {
	store := &texts{Store: rulestore.NewMemory()}
	r := manage(t, store)
	edit(t, r, put(rule("kept", 1)))
	made := edit(t, r, put(rule("new", 2)))
	text, err := rulefile.JSON(rule("new", 2))
	if err != nil || len(made.Texts) != 1 || string(made.Texts["new"]) != string(text) || !reflect.DeepEqual(store.given, made.Texts) {
		t.Errorf("the author is given %q and the store %q, want %q; %v", made.Texts, store.given, text, err)
	}
	var codec rulestore.Codec
	next := rulestore.Revision{Rules: []rules.Rule{rule("new", 2)}, Texts: map[string][]byte{"new": []byte(`{"id":"as given"}`)}}
	if text, err := codec.Next(&next); err != nil || string(text) != "[\n{\"id\":\"as given\"}\n]\n" || next.Count != 1 || next.Bytes != int64(len(text)) {
		t.Errorf("%q, %v; %d rules of %d bytes", text, err, next.Count, next.Bytes)
	}
	if kept, err := r.Revision(t.Context(), 2); err != nil || kept.Texts != nil {
		t.Errorf("the texts are kept: %v, %v", kept.Texts, err)
	}
}

// The largest rule that is allowed can be edited. TestEditsRefused has one of a byte more.
func TestLargestRule(t *testing.T) {
	r := manage(t, rulestore.NewMemory())
	large := sized(t, "large", rulestore.MaxRuleBytes)
	edit(t, r, put(large))
	large.Labels = map[string]string{"text": strings.Replace(large.Labels["text"], "x", "y", 1)}
	edit(t, r, put(large))
	edit(t, r, remove("large"))
	must.Get(r.Rollback(t.Context(), rulestore.Author{}, 1, "", nil))(t)
}

// While the store is unreachable, edits and reads return its error. A revision that was stored nevertheless is seen
// when the store is back.
func TestStoreUnreachable(t *testing.T) {
	kept := newFaulty()
	r := manage(t, kept)
	edit(t, r, put(rule("a", 1)))
	for _, call := range []string{"Head", "Put"} {
		kept.fails(call)
		_, err := r.Edit(t.Context(), rulestore.Author{}, put(rule("a", 2)))
		if !errors.Is(err, stint.ErrUnavailable) || errors.Is(err, rulestore.ErrNotBegun) != (call == "Head") || errors.Is(err, rulestore.ErrRefused) {
			t.Errorf("%s: %v", call, err)
		}
	}
	kept.fails("")
	if _, err := r.Current(t.Context()); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("Current: %v", err)
	}
	kept.heals()
	holds(t, r, 1, " a:1")
	kept.set(func(f *faulty) { f.after = func() error { return errUnreachable } })
	if _, err := r.Edit(t.Context(), rulestore.Author{}, put(rule("a", 3))); !errors.Is(err, stint.ErrUnavailable) || errors.Is(err, rulestore.ErrNotBegun) {
		t.Errorf("made and not told: %v", err)
	}
	holds(t, r, 2, " a:3")
	kept.set(func(f *faulty) { f.after = nil })
	kept.fails("Load")
	if _, err := r.Rollback(t.Context(), rulestore.Author{}, 1, "", nil); !errors.Is(err, rulestore.ErrNotBegun) || !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("a rollback to a revision that can't be read: %v", err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Edit(done, rulestore.Author{}, put(rule("a", 4))); !errors.Is(err, rulestore.ErrNotBegun) || !errors.Is(err, context.Canceled) {
		t.Errorf("an edit that nobody waits for: %v", err)
	}
}

// An edit changes the newest rules, also if the rules that it has read were lost and others were made with the same
// number since.
func TestEditAfterAnotherPast(t *testing.T) {
	anew := rulestore.NewMemory()
	edit(t, manage(t, anew), put(rule("theirs", 1)))
	r := manage(t, &replaced{rulestore.NewMemory(), anew})
	edit(t, r, put(rule("lost", 1)))
	first := true
	edit(t, r, func(d *rulestore.Draft) error {
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
	holds(t, manage(t, anew), 2, " mine:1 theirs:1")
}

// replaced is a store that is replaced by another when the second revision is put.
type replaced struct {
	rulestore.Store
	by rulestore.Store
}

func (l *replaced) Put(ctx context.Context, expected rulestore.ID, next *rulestore.Revision) error {
	if next.Number == 2 {
		l.Store = l.by
	}
	return l.Store.Put(ctx, expected, next)
}
