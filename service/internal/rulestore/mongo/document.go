package mongo

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// A head is the document of a revision. It names the chunks with its rules, or, if it was made by
// hand, holds the rules itself. Chunks are written before the head that names them, so a head is
// whole or not there.
type head struct {
	Number  int64  `bson:"_id" doc:"_id"`
	At      int64  `bson:"at" doc:"at"`
	By      string `bson:"by" doc:"by"`
	Action  string `bson:"action" doc:"action"`
	Comment string `bson:"comment" doc:"comment"`
	Count   int    `bson:"count" doc:"count"`
	Bytes   int64  `bson:"bytes" doc:"bytes"`
	// Chunks and Attempt name the chunks; without them the rules stand in the head.
	Chunks  int    `bson:"chunks"`
	Attempt string `bson:"attempt"`
	Rules   inline `bson:"-" doc:"rules"`
}

// infoOf is the revision's Info from its head. A head made by hand may lack some of it.
func infoOf(head bson.Raw) rulestore.Info {
	at := intOf(head, "at")
	if date, ok := head.Lookup("at").DateTimeOK(); ok {
		at = date * 1000
	}
	return rulestore.Info{
		ID:     rulestore.ID{Number: intOf(head, "_id"), At: at},
		Author: rulestore.Author{By: textOf(head, "by"), Action: textOf(head, "action"), Comment: textOf(head, "comment")},
		Count:  int(intOf(head, "count")),
		Bytes:  intOf(head, "bytes"),
	}
}

// intOf is an integer of a document, 0 if the value is no integer.
func intOf(doc bson.Raw, name string) int64 {
	n, _ := doc.Lookup(name).AsInt64OK()
	return n
}

// textOf is a text of a document, "" if the value is no text.
func textOf(doc bson.Raw, name string) string {
	text, _ := doc.Lookup(name).StringValueOK()
	return text
}

// chunkPrefix is the start of the _id of all chunks of a revision's number. Chunks are ordered by
// that number.
func chunkPrefix(number int64) string { return fmt.Sprintf("%019d/", number) }

// chunkID is the _id of a chunk: number, attempt and place, so that two processes that try the same
// number do not write the same chunks.
func chunkID(number int64, attempt string, i int) string {
	return fmt.Sprintf("%s%s/%05d", chunkPrefix(number), attempt, i)
}

// chunksOf matches the chunks of an attempt.
func chunksOf(number int64, attempt string) bson.D {
	prefix := chunkPrefix(number) + attempt
	return byID(bson.D{{Key: "$gt", Value: prefix + "/"}, {Key: "$lt", Value: prefix + "0"}}) // 0 follows /
}

// chunkRules and chunkBytes bound a chunk. One rule may be larger. MongoDB's documents have at most
// 16 MiB.
const (
	chunkRules = 1000
	chunkBytes = 4 << 20
)

// rulesField holds the rules of a chunk, and of a head that was made by hand.
const rulesField = "rules"

// A chunk is a document with some of a revision's rules.
type chunk struct {
	ID    string     `bson:"_id"`
	Rules []bson.Raw `bson:"rules"`
}

// encode makes the chunks of a revision, and sets its count and bytes.
func encode(next *rulestore.Revision, attempt string) (chunks []any, err error) {
	next.Count, next.Bytes = len(next.Rules), 0
	var now chunk
	size := 0
	end := func() {
		now.ID = chunkID(next.Number, attempt, len(chunks))
		chunks, now, size = append(chunks, now), chunk{}, 0
	}
	for i := range next.Rules {
		rule, err := encodeRule(next.Rules[i])
		if err != nil {
			return nil, prefix.Errorf("rule %q: %w", next.Rules[i].ID, err)
		}
		if n := len(now.Rules); n == chunkRules || n > 0 && size+len(rule) > chunkBytes {
			end()
		}
		now.Rules, size = append(now.Rules, rule), size+len(rule)
		if next.Bytes += int64(len(rule)); next.Bytes > rulestore.MaxBytes {
			return nil, stint.Invalid(
				"the rules", document.Verbatim(fmt.Sprintf("more than %d bytes of BSON", rulestore.MaxBytes)),
				"fewer or smaller rules",
			)
		}
	}
	if len(now.Rules) > 0 {
		end()
	}
	return chunks, nil
}

