package rulestore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// What a rule can't mean is a fault of an edit. Rules of the store, as an older version accepted them, come into force
// with it, may be changed elsewhere, and may be rolled back to.
func TestMistakes(t *testing.T) {
	kept := rulestore.NewMemory()
	old := rule("old", 1)
	old.Match.Paths = []string{"/users/:id"}
	v := rulestore.Revision{Info: rulestore.Info{ID: rulestore.ID{Number: 1, At: 1}}, Rules: []rules.Rule{old}}
	must.Do(t, kept.Put(t.Context(), rulestore.ID{}, &v))
	r := manage(t, kept)
	holds(t, r, 1, " old:1")
	if r.InForce() != 1 {
		t.Error("rules of an older version are not in force")
	}
	refused := func(change func(*rulestore.Draft) error, want string) {
		t.Helper()
		if _, err := r.Edit(t.Context(), rulestore.Author{}, change); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	added := rule("added", 1)
	added.Match.Paths = []string{"/users/<id>"}
	refused(put(added), `rule "added": match.path is "/users/<id>"; allowed: /users/{id}`)
	changed := old.Clone()
	changed.Disabled = true
	edit(t, r, put(changed))
	changed.Match.Paths[0] = "/users/:name"
	refused(put(changed), `rule "old": match.path is "/users/:name"; allowed: /users/{name}`)
	edit(t, r, remove("old"))
	must.Get(r.Rollback(t.Context(), rulestore.Author{}, 1, "", nil))(t) // to what was in force
}
