package registrytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

const editors = 16

// Edits of many editors by two backends are all made, one after another, and none is lost.
func (s Size) testEdits(t *testing.T, open Open) {
	p := newPlace(t, open)
	var group sync.WaitGroup
	faults := make(chan error, editors)
	registries := make([]*registry.Registry, 4) // as the processes that editors share
	for i := range registries {
		r, err := registry.New(p.backends[i%2], registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		registries[i] = r
	}
	for editor := range editors {
		r := registries[editor%len(registries)]
		group.Go(func() {
			for i := range s.edits {
				if err := insist(p.ctx, r, editor, i); err != nil {
					faults <- fmt.Errorf("editor %d, edit %d: %w", editor, i, err)
					return
				}
			}
		})
	}
	group.Wait()
	close(faults)
	for err := range faults {
		t.Error(err)
	}
	all := editors * s.edits
	p.versionsAre(0, 2*all, countdown(int64(all), 1))
	for _, b := range p.backends {
		snapshot, err := b.Load(p.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(snapshot.Rules) != all+1 || says(snapshot.Rules, "count") != fmt.Sprint(all) {
			t.Errorf("%d rules, the count is %q; want %d and %d", len(snapshot.Rules), says(snapshot.Rules, "count"), all+1, all)
		}
	}
}

// insist makes an edit however often others come first: it adds a rule and counts.
func insist(ctx context.Context, r *registry.Registry, editor, i int) error {
	for {
		_, err := r.Edit(ctx, registry.Author{}, func(d *registry.Draft) error {
			var count int
			if rule, ok := d.Rule("count"); ok {
				if _, err := fmt.Sscan(rule.Labels["says"], &count); err != nil {
					return err
				}
			}
			d.Put(plain("count", fmt.Sprint(count+1)))
			d.Put(plain(fmt.Sprintf("editor-%d.%d", editor, i), ""))
			return nil
		})
		if !errors.Is(err, registry.ErrConflict) {
			return err
		}
	}
}

// Nobody sees a part of a version: while rules come, go and change together, whoever loads
// them finds them as one version has them.
func (s Size) testWhole(t *testing.T, open Open) {
	p := newPlace(t, open)
	many := s.beside
	id := func(i int64) string { return fmt.Sprintf("rule-%03d", i%int64(many)) }
	var list []rules.Rule
	for i := range int64(many) {
		list = append(list, plain(id(i), "at rest"))
	}
	list = append(list, plain("first", "1"), plain("last", "1"))
	p.commit(p.next(list, id(1)))
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	var group sync.WaitGroup
	for _, b := range p.backends {
		group.Go(func() {
			for loads := 0; ctx.Err() == nil || loads == 0; loads++ {
				now, err := b.Load(p.ctx)
				if err != nil {
					t.Errorf("load: %v", err)
					return
				}
				// Version n lacks rule n alone, and its first and last say n.
				want := fmt.Sprint(now.Number)
				if first, last, gone := says(now.Rules, "first"), says(now.Rules, "last"), says(now.Rules, id(now.Number)); len(now.Rules) != many+1 || first != want || last != want || gone != "" {
					t.Errorf("version %d with %d rules, want %d: first says %q, last %q, the one that is gone %q", now.Number, len(now.Rules), many+1, first, last, gone)
					return
				}
			}
		})
	}
	for n := int64(2); n < int64(s.rounds) && !t.Failed(); n++ {
		says := fmt.Sprint(n)
		p.commit(p.next([]rules.Rule{plain("first", says), plain("last", says), plain(id(n-1), "back")}, id(n)))
	}
	cancel()
	group.Wait()
	p.check()
}

// patience is how long news may take. A backend that needs half of it is too slow, and one
// that is stuck fails the test.
const patience = 20 * time.Second

// Who watches hears of versions that another backend makes, from when it is ready until its
// context ends.
func testWatch(t *testing.T, open Open) {
	p := newPlace(t, open)
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	ready, news, ended := make(chan struct{}, 1), make(chan struct{}, 1), make(chan error, 1)
	signal := func(c chan struct{}) func() {
		return func() {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	go func() { ended <- p.backends[0].Watch(ctx, signal(ready), signal(news)) }()
	late, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	select {
	case <-ready:
	case err := <-ended:
		if errors.Is(err, errors.ErrUnsupported) {
			return // which a backend may say
		}
		t.Fatalf("the watch ended before it was ready: %v", err)
	case <-late.Done():
		t.Fatal("the watch is not ready")
	}
	for number := range 3 {
		v := p.next([]rules.Rule{plain("a", fmt.Sprint(number))})
		if err := p.backends[1].Commit(p.ctx, p.head, &v); err != nil {
			t.Fatal(err)
		}
		p.head = v.Head
		p.rules["a"] = *v.Changes[0].After
		select {
		case <-news:
		case err := <-ended:
			t.Fatalf("the watch ended: %v", err)
		case <-late.Done():
			t.Fatalf("no news of version %d", v.Number)
		}
		if head, err := p.backends[0].Head(p.ctx); err != nil || head != p.head {
			t.Fatalf("the news came before the version: %+v, %v", head, err)
		}
	}
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the watch does not say why it ended")
		}
	case <-late.Done():
		t.Fatal("the watch does not end")
	}
}

// A context that has ended ends every call, and nothing is written.
func testCancelled(t *testing.T, open Open) {
	p := newPlace(t, open)
	p.commit(p.next([]rules.Rule{plain("a", "1")}))
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	v := p.next([]rules.Rule{plain("a", "2")})
	b := p.backends[0]
	for name, call := range map[string]func() error{
		"Head":     func() error { _, err := b.Head(ctx); return err },
		"Load":     func() error { _, err := b.Load(ctx); return err },
		"Commit":   func() error { return b.Commit(ctx, p.head, &v) },
		"Versions": func() error { _, err := b.Versions(ctx, 0, 1); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want that the context is cancelled", name, err)
		}
	}
	p.check()
	p.checkVersions(2)
}