// encodeRule writes a rule in the form of its JSON, with integers in the smallest type that fits.
func encodeRule(rule rules.Rule) (bson.Raw, error) {
	written, err := rulefile.Written(rule)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := bson.NewEncoder(bson.NewDocumentWriter(&text))
	encoder.IntMinSize()
	err = encoder.Encode(fromValue(written))
	return text.Bytes(), err
}

// fromValue is a value as the driver writes it.
func fromValue(v document.Value) any {
	switch v.Kind {
	case document.KindMapping:
		fields := bson.D{}
		for _, f := range v.Fields {
			fields = append(fields, bson.E{Key: escaper.Replace(f.Name), Value: fromValue(f.Value)})
		}
		return fields
	case document.KindList:
		items := bson.A{}
		for _, item := range v.Items {
			items = append(items, fromValue(item))
		}
		return items
	case document.KindInteger:
		n, _ := document.ParseInteger(v.Text)
		return n
	case document.KindFloat: // a weight
		n, _ := strconv.ParseFloat(v.Text, 64)
		return n
	case document.KindBoolean:
		return v.Text == "true"
	default:
		return v.Text
	}
}

// Characters that some servers refuse in field names are escaped as in a URL.
var (
	escaper   = strings.NewReplacer("%", "%25", ".", "%2E", "$", "%24", "\x00", "%00")
	unescaper = strings.NewReplacer("%25", "%", "%2E", ".", "%24", "$", "%00", "\x00")
)

// unreadable is the error of a revision in a form that stint does not write.
func (s *Store) unreadable(number int64, format string, args ...any) error {
	var faults document.Faults
	faults.Add(s.at(number), format, args...)
	return unreadable(faults)
}

// unreadable wraps rulestore.ErrUnreadable, so that nobody takes it for an outage.
func unreadable(err error) error { return prefix.Errorf("%w: %w", rulestore.ErrUnreadable, err) }

// at is the place of a head for error messages.
func (s *Store) at(number int64) document.Position {
	return document.Position{Source: fmt.Sprintf("%s: _id %d", s.place.collection, number)}
}

// readRules reads the rules of a chunk.
func readRules(source string, chunk bson.Raw) ([]rules.Rule, error) {
	var faults document.Faults
	list, _ := toValue(document.Position{Source: source}, chunk).Find(rulesField)
	read := rulefile.Rules(list, rulesField, &faults)
	if err := faults.Err(); err != nil {
		return nil, unreadable(err)
	}
	return read, nil
}

// inline is the rules of a head that was made by hand.
type inline []rules.Rule

// ReadDocument reads the rules.
func (l *inline) ReadDocument(path document.Path, v document.Value, faults *document.Faults) {
	*l = rulefile.Rules(v, path.String(), faults)
}

// readByHand reads a handmade head, and reports everything that is wrong with it.
func (s *Store) readByHand(ctx context.Context, db *mongo.Database, raw bson.Raw) (rulestore.Revision, error) {
	revision := rulestore.Revision{Info: infoOf(raw)}
	at := s.at(revision.Number)
	var faults document.Faults
	var made head
	whole := toValue(at, raw)
	_, dated := raw.Lookup("at").DateTimeOK()
	whole.Fields = slices.DeleteFunc(whole.Fields, func(f document.Field) bool {
		return f.Name == "at" && dated || f.Name != rulesField && f.Value.Kind == document.KindNull
	})
	document.Kinds(nil).Read(document.Root("a revision", ""), whole, &made, &faults)
	if _, given := whole.Find(rulesField); !given {
		faults.Add(at, "rules is missing; allowed: a list of rules, which may be empty")
	}
	revision.Rules = made.Rules
	check(revision.Rules, at, &faults)
	if err := faults.Err(); err != nil {
		return revision, unreadable(err)
	}
	if _, err := encode(&revision, ""); err != nil { // it sets the count
		return revision, unreadable(err)
	}
	if _, err := raw.LookupErr("bytes"); err != nil || revision.At == 0 {
		s.complete(ctx, db, &revision)
	}
	return revision, nil
}

