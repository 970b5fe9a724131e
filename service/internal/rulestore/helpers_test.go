package rulestore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// errUnreachable is the error of an unreachable store.
var errUnreachable = fmt.Errorf("%w: pulled out", stint.ErrUnavailable)

// A faulty store is a store with faults.
type faulty struct {
	mu sync.Mutex
	at rulestore.Store
	// before is called before each call by its name, and its error is returned in the call's place.
	before func(call string) error
	// after is called after each revision that was put, and its error returned.
	after   func() error
	noWatch bool // Watch is unsupported
	calls   map[string]int
}

func newFaulty() *faulty { return &faulty{at: rulestore.NewMemory(), calls: map[string]int{}} }

// set changes the store's faults.
func (f *faulty) set(change func(f *faulty)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// fails has calls of a name fail as of an unreachable store, all of them without a name, and none after heals.
func (f *faulty) fails(call string) {
	f.set(func(f *faulty) {
		f.before = func(name string) error {
			if call == "" || name == call {
				return errUnreachable
			}
			return nil
		}
	})
}

func (f *faulty) heals() { f.set(func(f *faulty) { f.before = nil }) }

// called counts the calls of a name.
func (f *faulty) called(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *faulty) enter(call string) (rulestore.Store, error) {
	f.mu.Lock()
	before, at := f.before, f.at
	f.calls[call]++
	f.mu.Unlock()
	if before != nil {
		return at, before(call)
	}
	return at, nil
}

func (f *faulty) Head(ctx context.Context) (rulestore.ID, error) {
	at, err := f.enter("Head")
	if err != nil {
		return rulestore.ID{}, err
	}
	return at.Head(ctx)
}

func (f *faulty) Load(ctx context.Context, number int64) (rulestore.Revision, error) {
	at, err := f.enter("Load")
	if err != nil {
		return rulestore.Revision{}, err
	}
	return at.Load(ctx, number)
}

func (f *faulty) Put(ctx context.Context, expected rulestore.ID, next *rulestore.Revision) error {
	at, err := f.enter("Put")
	if err != nil {
		return err
	}
	if err := at.Put(ctx, expected, next); err != nil {
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

func (f *faulty) History(ctx context.Context, before int64, n int) ([]rulestore.Info, error) {
	at, err := f.enter("History")
	if err != nil {
		return nil, err
	}
	return at.History(ctx, before, n)
}

func (f *faulty) Close() {}

func (f *faulty) Watch(ctx context.Context, ready, notify func()) error {
	at, err := f.enter("Watch")
	if err != nil {
		return err
	}
	f.mu.Lock()
	noWatch := f.noWatch
	f.mu.Unlock()
	if noWatch {
		return errors.ErrUnsupported
	}
	return at.Watch(ctx, ready, notify)
}

func manage(t testing.TB, at rulestore.Store) *rulestore.Manager {
	t.Helper()
	return must.Get(rulestore.NewManager(at, rulestore.Options{}))(t)
}

// rule is a valid rule. Its capacity says which edit made it.
func rule(id string, capacity int64) rules.Rule {
	return rules.Rule{ID: id, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(capacity, time.Minute)}}
}

func put(list ...rules.Rule) func(*rulestore.Draft) error {
	return func(d *rulestore.Draft) error {
		for _, r := range list {
			d.Put(r)
		}
		return nil
	}
}

func remove(ids ...string) func(*rulestore.Draft) error {
	return func(d *rulestore.Draft) error {
		for _, id := range ids {
			d.Delete(id)
		}
		return nil
	}
}

func edit(t testing.TB, r *rulestore.Manager, change func(*rulestore.Draft) error) rulestore.Edited {
	t.Helper()
	return must.Get(r.Edit(t.Context(), rulestore.Author{}, change))(t)
}

// capacities are rules in short: a:1 b:2.
func capacities(list []rules.Rule) string {
	var text strings.Builder
	for _, r := range list {
		fmt.Fprintf(&text, " %s:%d", r.ID, r.Limits[0].Capacity)
	}
	return text.String()
}

// now is a store's newest revision.
func now(t testing.TB, b rulestore.Store) rulestore.ID {
	t.Helper()
	return must.Get(b.Head(t.Context()))(t)
}

// holds compares the store's rules with rules in short.
func holds(t testing.TB, r *rulestore.Manager, number int64, want string) {
	t.Helper()
	s := must.Get(r.Current(t.Context()))(t)
	if got := capacities(s.Rules); s.Number != number || got != want {
		t.Errorf("revision %d:%s; want %d:%s", s.Number, got, number, want)
	}
}
