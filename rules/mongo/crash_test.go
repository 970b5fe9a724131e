package mongo_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/mongo"
	"github.com/stint-go/stint/rules/registry"
)

// replay is the rules as the history has them after a version.
func replay(list []registry.Version, number int64) registry.Snapshot {
	slices.SortFunc(list, func(a, b registry.Version) int { return cmp.Compare(a.Number, b.Number) })
	var s registry.Snapshot
	for i := range list {
		if list[i].Number <= number {
			s = s.Apply(&list[i])
		}
	}
	return s
}

func same(a, b registry.Snapshot) bool {
	return a.Head == b.Head && slices.EqualFunc(a.Rules, b.Rules, func(a, b rules.Rule) bool { return a.Equal(&b) })
}

// turn is an edit of everything: it changes, adds and deletes.
func turn(d *registry.Draft) error {
	n := d.Head().Number
	d.Put(bucket("count", n+1))
	d.Put(bucket(fmt.Sprintf("new-%d", n%3), n+1))
	d.Delete(fmt.Sprintf("new-%d", (n+1)%3))
	return nil
}

// A process may die at any command of an edit: the edit is made whole or not at all, and who
// comes next finishes it, in the collection of people too.
func TestDiesAnywhere(t *testing.T) {
	ctx, url := t.Context(), newURL()
	now := time.UnixMicro(1_790_000_000_000_000)
	o := mongo.Options{Now: func() time.Time { return now }, Refused: func(err error) { t.Errorf("refused: %v", err) }}
	after := open(t, url, o)
	db := raw(t, url)
	r, err := registry.New(after, registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // so that all edits from here on are alike
		if _, err := r.Edit(ctx, registry.Author{}, turn); err != nil {
			t.Fatal(err)
		}
	}
	deaths, made := 0, 0
	for left := 0; ; left++ {
		broke := false
		for _, reaches := range []bool{false, true} {
			before, err := after.Head(ctx)
			if err != nil {
				t.Fatal(err)
			}
			w := newWire(t, url, left, reaches)
			r, err := registry.New(open(t, w.url, mongo.Options{}), registry.Options{})
			if err != nil {
				t.Fatal(err)
			}
			v, err := r.Edit(ctx, registry.Author{}, turn)
			broke = broke || w.isBroken()
			if w.isBroken() {
				deaths++
			}
			s, fault := after.Load(ctx)
			if fault != nil {
				t.Fatal(fault)
			}
			if err == nil && s.Head != v.Head || s.Number > before.Number+1 || s.Number < before.Number {
				t.Fatalf("after %d commands: %v, %v; then the head is %v", left, v.Head, err, s.Head)
			}
			if s.Number > before.Number {
				made++
			}
			history, fault := after.Versions(ctx, 0, registry.KeptVersions)
			if fault != nil {
				t.Fatal(fault)
			}
			if want := replay(history, s.Number); !same(s, want) {
				t.Fatalf("after %d commands the rules are\n%+v, want\n%+v", left, s, want)
			}
			// Nothing is taken for an edit by people.
			now = now.Add(time.Hour)
			if head, err := after.Head(ctx); err != nil || head != s.Head {
				t.Fatalf("after %d commands a look makes %v of %v, %v", left, head, s.Head, err)
			}
			if n, err := db.Collection("rate_limit_rules").CountDocuments(ctx, bson.D{}); err != nil || n != int64(len(s.Rules)) {
				t.Fatalf("after %d commands the collection has %d documents, %v; want %d", left, n, err, len(s.Rules))
			}
		}
		if !broke {
			break
		}
	}
	if deaths < 10 || made < 10 {
		t.Errorf("%d deaths and %d versions; want at least 10 of each", deaths, made)
	}
}

// Editors that die anywhere, at once and all the time, lose nothing that was made, and no load
// is of anything but one version.
func TestDyingEditors(t *testing.T) {
	ctx, url := t.Context(), newURL()
	const editors, lives = 3, 12
	var group, loaders sync.WaitGroup
	var mu sync.Mutex
	var acknowledged []registry.Head
	var loaded []registry.Snapshot
	for range editors {
		group.Go(func() {
			for range lives {
				w := newWire(t, url, rand.IntN(60), rand.IntN(2) == 0)
				r, err := registry.New(open(t, w.url, mongo.Options{LookInterval: 24 * time.Hour}), registry.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				for err == nil {
					var v registry.Version
					v, err = r.Edit(ctx, registry.Author{}, turn)
					if err == nil {
						mu.Lock()
						acknowledged = append(acknowledged, v.Head)
						mu.Unlock()
					}
					if errors.Is(err, registry.ErrConflict) {
						err = nil
					}
				}
				if !errors.Is(err, stint.ErrUnavailable) {
					t.Error(err)
				}
			}
		})
	}
	b := open(t, url, mongo.Options{LookInterval: 24 * time.Hour})
	done := make(chan struct{})
	loaders.Go(func() {
		for ending := false; !ending; {
			select {
			case <-done:
				ending = true
			default:
			}
			s, err := b.Load(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			loaded = append(loaded, s)
		}
	})
	group.Wait()
	close(done)
	loaders.Wait()
	history, err := b.Versions(ctx, 0, registry.KeptVersions)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range loaded {
		if want := replay(history, s.Number); !same(s, want) {
			t.Fatalf("load %d is\n%+v, want\n%+v", i, s, want)
		}
		if i > 0 && s.Number < loaded[i-1].Number {
			t.Errorf("version %d was loaded after %d", s.Number, loaded[i-1].Number)
		}
	}
	for _, head := range acknowledged {
		if !slices.ContainsFunc(history, func(v registry.Version) bool { return v.Head == head }) {
			t.Errorf("version %v is lost", head)
		}
	}
	if len(acknowledged) == 0 || int64(len(history)) != loaded[len(loaded)-1].Number {
		t.Errorf("%d edits, %d versions, the last load is of %d", len(acknowledged), len(history), loaded[len(loaded)-1].Number)
	}
	t.Logf("%d edits, %d versions, %d loads", len(acknowledged), len(history), len(loaded))
}