// check sorts rules that were written by hand by their IDs, and records their faults. It does not know by how many
// bits IPv6 clients are counted.
func check(list []rules.Rule, at document.Position, faults *document.Faults) {
	if len(*faults) > 0 {
		return // the same faults would be reported twice
	}
	slices.SortStableFunc(list, func(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) })
	for i := range list {
		for _, fault := range rulefile.Unjoin[*rules.Fault](list[i].Validate()) {
			faults.AddOf(list[i].ID, at, "%v", fault)
		}
		if i > 0 && list[i].ID == list[i-1].ID {
			faults.AddOf(list[i].ID, at, "rule %q: id is given twice; allowed: each ID once", list[i].ID)
		}
	}
}

// complete adds to a head made by hand the count and size of its rules, and the time by the server's clock. Without
// the right to write its time is unknown.
func (s *Store) complete(ctx context.Context, db *mongo.Database, r *rulestore.Revision) {
	filter := byID(r.Number)
	update := bson.D{{Key: "$set", Value: bson.D{{Key: "count", Value: r.Count}, {Key: "bytes", Value: r.Bytes}}}}
	if r.At == 0 {
		filter = append(filter, bson.E{Key: "at", Value: bson.D{{Key: "$exists", Value: false}}})
		update = append(update, bson.E{Key: "$currentDate", Value: bson.D{{Key: "at", Value: true}}})
	}
	if _, err := s.heads(db).UpdateOne(ctx, filter, update); err != nil {
		return
	}
	head, err := s.heads(db).FindOne(ctx, byID(r.Number)).Raw()
	if err == nil {
		r.ID = infoOf(head).ID
	}
}

// toValue converts a document that the driver has validated to a tree of values.
func toValue(at document.Position, doc bson.Raw) document.Value {
	v := document.Value{At: at, Kind: document.KindMapping}
	elements, _ := doc.Elements()
	for _, e := range elements {
		v.Fields = append(v.Fields, document.Field{At: at, Name: unescaper.Replace(e.Key()), Value: valueOf(at, e.Value())})
	}
	return v
}

// valueOf converts one value of a document. Types that rules can't have get a kind that no reader
// accepts.
func valueOf(at document.Position, raw bson.RawValue) document.Value {
	v := document.Value{At: at}
	switch raw.Type {
	case bson.TypeNull, bson.TypeUndefined:
	case bson.TypeString:
		v.Kind, v.Text = document.KindText, raw.StringValue()
	case bson.TypeBoolean:
		v.Kind, v.Text = document.KindBoolean, strconv.FormatBool(raw.Boolean())
	case bson.TypeInt32, bson.TypeInt64:
		v.Kind, v.Text = document.KindInteger, strconv.FormatInt(raw.AsInt64(), 10)
	case bson.TypeDouble: // as mongosh writes 20
		f := raw.Double()
		if v.Kind, v.Text = document.KindFloat, strconv.FormatFloat(f, 'g', -1, 64); f == math.Trunc(f) &&
			math.Abs(f) <= 1<<53 {
			v.Kind, v.Text = document.KindInteger, strconv.FormatInt(int64(f), 10)
		}
	case bson.TypeArray:
		v.Kind = document.KindList
		items, _ := raw.Array().Values()
		for _, item := range items {
			v.Items = append(v.Items, valueOf(at, item))
		}
	case bson.TypeEmbeddedDocument:
		return toValue(at, raw.Document())
	default:
		v.Kind, v.Text = document.KindFloat, fmt.Sprintf("of type %s: %s", raw.Type, raw)
	}
	return v
}
