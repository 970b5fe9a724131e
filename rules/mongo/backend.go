package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/registry"
)

// Head is the newest version, which is found by two IDs. Now and then it first makes a version of what people
// edited, as the options' LookInterval says.
func (b *Backend) Head(ctx context.Context) (registry.Head, error) {
	fault := b.search(ctx)
	switch {
	case ctx.Err() != nil:
		return registry.Head{}, ctx.Err()
	case silent(fault):
		return registry.Head{}, fault
	}
	var head registry.Head
	err := b.call(ctx, func(ctx context.Context, db *mongo.Database) (err error) {
		head, err = newest(ctx, db)
		return err
	})
	if err == nil {
		b.refuse(fault)
	}
	return head, err
}

// Load returns all rules.
func (b *Backend) Load(ctx context.Context) (registry.Snapshot, error) {
	var now all
	err := b.call(ctx, func(ctx context.Context, db *mongo.Database) (err error) {
		// What an edit left undone is finished here, for the eyes of people. Loading does not
		// depend on it, and who may only read can't do it.
		_, _ = settle(ctx, db)
		now, err = load(ctx, db)
		return err
	})
	if err != nil {
		return registry.Snapshot{}, err
	}
	return now.snapshot(), nil
}

// Commit makes v the newest version. That the one before it is the newest is looked up, and held to
// by the insert of the next number; only if all collections were dropped and others made
// as many versions anew in between, the version would follow those.
func (b *Backend) Commit(ctx context.Context, before registry.Head, v *registry.Version) error {
	return b.call(ctx, func(ctx context.Context, db *mongo.Database) error {
		return commit(ctx, db, before, v, false)
	})
}

// Versions returns versions, the newest first.
func (b *Backend) Versions(ctx context.Context, before int64, n int) ([]registry.Version, error) {
	filter := bson.D{}
	if before > 0 {
		filter = byID(bson.D{{Key: "$lt", Value: versionID(before)}})
	}
	var found []version
	err := b.call(ctx, func(ctx context.Context, db *mongo.Database) error {
		return find(ctx, db.Collection(versionsName), filter, &found,
			options.Find().SetSort(byID(-1)).SetLimit(int64(n)))
	})
	if err != nil {
		return nil, err
	}
	list := make([]registry.Version, len(found))
	for i := range found {
		if list[i], err = found[i].read(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// commit makes a version, by the insert of its number, and applies it. Who edited says whether
// people made the changes in rate_limit_rules.
func commit(ctx context.Context, db *mongo.Database, before registry.Head, v *registry.Version, edited bool) error {
	if err := fitting(v); err != nil {
		return err
	}
	made, err := newVersion(v, edited)
	if err != nil {
		return err
	}
	head, since, err := behind(ctx, db)
	switch {
	case err != nil:
		return refused(err)
	case head != before || v.Number != before.Number+1:
		return registry.ErrConflict
	case len(since) >= mostBehind:
		if err := applyAll(ctx, db, since); err != nil {
			return refused(err)
		}
		since = nil
	}
	switch _, err := db.Collection(versionsName).InsertOne(ctx, made); {
	case mongo.IsDuplicateKeyError(err):
		return registry.ErrConflict
	case isUnauthorized(err):
		return refused(err)
	case err != nil:
		return err
	}
	// The version is made, whatever becomes of this: who comes next finishes it.
	if err := applyAll(ctx, db, append(since, made)); err == nil {
		_ = trim(ctx, db, v.Number, len(v.Changes))
	}
	return nil
}

// refused is the error of a commit of which nothing was made.
func refused(err error) error { return fmt.Errorf("%w: %w", registry.ErrRefused, err) }

// isUnauthorized reports whether the server refused a command for want of the right to it.
func isUnauthorized(err error) bool {
	const unauthorized = 13
	failed, ok := errors.AsType[mongo.CommandError](err)
	return ok && failed.HasErrorCode(unauthorized)
}

// mostBehind is how many versions may wait to be applied: what can't be must not pile up, so
// the next one is not made then.
const mostBehind = 5

// fitting returns an error if a rule is too large for a document.
func fitting(v *registry.Version) error {
	for _, c := range v.Changes {
		if c.After == nil {
			continue
		}
		doc, err := ruleDocument(c.After, v.Number)
		if err != nil {
			return err
		}
		if err := fits(doc); err != nil {
			return stint.Invalid(fmt.Sprintf("rule %q", c.ID), verbatim(err.Error()), "what MongoDB takes as one document, 16 MiB")
		}
	}
	return nil
}
