package mongo

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/rules/registry/registrytest"
)

// A rule is read of its document as it was, also when a tool wrote its numbers with a fraction.
func TestDocument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := registrytest.Rules().Draw(t, "rule")
		doc, err := ruleDocument(&rule, 7)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "doubles") {
			doc, _ = doubles(doc).(bson.D)
		}
		raw, err := bson.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		w := readDocument(raw)
		if err := w.faults.Err(); err != nil {
			t.Fatal(err)
		}
		if w.version != 7 || w.id != rule.ID || !w.rule.Equal(&rule) {
			t.Fatalf("version %d of %q is\n%+v, want 7 of %q\n%+v", w.version, w.id, w.rule, rule.ID, rule)
		}
	})
}

// doubles is a value with the numbers of mongosh.
func doubles(value any) any {
	switch v := value.(type) {
	case bson.D:
		for i := range v {
			v[i].Value = doubles(v[i].Value)
		}
	case bson.A:
		for i := range v {
			v[i] = doubles(v[i])
		}
	case int32:
		return float64(v)
	case int64:
		if v == int64(float64(v)) && -1<<53 <= v && v <= 1<<53 {
			return float64(v)
		}
	}
	return value
}

func TestDocumentFaults(t *testing.T) {
	for _, c := range []struct {
		doc  bson.D
		want string
	}{
		{bson.D{{Key: "_id", Value: 5}}, `rate_limit_rules: {"$numberInt":"5"}: _id is no text; allowed: the rule's ID`},
		{bson.D{{Key: "_id", Value: "a"}, {Key: "id", Value: "b"}}, `rate_limit_rules: "a": id is "b"; allowed: the same as _id, or none`},
		{bson.D{{Key: "_id", Value: "a"}, {Key: "priority", Value: 1.5}}, `rate_limit_rules: "a": rule "a": priority is 1.5; allowed: -9223372036854775808 to 9223372036854775807`},
		{bson.D{{Key: "_id", Value: "a"}, {Key: "match", Value: bson.D{{Key: "host", Value: bson.NewDateTimeFromTime(time.Unix(0, 0))}}}}, `rate_limit_rules: "a": match.host is of type UTC datetime; allowed: texts, numbers, true, false, lists and mappings`},
	} {
		raw, err := bson.Marshal(c.doc)
		if err != nil {
			t.Fatal(err)
		}
		w := readDocument(raw)
		if err := w.faults.Err(); err == nil || err.Error() != c.want {
			t.Errorf("%v: %v, want %s", c.doc, err, c.want)
		}
	}
}
