package mongo_test

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/mongo"
	"github.com/stint-go/stint/rules/registry"
)

// What stint did not write in its own collections is told from a mistake of who asks.
func TestUnreadable(t *testing.T) {
	const versions, states, applied = "rate_limit_rule_versions", "rate_limit_rule_states", "rate_limit_rule_applied"
	set := func(field string, value any) bson.D {
		return bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}}
	}
	first := byID("0000000000000000001")
	for name, c := range map[string]struct {
		collection string
		filter     bson.D
		change     bson.D
		asks       string // the call that fails
	}{
		"no JSON":        {versions, first, set("changes", "garbage"), "Versions"},
		"no rule":        {versions, first, set("changes", `[{"id":"a","after":{"color":1}}]`), "Versions"},
		"no text":        {versions, first, set("changes", 7), "Versions"},
		"no number":      {applied, byID("applied"), set("version", "one"), "Head"},
		"another state":  {states, bson.D{}, set("rule", "garbage"), "Load"},
		"state, no text": {states, bson.D{}, set("rule", 7), "Load"},
	} {
		t.Run(name, func(t *testing.T) {
			url, ctx := newURL(), t.Context()
			b := open(t, url, mongo.Options{})
			after := bucket("a", 1)
			v := registry.Version{Head: registry.Head{Number: 1, At: 1}, Changes: []registry.Change{{ID: "a", After: &after}}}
			if err := b.Commit(ctx, registry.Head{}, &v); err != nil {
				t.Fatal(err)
			}
			if done, err := raw(t, url).Collection(c.collection).UpdateOne(ctx, c.filter, c.change); err != nil || done.ModifiedCount != 1 {
				t.Fatal(done, err)
			}
			_, head := b.Head(ctx)
			_, load := b.Load(ctx)
			_, list := b.Versions(ctx, 0, 1)
			err := map[string]error{"Head": head, "Load": load, "Versions": list}[c.asks]
			if !errors.Is(err, registry.ErrUnreadable) || !errors.Is(err, stint.ErrInvalid) || errors.Is(err, stint.ErrUnavailable) {
				t.Errorf("%s: %v", c.asks, err)
			}
		})
	}
}
