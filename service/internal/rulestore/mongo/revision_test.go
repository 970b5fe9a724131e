package mongo_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

const heads, chunks = "rate_limit_revisions", "rate_limit_revisions.chunks"

// revision is one with n rules, which say its time.
func revision(number, at int64, n int) rulestore.Revision {
	r := rulestore.Revision{Info: rulestore.Info{ID: rulestore.ID{Number: number, At: at}}}
	for i := range n {
		r.Rules = append(r.Rules, rules.Rule{
			ID: fmt.Sprintf("rule-%06d", i), Labels: map[string]string{"at": fmt.Sprint(at)}, Scope: []string{rules.Global},
			Limits: []stint.Limit{stint.TokenBucket(10, stint.PerSecond(1))},
		})
	}
	return r
}

func put(t *testing.T, s rulestore.Store, expected rulestore.ID, next rulestore.Revision) rulestore.ID {
	t.Helper()
	must.Do(t, s.Put(t.Context(), expected, &next))
	return next.ID
}

func count(t *testing.T, url, collection string) int64 {
	t.Helper()
	return must.Get(raw(t, url).Collection(collection).CountDocuments(t.Context(), bson.D{}))(t)
}

// A revision of more than 1,000 rules has several chunks, in a form that people can read.
func TestForm(t *testing.T) {
	url := newURL()
	s := open(t, url+"?collection=mine")
	put(t, s, rulestore.ID{}, revision(1, 5, 2500))
	var head, chunk bson.M
	must.Do(t, raw(t, url).Collection("mine").FindOne(t.Context(), bson.D{{Key: "_id", Value: 1}}).Decode(&head))
	if head["count"] != int32(2500) || head["chunks"] != int32(3) || head["at"] != int64(5) {
		t.Errorf("the head is %v", head)
	}
	id := fmt.Sprintf("%019d/%s/%05d", 1, head["attempt"], 2)
	must.Do(t, raw(t, url).Collection("mine.chunks").FindOne(t.Context(), bson.D{{Key: "_id", Value: id}}).Decode(&chunk))
	list, _ := chunk["rules"].(bson.A)
	if len(list) != 500 {
		t.Fatalf("the last chunk has %d rules, want 500", len(list))
	}
	const want = `{"id":"rule-002499","labels":{"at":"5"},"scope":"global","limits":[{"algorithm":"token_bucket","capacity":10,"refill":"1/s"}]}`
	if got, err := bson.MarshalExtJSON(list[499], false, false); err != nil || string(got) != want {
		t.Errorf("a rule is\n%s, %v; want\n%s", got, err, want)
	}
}

// A process may die at any command of an edit: the revision is made whole or not at all, the next
// edit succeeds, and leftovers are removed.
func TestDiesAnywhere(t *testing.T) {
	ctx, url := t.Context(), newURL()
	after := open(t, url)
	now := rulestore.ID{}
	deaths, made, orphans := 0, 0, 0
	for left := 0; ; left++ {
		broke := false
		for _, reaches := range []bool{false, true} {
			w := newWire(t, url, left, reaches)
			next := revision(now.Number+1, now.At+10, 3)
			err := open(t, w.url).Put(ctx, now, &next)
			if w.isBroken() {
				broke = true
				deaths++
			}
			got, fault := after.Load(ctx, 0)
			if fault != nil {
				t.Fatalf("after %d commands: %v", left, fault)
			}
			switch got.ID {
			case next.ID:
				made++
				if len(got.Rules) != 3 || got.Rules[2].Labels["at"] != fmt.Sprint(next.At) {
					t.Errorf("after %d commands revision %d has %d rules", left, got.Number, len(got.Rules))
				}
			case now:
				if err == nil {
					t.Errorf("after %d commands: the revision is not there, and no error", left)
				}
				if errors.Is(err, rulestore.ErrConflict) {
					t.Errorf("after %d commands: %v", left, err)
				}
			default:
				t.Fatalf("after %d commands the head is %v", left, got.ID)
			}
			if count(t, url, chunks) > got.Number {
				orphans++
			}
			now = put(t, after, got.ID, revision(got.Number+1, got.At+10, 3))
		}
		if !broke {
			break
		}
	}
	if deaths < 8 || made < 4 || orphans == 0 {
		t.Errorf("%d deaths, %d revisions, %d times chunks were left; want at least 8, 4, 1", deaths, made, orphans)
	}
	now = put(t, open(t, url), now, revision(now.Number+1, now.At+10, 3)) // of a process that begins
	if n := count(t, url, chunks); n != now.Number {
		t.Errorf("%d chunks of %d revisions, want one of each", n, now.Number)
	}
}

