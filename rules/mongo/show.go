package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// ruleDocument is document for a rule that is not written yet.
func ruleDocument(rule *rules.Rule, version int64) (bson.D, error) {
	text, err := notation.JSON(*rule)
	if err != nil {
		return nil, err
	}
	return document(rule.ID, text, version)
}

// show brings a version's changes into rate_limit_rules, for people to see and edit.
func show(ctx context.Context, c *mongo.Collection, v *version, changes []change) error {
	if v.Edited {
		return mark(ctx, c, v.Number, changes)
	}
	var gone []string
	var added, changed []any
	for _, change := range changes {
		if change.After == nil {
			gone = append(gone, change.ID)
			continue
		}
		doc, err := document(change.ID, change.After, v.Number)
		switch {
		case err != nil:
			return err
		case change.Before == nil:
			added = append(added, doc)
		default:
			changed = append(changed, doc)
		}
	}
	if err := add(ctx, c, added, v.Number); err != nil {
		return err
	}
	if err := replace(ctx, c, changed, v.Number); err != nil {
		return err
	}
	if len(gone) == 0 {
		return nil
	}
	_, err := c.DeleteMany(ctx, older(bson.D{{Key: "$in", Value: gone}}, v.Number))
	return err
}

// add adds documents, and replaces those that are there.
func add(ctx context.Context, c *mongo.Collection, docs []any, number int64) error {
	some, err := insert(ctx, c, docs)
	if err != nil || !some {
		return err
	}
	return write(ctx, c, replacements(docs, number))
}

// replace replaces documents, and adds those that people removed.
func replace(ctx context.Context, c *mongo.Collection, docs []any, number int64) error {
	if len(docs) == 0 {
		return nil
	}
	done, err := c.BulkWrite(ctx, replacements(docs, number), options.BulkWrite().SetOrdered(false))
	if err != nil || done.MatchedCount == int64(len(docs)) {
		return err
	}
	return add(ctx, c, docs, number)
}

func replacements(docs []any, number int64) []mongo.WriteModel {
	models := make([]mongo.WriteModel, 0, len(docs))
	for _, doc := range docs {
		if fields, ok := doc.(bson.D); ok {
			models = append(models, mongo.NewReplaceOneModel().SetFilter(older(fields[0].Value, number)).SetReplacement(doc))
		}
	}
	return models
}

// older matches documents by ID unless they are of a version, or of a later one.
func older(id any, number int64) bson.D {
	return bson.D{
		{Key: idField, Value: id},
		{Key: versionField, Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gte", Value: number}}}}},
	}
}

// mark only writes the version into what people edited, so that what they edited since is not
// lost: it will differ from the version. For the same reason nothing is removed that they did
// not write for an older version.
func mark(ctx context.Context, c *mongo.Collection, number int64, changes []change) error {
	models := make([]mongo.WriteModel, len(changes))
	for i, change := range changes {
		if change.After == nil {
			models[i] = mongo.NewDeleteOneModel().SetFilter(bson.D{
				{Key: idField, Value: change.ID}, {Key: versionField, Value: bson.D{{Key: "$lt", Value: number}}},
			})
			continue
		}
		models[i] = mongo.NewUpdateOneModel().SetFilter(older(change.ID, number)).SetUpdate(setVersion(number))
	}
	return write(ctx, c, models)
}

func setVersion(number int64) bson.D {
	return bson.D{{Key: "$set", Value: bson.D{{Key: versionField, Value: number}}}}
}
