package registry_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

// errAway is what a backend says that can't be asked.
var errAway = fmt.Errorf("%w: pulled out", stint.ErrUnavailable)

// A faulty backend is another one with faults.
type faulty struct {
	mu sync.Mutex
	at registry.Backend
	// before is called before each call by its name, and its error is returned in the call's place.
	before func(call string) error
	// after is called after each commit that was made, and its error returned.
	after func() error
	deaf  bool // Watch is unsupported
	calls map[string]int
}

func newFaulty() *faulty { return &faulty{at: registry.NewMemory(), calls: map[string]int{}} }

// set changes what the backend does.
func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// called is how often a call was made.
func (f *faulty) called(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *faulty) enter(call string) (registry.Backend, error) {
	f.mu.Lock()
	before, at := f.before, f.at
	f.calls[call]++
	f.mu.Unlock()
	if before != nil {
		return at, before(call)
	}
	return at, nil
}

func (f *faulty) Head(ctx context.Context) (registry.Head, error) {
	at, err := f.enter("Head")
	if err != nil {
		return registry.Head{}, err
	}
	return at.Head(ctx)
}

func (f *faulty) Load(ctx context.Context) (registry.Snapshot, error) {
	at, err := f.enter("Load")
	if err != nil {
		return registry.Snapshot{}, err
	}
	return at.Load(ctx)
}

func (f *faulty) Commit(ctx context.Context, before registry.Head, v *registry.Version) error {
	at, err := f.enter("Commit")
	if err != nil {
		return err
	}
	if err := at.Commit(ctx, before, v); err != nil {
		return err
	}
	f.mu.Lock()
	after := f.after
	f.mu.Unlock()
	if after != nil {
		return after()
	}
	return nil
}

func (f *faulty) Versions(ctx context.Context, before int64, n int) ([]registry.Version, error) {
	at, err := f.enter("Versions")
	if err != nil {
		return nil, err
	}
	return at.Versions(ctx, before, n)
}

func (f *faulty) Watch(ctx context.Context, ready, notify func()) error {
	at, err := f.enter("Watch")
	if err != nil {
		return err
	}
	f.mu.Lock()
	deaf := f.deaf
	f.mu.Unlock()
	if deaf {
		return errors.ErrUnsupported
	}
	return at.Watch(ctx, ready, notify)
}

func newRegistry(t testing.TB, backend registry.Backend) *registry.Registry {
	t.Helper()
	r, err := registry.New(backend, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rule is one that can be enforced, with a capacity to tell its versions by.
func rule(id string, capacity int64) rules.Rule {
	return rules.Rule{ID: id, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(capacity, time.Minute)}}
}

func put(list ...rules.Rule) func(*registry.Draft) error {
	return func(d *registry.Draft) error {
		for _, r := range list {
			d.Put(r)
		}
		return nil
	}
}

func remove(ids ...string) func(*registry.Draft) error {
	return func(d *registry.Draft) error {
		for _, id := range ids {
			d.Delete(id)
		}
		return nil
	}
}

func edit(t testing.TB, r *registry.Registry, change func(*registry.Draft) error) registry.Version {
	t.Helper()
	v, err := r.Edit(t.Context(), registry.Author{}, change)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// capacities are rules in short: a:1 b:2.
func capacities(list []rules.Rule) string {
	text := ""
	for _, r := range list {
		text += fmt.Sprintf(" %s:%d", r.ID, r.Limits[0].Capacity)
	}
	return text
}

// now is a backend's newest version.
func now(t testing.TB, b registry.Backend) registry.Head {
	t.Helper()
	head, err := b.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// holds compares what the backend has with rules in short.
func holds(t testing.TB, r *registry.Registry, number int64, want string) {
	t.Helper()
	s, err := r.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := capacities(s.Rules); s.Number != number || got != want {
		t.Errorf("version %d:%s; want %d:%s", s.Number, got, number, want)
	}
}