// Of two writers that both saw the same head, one wins, and the other leaves nothing.
func TestOneWins(t *testing.T) {
	ctx, url := t.Context(), newURL()
	now := rulestore.ID{}
	for round := range int64(5) {
		results := make(chan error)
		for i := range int64(2) {
			s := open(t, url)
			go func() {
				next := revision(now.Number+1, 100*round+i+1, 10)
				results <- s.Put(ctx, now, &next)
			}()
		}
		first, second := <-results, <-results
		if (first == nil) == (second == nil) || !errors.Is(errors.Join(first, second), rulestore.ErrConflict) {
			t.Fatalf("%v and %v, want that one is a conflict", first, second)
		}
		now = must.Get(open(t, url).Head(ctx))(t)
	}
	if h, c := count(t, url, heads), count(t, url, chunks); h != 5 || c != 5 {
		t.Errorf("%d heads, %d chunks; want 5", h, c)
	}
}

// A head that somebody makes in mongosh is a revision like any other.
func TestByHand(t *testing.T) {
	ctx, url := t.Context(), newURL()
	s := open(t, url)
	byHand := raw(t, url).Collection(heads)
	rule := func(id string) bson.D {
		return bson.D{
			{Key: "id", Value: id},
			{Key: "scope", Value: "per_ip"},
			{Key: "priority", Value: 20.0},
			{Key: "labels", Value: bson.D{{Key: "a%2Eb", Value: "x"}}},
			{Key: "limits", Value: bson.A{bson.D{{Key: "algorithm", Value: "fixed_window"}, {Key: "limit", Value: int64(5)}, {Key: "window", Value: "1m"}}}},
		}
	}
	now := put(t, s, rulestore.ID{}, revision(1, 5, 1))
	for _, doc := range []bson.D{
		{{Key: "_id", Value: 2}, {Key: "rules", Value: bson.A{rule("b"), rule("a")}}},
		{{Key: "_id", Value: 3.0}, {Key: "by", Value: "ann"}, {Key: "comment", Value: "less"}, {Key: "rules", Value: bson.A{}}},
		{{Key: "_id", Value: int64(4)}, {Key: "at", Value: bson.NewDateTimeFromTime(time.UnixMilli(1_800_000_000_123))}, {Key: "rules", Value: bson.A{rule("c")}}},
	} {
		must.Get(byHand.InsertOne(ctx, doc))(t)
		got, err := s.Load(ctx, 0)
		if err != nil || got.Number != now.Number+1 || got.At == 0 || got.At%1000 != 0 || got.Count != len(got.Rules) || got.Bytes < int64(got.Count) {
			t.Fatalf("%+v, %v", got.Info, err)
		}
		now = got.ID
		again, err := open(t, url).Load(ctx, got.Number)
		if err != nil || again.Info != got.Info {
			t.Errorf("once more it is %+v, %v; want %+v", again.Info, err, got.Info)
		}
		if head, err := s.Head(ctx); err != nil || head != now {
			t.Errorf("the head is %+v, %v; want %+v", head, err, now)
		}
	}
	if now.At != 1_800_000_000_123_000 {
		t.Errorf("a date is read as %d", now.At)
	}
	put(t, s, now, revision(5, now.At+1, 1))
	list, err := s.History(ctx, 5, 3)
	if err != nil || len(list) != 3 || list[1].By != "ann" || list[1].Comment != "less" || list[2].Count != 2 || list[2].By != "" {
		t.Errorf("the history is %+v, %v", list, err)
	}
	second, err := s.Load(ctx, 2)
	if err != nil || second.Rules[0].ID != "a" || second.Rules[0].Priority != 20 || second.Rules[1].Labels["a.b"] != "x" {
		t.Errorf("%+v, %v", second.Rules, err)
	}
	if n := count(t, url, heads); n != 5 {
		t.Errorf("%d heads, want 5", n)
	}
}

