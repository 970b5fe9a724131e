package mongo_test

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/mongo"
	"github.com/stint-go/stint/rules/registry"
)

// A commit of which nothing can have been made is told from one that may have been.
func TestRefused(t *testing.T) {
	const unauthorized, internal = 13, 1
	for _, test := range []struct {
		command string
		code    int
		refused bool
	}{
		{"find", unauthorized, true}, // what is read before the insert
		{"find", internal, true},
		{"insert", unauthorized, true},
		{"insert", internal, false},
	} {
		m := newMember(t, func(string) bson.D { return bson.D{{Key: "msg", Value: "isdbgrid"}} })
		b := open(t, m.url(), mongo.Options{})
		m.refuse(test.command, test.code)
		after := bucket("a", 1)
		v := registry.Version{Head: registry.Head{Number: 1, At: 1}, Changes: []registry.Change{{ID: "a", After: &after}}}
		err := b.Commit(t.Context(), registry.Head{}, &v)
		if !errors.Is(err, stint.ErrUnavailable) || errors.Is(err, registry.ErrRefused) != test.refused {
			t.Errorf("%s with code %d: %v; want refused: %v", test.command, test.code, err, test.refused)
		}
	}
}
