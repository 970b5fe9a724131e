package mongo_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/mongo"
	"github.com/stint-go/stint/rules/registry"
)

// people edit the rules of a registry in the collection.
type people struct {
	t       *testing.T
	c       *driver.Collection
	backend *mongo.Backend
	r       *registry.Registry
	now     time.Time
	refused []error
	mended  int // how often that was over
}

func newPeople(t *testing.T) *people {
	t.Helper()
	return newPeopleOf(t, 0)
}

// newPeopleOf is newPeople where IPv6 clients are counted by so many bits.
func newPeopleOf(t *testing.T, ipv6Prefix int) *people {
	t.Helper()
	url := newURL()
	p := &people{t: t, c: raw(t, url).Collection("rate_limit_rules"), now: time.UnixMicro(1_790_000_000_000_000)}
	p.backend = open(t, url, mongo.Options{
		Now: func() time.Time { return p.now }, LookInterval: time.Minute, IPv6Prefix: ipv6Prefix,
		Refused: func(err error) { p.refused = append(p.refused, err) }, Mended: func() { p.mended++ },
	})
	var err error
	p.r, err = registry.New(p.backend, registry.Options{Now: func() time.Time { return p.now }, IPv6Prefix: ipv6Prefix})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// edit does something to the collection; a minute later the rules are read.
func (p *people) edit(do func(c *driver.Collection) error) registry.Snapshot {
	p.t.Helper()
	if err := do(p.c); err != nil {
		p.t.Fatal(err)
	}
	p.now = p.now.Add(time.Minute)
	return p.current()
}

func (p *people) current() registry.Snapshot {
	p.t.Helper()
	s, err := p.r.Current(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func (p *people) put(list ...rules.Rule) registry.Version {
	p.t.Helper()
	v, err := p.r.Edit(p.t.Context(), registry.Author{By: "ann"}, func(d *registry.Draft) error {
		for _, rule := range list {
			d.Put(rule)
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// holds compares the rules with capacities by ID, in the set and in the collection.
func (p *people) holds(s registry.Snapshot, number int64, want map[string]int64) {
	p.t.Helper()
	got := map[string]int64{}
	for _, rule := range s.Rules {
		got[rule.ID] = rule.Limits[0].Capacity
	}
	if s.Number != number || !sameMap(got, want) {
		p.t.Errorf("version %d is %v, want %d with %v", s.Number, got, number, want)
	}
}

func sameMap(a, b map[string]int64) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func bucket(id string, capacity int64) rules.Rule {
	return rules.Rule{ID: id, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.TokenBucket(capacity, stint.PerSecond(1))}}
}

func byID(id string) bson.D { return bson.D{{Key: "_id", Value: id}} }

// People name the networks by which clients are counted.
func TestIPv6Prefix(t *testing.T) {
	p := newPeopleOf(t, 56)
	insert := func(id, key string) registry.Snapshot {
		return p.edit(func(c *driver.Collection) error {
			override := bson.D{{Key: "key", Value: key}, {Key: "unlimited", Value: true}}
			_, err := c.InsertOne(t.Context(), bson.D{
				{Key: "_id", Value: id}, {Key: "scope", Value: "per_ip"}, {Key: "banned", Value: true}, {Key: "overrides", Value: bson.A{override}},
			})
			return err
		})
	}
	if s := insert("a", "2001:db8::/56"); s.Number != 1 || len(p.refused) != 0 {
		t.Errorf("version %d, refused %v", s.Number, p.refused)
	}
	if s := insert("b", "2001:db8::/64"); s.Number != 1 || len(p.refused) != 1 || !strings.Contains(p.refused[0].Error(), "2001:db8::/56, by which") {
		t.Errorf("version %d, refused %v", s.Number, p.refused)
	}
}

// What people do to the collection becomes a version, as if they had done it by the registry.
func TestEditsByPeople(t *testing.T) {
	p, ctx := newPeople(t), t.Context()
	limit := bson.A{bson.D{{Key: "algorithm", Value: "token_bucket"}, {Key: "capacity", Value: 7.0}, {Key: "refill", Value: "1/s"}}}
	s := p.edit(func(c *driver.Collection) error {
		_, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: "mine"}, {Key: "scope", Value: "global"}, {Key: "limits", Value: limit}})
		return err
	})
	p.holds(s, 1, map[string]int64{"mine": 7})
	p.put(bucket("a", 1), bucket("b", 2), bucket("c", 3))
	s = p.edit(func(c *driver.Collection) error {
		if _, err := c.UpdateOne(ctx, byID("a"), bson.D{{Key: "$set", Value: bson.D{{Key: "limits.0.capacity", Value: 10}}}}); err != nil {
			return err
		}
		if _, err := c.ReplaceOne(ctx, byID("b"), bson.D{{Key: "scope", Value: "global"}, {Key: "limits", Value: limit}}); err != nil {
			return err
		}
		_, err := c.DeleteOne(ctx, byID("c"))
		return err
	})
	p.holds(s, 3, map[string]int64{"mine": 7, "a": 10, "b": 7})
	list, err := p.r.Versions(ctx, 0, 9)
	if err != nil {
		t.Fatal(err)
	}
	var by []string
	for _, v := range list {
		by = append(by, v.By)
	}
	if !slices.Equal(by, []string{"mongodb", "ann", "mongodb"}) || len(list[0].Changes) != 3 || !list[0].Time().Equal(p.now) {
		t.Errorf("the history is %+v", list)
	}
	// Who edits by the registry then has what people wrote replaced, and nothing is taken for
	// another edit of theirs.
	p.put(bucket("a", 20), bucket("mine", 20))
	p.now = p.now.Add(time.Minute)
	p.holds(p.current(), 4, map[string]int64{"mine": 20, "a": 20, "b": 7})
	if _, err := p.r.Rollback(ctx, registry.Author{}, 2, nil); err != nil {
		t.Fatal(err)
	}
	p.now = p.now.Add(time.Minute)
	p.holds(p.current(), 5, map[string]int64{"mine": 7, "a": 1, "b": 2, "c": 3})
	if len(p.refused) > 0 {
		t.Errorf("refused: %v", p.refused)
	}
}

// A document that can't be taken over holds all edits back, and says so once.
func TestFaultyEdits(t *testing.T) {
	p, ctx := newPeople(t), t.Context()
	p.put(bucket("a", 1), bucket("b", 2))
	set := func(id, field string, value any) func(c *driver.Collection) error {
		return func(c *driver.Collection) error {
			_, err := c.UpdateOne(ctx, byID(id), bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}})
			return err
		}
	}
	s := p.edit(func(c *driver.Collection) error {
		return errors.Join(set("a", "limits.0.capacity", 10)(c), set("b", "limits.0.capacity", "many")(c))
	})
	p.holds(s, 1, map[string]int64{"a": 1, "b": 2})
	p.now = p.now.Add(time.Minute)
	p.current()
	if len(p.refused) != 1 || !errors.Is(p.refused[0], stint.ErrInvalid) || !strings.Contains(p.refused[0].Error(), `rate_limit_rules: "b"`) {
		t.Fatalf("refused: %v; want once, naming the document", p.refused)
	}
	// The registry works meanwhile, and does not lose what waits.
	p.put(bucket("c", 3))
	// What only the set as a whole shows holds them back as well.
	s = p.edit(set("b", "limits", bson.A{}))
	p.holds(s, 2, map[string]int64{"a": 1, "b": 2, "c": 3})
	if len(p.refused) != 2 || !errors.Is(p.refused[1], stint.ErrInvalid) || !strings.Contains(p.refused[1].Error(), `rule "b"`) {
		t.Fatalf("refused: %v; want another, naming the rule", p.refused)
	}
	// So does a rule that nobody could edit again.
	s = p.edit(func(c *driver.Collection) error {
		large := bson.D{{Key: "text", Value: strings.Repeat("x", registry.MaxRuleBytes)}}
		return errors.Join(set("b", "limits.0", bson.D{{Key: "algorithm", Value: "token_bucket"}, {Key: "capacity", Value: 2}, {Key: "refill", Value: "1/s"}})(c), set("b", "labels", large)(c))
	})
	p.holds(s, 2, map[string]int64{"a": 1, "b": 2, "c": 3})
	if len(p.refused) != 3 || !strings.Contains(p.refused[2].Error(), "at most 2097152 bytes") {
		t.Fatalf("refused: %v; want another, with the size", p.refused)
	}
	s = p.edit(func(c *driver.Collection) error {
		_, err := c.DeleteOne(ctx, byID("b"))
		return err
	})
	p.holds(s, 3, map[string]int64{"a": 10, "c": 3})
	if len(p.refused) != 3 || p.mended != 1 {
		t.Errorf("refused: %v, and mended %d times, want once", p.refused, p.mended)
	}
}

// Two processes that see one edit make one version of it.
func TestEditSeenTwice(t *testing.T) {
	url := newURL()
	now := time.UnixMicro(1_790_000_000_000_000)
	c := raw(t, url).Collection("rate_limit_rules")
	first := open(t, url, mongo.Options{Now: func() time.Time { return now }})
	second := open(t, url, mongo.Options{Now: func() time.Time { return now }})
	v := registry.Version{Head: registry.Head{Number: 1, At: 1}}
	rule := bucket("a", 1)
	v.Changes = []registry.Change{{ID: "a", After: &rule}}
	if err := first.Commit(t.Context(), registry.Head{}, &v); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DeleteOne(t.Context(), byID("a")); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*mongo.Backend{first, second, first} {
		head, err := b.Head(t.Context())
		if err != nil || head.Number != 2 {
			t.Errorf("the head is %v, %v; want version 2", head, err)
		}
		now = now.Add(time.Hour)
	}
}

// What is late with applying an older version is put right, and not taken for an edit.
func TestLateDocument(t *testing.T) {
	p, ctx := newPeople(t), t.Context()
	p.put(bucket("a", 1), bucket("b", 1))
	var late []bson.D
	for _, id := range []string{"a", "b"} {
		var doc bson.D
		if err := p.c.FindOne(ctx, byID(id)).Decode(&doc); err != nil {
			t.Fatal(err)
		}
		late = append(late, doc)
	}
	p.put(bucket("a", 2))
	if _, err := p.r.Edit(ctx, registry.Author{}, func(d *registry.Draft) error { d.Delete("b"); return nil }); err != nil {
		t.Fatal(err)
	}
	s := p.edit(func(c *driver.Collection) error {
		_, err := c.ReplaceOne(ctx, byID("a"), late[0])
		if err == nil {
			_, err = c.InsertOne(ctx, late[1])
		}
		return err
	})
	p.holds(s, 3, map[string]int64{"a": 2})
	var docs []bson.Raw
	cursor, err := p.c.Find(ctx, bson.D{})
	if err == nil {
		err = cursor.All(ctx, &docs)
	}
	if err != nil || len(docs) != 1 || docs[0].Lookup("_version").AsInt64() != 2 {
		t.Errorf("the collection holds %v, %v; want a of version 2", docs, err)
	}
}