// All faults of a head made by hand are reported at once. When they are mended, it is read.
func TestUnreadable(t *testing.T) {
	good := bson.D{{Key: "id", Value: "a"}, {Key: "scope", Value: "global"}, {Key: "banned", Value: true}}
	for name, c := range map[string]struct {
		doc  bson.D
		want []string
	}{
		"no rules": {bson.D{}, []string{"rate_limit_revisions: _id 2: rules is missing"}},
		"fields": {
			bson.D{{Key: "by", Value: 5}, {Key: "rule", Value: 1}, {Key: "at", Value: "now"}, {Key: "rules", Value: "none"}},
			[]string{"by is ", `"rule" is not a name in a revision`, "at is ", "rules is \"none\"; allowed: a list of rules"},
		},
		"rules": {
			bson.D{{Key: "rules", Value: bson.A{bson.D{{Key: "id", Value: "x"}, {Key: "color", Value: 1}, {Key: "priority", Value: 1.5}}, bson.D{{Key: "id", Value: time.Unix(0, 0)}}}}},
			[]string{`"color" is not a name in rule "x"`, "priority is 1.5", "rules[1]: id is of type UTC datetime"},
		},
		"sense": {
			bson.D{{Key: "rules", Value: bson.A{good, good, bson.D{{Key: "id", Value: "b"}, {Key: "scope", Value: "per_user"}}}}},
			[]string{`rule "a": id is given twice`, `rule "b": missing is not given`, `rule "b": limits is missing`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, url := t.Context(), newURL()
			s := open(t, url)
			first := put(t, s, rulestore.ID{}, revision(1, 5, 1))
			byHand := raw(t, url).Collection(heads)
			must.Get(byHand.InsertOne(ctx, slices.Concat(bson.D{{Key: "_id", Value: 2}}, c.doc)))(t)
			_, err := s.Load(ctx, 0)
			if !errors.Is(err, rulestore.ErrUnreadable) || !errors.Is(err, stint.ErrInvalid) || errors.Is(err, stint.ErrUnavailable) {
				t.Fatalf("%v, want ErrUnreadable", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
			if old, err := s.Load(ctx, 1); err != nil || old.ID != first {
				t.Errorf("the one before: %+v, %v", old.Info, err)
			}
			must.Get(byHand.ReplaceOne(ctx, bson.D{{Key: "_id", Value: 2}}, bson.D{{Key: "rules", Value: bson.A{good}}}))(t)
			if mended, err := s.Load(ctx, 0); err != nil || mended.Number != 2 || len(mended.Rules) != 1 {
				t.Errorf("mended it is %+v, %v", mended, err)
			}
		})
	}
}

// A revision whose chunks somebody changed or removed can't be read.
func TestDamagedChunk(t *testing.T) {
	for name, damage := range map[string]bson.D{
		"a rule":   {{Key: "$set", Value: bson.D{{Key: "rules.0.color", Value: 1}}}},
		"too few":  {{Key: "$set", Value: bson.D{{Key: "rules", Value: bson.A{}}}}},
		"no rules": {{Key: "$unset", Value: bson.D{{Key: "rules", Value: ""}}}},
		"removed":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, url := t.Context(), newURL()
			s := open(t, url)
			put(t, s, rulestore.ID{}, revision(1, 5, 3))
			var err error
			if c := raw(t, url).Collection(chunks); damage == nil {
				_, err = c.DeleteMany(ctx, bson.D{})
			} else {
				_, err = c.UpdateMany(ctx, bson.D{}, damage)
			}
			must.Do(t, err)
			if _, err := s.Load(ctx, 0); !errors.Is(err, rulestore.ErrUnreadable) || !errors.Is(err, stint.ErrInvalid) {
				t.Errorf("%v, want ErrUnreadable", err)
			}
			put(t, s, rulestore.ID{Number: 1, At: 5}, revision(2, 6, 3))
			if _, err := s.Load(ctx, 0); err != nil {
				t.Errorf("the next: %v", err)
			}
		})
	}
}
