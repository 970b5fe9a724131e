package mongo

import (
	"context"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint/rules/registry"
)

const (
	// trimEvery is how many versions are made between two trims, so that each is cheap.
	trimEvery = 50
	// trimAfter is how many changes a version has after which there is one at once.
	trimAfter = 1000
)

// trim removes what nobody asks for any more, when a version was applied: versions
// that are not kept, and states that others took the place of.
func trim(ctx context.Context, db *mongo.Database, number int64, changes int) error {
	if number%trimEvery != 0 && changes < trimAfter {
		return nil
	}
	last := number - registry.KeptVersions
	if _, err := db.Collection(versionsName).DeleteMany(ctx, byID(bson.D{{Key: "$lte", Value: versionID(max(0, last))}})); err != nil {
		return err
	}
	var states []state
	err := find(ctx, db.Collection(statesName), bson.D{}, &states,
		options.Find().SetSort(byID(1)).SetProjection(bson.D{{Key: "version", Value: 1}, {Key: "deleted", Value: 1}}))
	if err != nil {
		return err
	}
	var old []mongo.WriteModel
	for i, s := range states {
		if s.outdated(states[i+1:], number, last) {
			old = append(old, mongo.NewDeleteOneModel().SetFilter(byID(s.ID)))
		}
	}
	return write(ctx, db.Collection(statesName), old)
}

// outdated reports whether a state may go, as the first of those after it is one of its rule
// that is applied, or as it says of a version that is not kept that a rule was deleted: nobody is that
// far behind with applying.
func (s *state) outdated(after []state, number, last int64) bool {
	rule, _, _ := strings.Cut(s.ID, "@")
	if len(after) > 0 && strings.HasPrefix(after[0].ID, rule+"@") && after[0].Version <= number {
		return true
	}
	return s.Deleted && s.Version <= last
}
