package mongo

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/registry"
)

// applied is the one document of rate_limit_rule_applied: the version up to which all are in the
// states and in rate_limit_rules. It may lag, which costs whoever comes next some work.
type applied struct {
	ID     string `bson:"_id"`
	Number int64  `bson:"version"`
	At     int64  `bson:"at"`
}

const appliedID = "applied"

// readApplied reads it. Without it no version may be there yet, or the next would not be the first.
func readApplied(ctx context.Context, db *mongo.Database) (registry.Head, error) {
	var list []applied
	if err := find(ctx, db.Collection(appliedName), byID(appliedID), &list, nil); err != nil {
		return registry.Head{}, err
	}
	if len(list) > 0 {
		return registry.Head{Number: list[0].Number, At: list[0].At}, nil
	}
	var first []version
	if err := find(ctx, db.Collection(versionsName), bson.D{}, &first, options.Find().SetSort(byID(1)).SetLimit(1)); err != nil {
		return registry.Head{}, err
	}
	if len(first) > 0 && first[0].Number > 1 {
		return registry.Head{}, unreadable(stint.Invalid(appliedName, verbatim(fmt.Sprintf("without its document, but there is version %d", first[0].Number)),
			"all of stint's collections, or none of them"))
	}
	return registry.Head{}, nil
}

// newest is the newest version.
func newest(ctx context.Context, db *mongo.Database) (registry.Head, error) {
	head, _, err := behind(ctx, db)
	return head, err
}

// raise says that all versions up to one are applied.
func raise(ctx context.Context, db *mongo.Database, head registry.Head) error {
	c := db.Collection(appliedName)
	found, err := c.UpdateOne(ctx,
		append(byID(appliedID), bson.E{Key: "version", Value: bson.D{{Key: "$lt", Value: head.Number}}}),
		bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: head.Number}, {Key: "at", Value: head.At}}}})
	if err != nil || found.MatchedCount > 0 {
		return err
	}
	_, err = insert(ctx, c, []any{applied{ID: appliedID, Number: head.Number, At: head.At}})
	return err
}
