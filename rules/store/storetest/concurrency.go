package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/store"
)

const editors = 8

// Edits of many editors by two stores are all made, one after another, and none is lost.
func (s Size) testEdits(p *place) {
	var group sync.WaitGroup
	for editor := range editors {
		at := p.stores[editor%2]
		group.Go(func() {
			for i := range s.Edits {
				if err := insist(p.ctx, at, fmt.Sprintf("editor-%d.%d", editor, i)); err != nil {
					p.t.Errorf("editor %d, edit %d: %v", editor, i, err)
					return
				}
			}
		})
	}
	group.Wait()
	all := editors * s.Edits
	p.historyIs(0, 2*all, countdown(int64(all), 1))
	for _, at := range p.stores {
		now, err := at.Load(p.ctx, 0)
		if err != nil {
			p.t.Fatalf("%v", err)
		}
		if len(now.Rules) != all {
			p.t.Errorf("%d rules, want %d", len(now.Rules), all)
		}
	}
}

// insist adds a rule however often others come first.
func insist(ctx context.Context, at store.Store, id string) error {
	for {
		now, err := at.Load(ctx, 0)
		if err != nil {
			return err
		}
		next := after(now, append(slices.Clone(now.Rules), plain(id, "")))
		if err := at.Put(ctx, now.ID, &next); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// A revision is loaded whole or not at all while others are put.
func (s Size) testWhole(p *place) {
	const many = 100
	at := func(number int64) store.Revision {
		var list []rules.Rule
		for i := range many - number%7 {
			list = append(list, plain(fmt.Sprintf("rule-%03d", i), fmt.Sprint(number)))
		}
		return p.next(list...)
	}
	p.put(at(1))
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	var group sync.WaitGroup
	for _, reader := range p.stores {
		group.Go(func() {
			for loads := 0; ctx.Err() == nil || loads == 0; loads++ {
				now, err := reader.Load(p.ctx, 0)
				if err != nil {
					p.t.Errorf("load: %v", err)
					return
				}
				if int64(len(now.Rules)) != many-now.Number%7 {
					p.t.Errorf("revision %d has %d rules", now.Number, len(now.Rules))
					return
				}
				for _, rule := range now.Rules {
					if says := says(now.Rules, rule.ID); says != fmt.Sprint(now.Number) {
						p.t.Errorf("revision %d: rule %s says %s", now.Number, rule.ID, says)
						return
					}
				}
			}
		})
	}
	for number := range int64(s.Rounds) {
		p.put(at(number + 2))
	}
	cancel()
	group.Wait()
	p.check(3)
}

// patience is how long a notification may take. A store that needs half of it is too slow, and one
// that is stuck fails the test.
const patience = 20 * time.Second

// Whoever watches is notified of revisions that another store puts, from when it is ready until its
// context ends.
func testWatch(p *place) {
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
	go func() { ended <- p.stores[0].Watch(ctx, signal(ready), signal(news)) }()
	late, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	select {
	case <-ready:
	case err := <-ended:
		if errors.Is(err, errors.ErrUnsupported) {
			return // which a store may say
		}
		p.t.Fatalf("the watch ended before it was ready: %v", err)
	case <-late.Done():
		p.t.Fatalf("the watch is not ready")
	}
	for number := range 3 {
		next := p.next(plain("a", fmt.Sprint(number)))
		if err := p.stores[1].Put(p.ctx, p.head().ID, &next); err != nil {
			p.t.Fatalf("%v", err)
		}
		p.revisions = append(p.revisions, next)
		select {
		case <-news:
		case err := <-ended:
			p.t.Fatalf("the watch ended: %v", err)
		case <-late.Done():
			p.t.Fatalf("no notification of revision %d", next.Number)
		}
		if head, err := p.stores[0].Head(p.ctx); err != nil || head != p.head().ID {
			p.t.Fatalf("the notification came before the revision: %+v, %v", head, err)
		}
	}
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			p.t.Errorf("the watch does not say why it ended")
		}
	case <-late.Done():
		p.t.Fatalf("the watch does not end")
	}
}

// A context that has ended ends every call, and nothing is written.
func testCancelled(p *place) {
	p.put(p.next(plain("a", "1")))
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	next := p.next(plain("a", "2"))
	s := p.stores[0]
	for name, call := range map[string]func() error{
		"Head":    func() error { _, err := s.Head(ctx); return err },
		"Load":    func() error { _, err := s.Load(ctx, 0); return err },
		"Put":     func() error { return s.Put(ctx, p.head().ID, &next) },
		"History": func() error { _, err := s.History(ctx, 0, 1); return err },
	} {
		if err := call(); !errors.Is(err, context.Canceled) {
			p.t.Errorf("%s: %v, want that the context is cancelled", name, err)
		}
	}
	p.check(2)
}
