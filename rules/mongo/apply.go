package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint/rules/registry"
)

// settle applies what is not applied yet, and returns the newest version.
func settle(ctx context.Context, db *mongo.Database) (registry.Head, error) {
	head, since, err := behind(ctx, db)
	if err != nil {
		return head, err
	}
	return head, applyAll(ctx, db, since)
}

// behind is the newest version, and those that are not applied yet.
func behind(ctx context.Context, db *mongo.Database) (registry.Head, []version, error) {
	head, err := readApplied(ctx, db)
	if err != nil {
		return head, nil, err
	}
	since, err := after(ctx, db, head.Number)
	if len(since) > 0 {
		head = since[len(since)-1].head()
	}
	return head, since, err
}

func applyAll(ctx context.Context, db *mongo.Database, since []version) error {
	for i := range since {
		if err := apply(ctx, db, &since[i]); err != nil {
			return err
		}
	}
	return nil
}

// apply brings a version's changes into the states and rate_limit_rules, when all before it are
// there. Several may do so at once, and one of them long after the others.
func apply(ctx context.Context, db *mongo.Database, v *version) error {
	changes, err := v.changes()
	if err != nil {
		return err
	}
	if err := keep(ctx, db.Collection(statesName), v.Number, changes); err != nil {
		return err
	}
	if err := show(ctx, db.Collection(rulesName), v, changes); err != nil {
		return err
	}
	return raise(ctx, db, v.head())
}

// keep adds the states. Who finds one there knows it to be the same.
func keep(ctx context.Context, states *mongo.Collection, number int64, changes []change) error {
	docs := make([]any, len(changes))
	for i, c := range changes {
		docs[i] = state{ID: stateID(c.ID, number), Version: number, Rule: string(c.After), Deleted: c.After == nil}
	}
	_, err := insert(ctx, states, docs)
	return err
}

// insert adds documents but those whose ID is there, and says whether there were such.
func insert(ctx context.Context, c *mongo.Collection, docs []any) (some bool, err error) {
	if len(docs) == 0 {
		return false, nil
	}
	_, err = c.InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
	if onlyDuplicates(err) {
		return true, nil
	}
	return false, err
}

// onlyDuplicates reports whether nothing but IDs that were there was wrong with an insert.
func onlyDuplicates(err error) bool {
	failed, ok := err.(mongo.BulkWriteException) //nolint:errorlint // with what it wraps it would say more
	if !ok || failed.WriteConcernError != nil {
		return false
	}
	for _, fault := range failed.WriteErrors {
		if !fault.HasErrorCode(duplicateKey) {
			return false
		}
	}
	return len(failed.WriteErrors) > 0
}

// duplicateKey is MongoDB's code for an ID that is there.
const duplicateKey = 11000

func write(ctx context.Context, c *mongo.Collection, models []mongo.WriteModel) error {
	if len(models) == 0 {
		return nil
	}
	_, err := c.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	return err
}
