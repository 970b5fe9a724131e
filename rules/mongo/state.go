package mongo

import (
	"context"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

// A state is a document of rate_limit_rule_states: a rule as one version left it. It never
// changes. Of one rule the state of the highest version counts.
type state struct {
	ID      string `bson:"_id"`
	Version int64  `bson:"version"`
	Rule    string `bson:"rule,omitempty"` // JSON
	Deleted bool   `bson:"deleted,omitempty"`
}

// stateID names the state of a rule. Its order is that of the versions. IDs have no @.
func stateID(rule string, version int64) string { return fmt.Sprintf("%s@%019d", rule, version) }

// all is all rules as of one version.
type all struct {
	head  registry.Head
	rules map[string]kept // by ID
}

// kept is a rule, and what made it so.
type kept struct {
	version int64
	rule    *rules.Rule // nil: it was deleted
}

// load reads all rules as of the newest version.
//
// The order makes it one version's: what is applied is read first, then the states, which
// hold at least that much, then every version since. A state of a later version, or one that a later version
// removed, is of a rule that this version says.
func load(ctx context.Context, db *mongo.Database) (all, error) {
	head, err := readApplied(ctx, db)
	if err != nil {
		return all{}, err
	}
	var states []state
	if err := find(ctx, db.Collection(statesName), bson.D{}, &states, options.Find().SetSort(byID(1))); err != nil {
		return all{}, err
	}
	since, err := after(ctx, db, head.Number)
	if err != nil {
		return all{}, err
	}
	now := all{head: head, rules: make(map[string]kept, len(states))}
	if err := now.add(states); err != nil {
		return all{}, err
	}
	for i := range since {
		if err := now.follow(&since[i]); err != nil {
			return all{}, err
		}
	}
	return now, nil
}

// add takes over states, which are in the order of their IDs.
func (a *all) add(states []state) error {
	newest := make(map[string]state, len(states))
	for _, s := range states {
		id, _, _ := strings.Cut(s.ID, "@")
		newest[id] = s
	}
	for id, s := range newest {
		k := kept{version: s.Version}
		if !s.Deleted {
			rule, err := registry.ParseRule(statesName+": "+s.ID, []byte(s.Rule))
			if err != nil {
				return unreadable(err)
			}
			k.rule = &rule
		}
		a.rules[id] = k
	}
	return nil
}

// follow takes over a version.
func (a *all) follow(v *version) error {
	read, err := v.read()
	if err != nil {
		return err
	}
	for _, c := range read.Changes {
		a.rules[c.ID] = kept{version: v.Number, rule: c.After}
	}
	a.head = read.Head
	return nil
}

// snapshot is the rules as the registry has them.
func (a *all) snapshot() registry.Snapshot {
	v := registry.Version{Head: a.head}
	for id, k := range a.rules {
		v.Changes = append(v.Changes, registry.Change{ID: id, After: k.rule})
	}
	return new(registry.Snapshot).Apply(&v)
}
