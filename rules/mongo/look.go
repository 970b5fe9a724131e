package mongo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/registry"
)

// A search is when rate_limit_rules was looked through for edits by people.
type search struct {
	mu      sync.Mutex // guards what follows
	last    time.Time  // when the last look began; zero: never
	news    bool       // whether the collection changed since
	refused string     // what Refused heard last
}

// looksApart is how far apart looks are at least, though there is news.
const looksApart = 500 * time.Millisecond

// due reports whether it is time for a look, which then is taken to begin.
func (s *search) due(now time.Time, interval time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := now.Sub(s.last)
	if s.last.IsZero() || since >= interval || s.news && since >= looksApart {
		s.last, s.news = now, false
		return true
	}
	return false
}

// hear says that the collection changed.
func (s *search) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.news = true
}

// search looks for edits by people if it is time. The error says why none was taken over.
func (b *Backend) search(ctx context.Context) error {
	now := b.options.Now()
	if !b.searched.due(now, b.options.LookInterval) {
		return errUnchanged
	}
	err := b.call(ctx, func(ctx context.Context, db *mongo.Database) error { return look(ctx, db, now, b.options.IPv6Prefix) })
	switch {
	case errors.Is(err, registry.ErrConflict):
		b.searched.hear()
		return errUnchanged
	case silent(err):
		b.searched.hear() // it was no look
	}
	return err
}

// errUnchanged says that there was no look.
var errUnchanged = errors.New("as before")

// refuse tells why edits are not taken over, nil if they are, unless that is known.
func (b *Backend) refuse(fault error) {
	if errors.Is(fault, errUnchanged) {
		return
	}
	text := ""
	if fault != nil {
		text = fault.Error()
	}
	b.searched.mu.Lock()
	before := b.searched.refused
	b.searched.refused = text
	b.searched.mu.Unlock()
	switch {
	case text == before:
	case fault != nil:
		b.options.Refused(fault)
	default:
		b.options.Mended()
	}
}

// What a version of edits by people says.
const (
	editedBy     = "mongodb"
	editedAction = "edit in the collection " + rulesName
)

// look makes a version of what people edited, all of it or nothing. The error is
// registry.ErrConflict if another version was made meanwhile.
func look(ctx context.Context, db *mongo.Database, now time.Time, ipv6Prefix int) error {
	// All versions are shown in the collection from here on. As long as no other is made, what
	// differs was edited.
	head, err := settle(ctx, db)
	if err != nil {
		return err
	}
	var docs []bson.Raw
	if err := find(ctx, db.Collection(rulesName), bson.D{}, &docs, nil); err != nil {
		return err
	}
	is, err := load(ctx, db)
	if err != nil {
		return err
	}
	if is.head != head {
		return registry.ErrConflict
	}
	found := compare(docs, &is)
	if err := write(ctx, db.Collection(rulesName), found.repairs); err != nil {
		return err
	}
	if err := found.faults.Err(); err != nil {
		return err
	}
	if len(found.changes) == 0 {
		return nil
	}
	v := registry.Version{
		Head:    registry.Head{Number: head.Number + 1, At: max(now.UnixMicro(), head.At+1)},
		Author:  registry.Author{By: editedBy, Action: editedAction},
		Changes: found.changes,
	}
	if err := enforceable(&is, &v, ipv6Prefix); err != nil {
		return err
	}
	return commit(ctx, db, head, &v, true)
}

// enforceable returns an error if a version's rules can't be enforced, or it is too large.
func enforceable(is *all, v *registry.Version, ipv6Prefix int) error {
	before := is.snapshot()
	if _, err := rules.Compile(before.Apply(v).Rules, rules.Options{IPv6Prefix: ipv6Prefix}); err != nil {
		return fmt.Errorf("%s: %w", rulesName, err)
	}
	for _, c := range v.Changes {
		if c.After == nil {
			continue
		}
		if err := registry.CheckSize(c.After); err != nil {
			return fmt.Errorf("%s: %w", rulesName, err)
		}
	}
	text, err := json.Marshal(v)
	if err == nil && len(text) > registry.MaxVersionBytes {
		err = stint.Invalid("the edit of "+rulesName, verbatim(fmt.Sprintf("%d bytes", len(text))), fmt.Sprintf("at most %d bytes at once", registry.MaxVersionBytes))
	}
	return err
}

// found is how rate_limit_rules differs from the rules.
type found struct {
	changes []registry.Change // by people, by ID
	repairs []mongo.WriteModel
	faults  notation.Faults
}

// compare finds what people edited.
func compare(docs []bson.Raw, is *all) *found {
	var f found
	seen := make(map[string]bool, len(docs))
	for _, raw := range docs {
		w := readDocument(raw)
		seen[w.id] = true
		if w.version < 0 || w.version > is.head.Number {
			f.repairs = append(f.repairs, mongo.NewUpdateOneModel().SetFilter(w.same()).
				SetUpdate(bson.D{{Key: "$unset", Value: bson.D{{Key: versionField, Value: ""}}}}))
			w.version = 0 // there is no such version
		}
		f.document(&w, is.rules[w.id])
	}
	for id, k := range is.rules {
		if k.rule != nil && !seen[id] {
			f.changes = append(f.changes, registry.Change{ID: id, Before: k.rule})
		}
	}
	slices.SortFunc(f.changes, func(a, b registry.Change) int { return strings.Compare(a.ID, b.ID) })
	return &f
}

// same matches the document unless it was written for another version since.
func (w *written) same() bson.D {
	return bson.D{{Key: idField, Value: w.id}, {Key: versionField, Value: w.version}}
}

// document compares one.
func (f *found) document(w *written, k kept) {
	switch {
	case 0 < w.version && w.version < k.version && k.rule == nil:
		// It is of an older version: who was late with applying that wrote it.
		f.repairs = append(f.repairs, mongo.NewDeleteOneModel().SetFilter(w.same()))
	case 0 < w.version && w.version < k.version:
		doc, err := ruleDocument(k.rule, k.version)
		if err == nil {
			f.repairs = append(f.repairs, mongo.NewReplaceOneModel().SetFilter(w.same()).SetReplacement(doc))
		}
	case len(w.faults) > 0:
		f.faults.Join(w.faults)
	case k.rule == nil || !k.rule.Equal(&w.rule):
		rule := w.rule
		f.changes = append(f.changes, registry.Change{ID: w.id, Before: k.rule, After: &rule})
	case w.version < k.version:
		// People wrote it anew, the same. Without a version the next edit of it could be taken for theirs.
		f.repairs = append(f.repairs, mongo.NewUpdateOneModel().SetFilter(older(w.id, k.version)).SetUpdate(setVersion(k.version)))
	}
}
