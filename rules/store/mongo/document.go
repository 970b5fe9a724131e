package mongo

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/store"
)

// A head is the document that makes a revision.
type head struct {
	Number  int64  `bson:"_id"`
	At      int64  `bson:"at"`
	By      string `bson:"by"`
	Action  string `bson:"action"`
	Comment string `bson:"comment"`
	Count   int    `bson:"count"`
	Bytes   int64  `bson:"bytes"`
	Chunks  int    `bson:"chunks"`
	Attempt string `bson:"attempt"`
}

func newHead(r *store.Revision, attempt string, chunks int) head {
	return head{
		Number: r.Number, At: r.At, By: r.By, Action: r.Action, Comment: r.Comment,
		Count: r.Count, Bytes: r.Bytes, Chunks: chunks, Attempt: attempt,
	}
}

// infoOf is what a head says about its revision, also one made by hand that lacks some of it.
func infoOf(head bson.Raw) store.Info {
	at := intOf(head, "at")
	if date, ok := head.Lookup("at").DateTimeOK(); ok {
		at = date * 1000
	}
	return store.Info{
		ID:     store.ID{Number: intOf(head, "_id"), At: at},
		Author: store.Author{By: textOf(head, "by"), Action: textOf(head, "action"), Comment: textOf(head, "comment")},
		Count:  int(intOf(head, "count")),
		Bytes:  intOf(head, "bytes"),
	}
}

// intOf is a number of a document, 0 if it is none.
func intOf(doc bson.Raw, name string) int64 {
	n, _ := doc.Lookup(name).AsInt64OK()
	return n
}

// textOf is a text of a document, "" if it is none.
func textOf(doc bson.Raw, name string) string {
	text, _ := doc.Lookup(name).StringValueOK()
	return text
}

// chunkPrefix begins the _id of all chunks of a number. The order of chunks is that of their numbers.
func chunkPrefix(number int64) string { return fmt.Sprintf("%019d/", number) }

func chunkID(number int64, attempt string, i int) string {
	return fmt.Sprintf("%s%s/%05d", chunkPrefix(number), attempt, i)
}

// chunksOf matches the chunks of an attempt.
func chunksOf(number int64, attempt string) bson.D {
	prefix := chunkPrefix(number) + attempt
	return byID(bson.D{{Key: "$gt", Value: prefix + "/"}, {Key: "$lt", Value: prefix + "0"}}) // which follows /
}

const (
	// chunkRules and chunkBytes bound a chunk, the latter by its rules as JSON. One rule may be larger.
	chunkRules = 1000
	chunkBytes = 4 << 20
	// maxDocument leaves room for what the driver adds to a document. MongoDB's bound is 16 MiB.
	maxDocument = 16<<20 - 16<<10
)

// encode makes the chunks of a revision, and sets its count and bytes.
func encode(next *store.Revision, attempt string) ([]any, error) {
	text, err := store.Encode(next.Rules)
	if err != nil {
		return nil, err
	}
	next.Count, next.Bytes = len(next.Rules), int64(len(text))
	lines := make([][]byte, 0, len(next.Rules)) // one for each rule
	for line := range bytes.Lines(bytes.Trim(text, "[]\n")) {
		lines = append(lines, bytes.TrimSuffix(line, []byte(",\n")))
	}
	var chunks []any
	for len(lines) > 0 {
		n, size := 0, 0
		for n < min(len(lines), chunkRules) && (n == 0 || size+len(lines[n]) <= chunkBytes) {
			size += len(lines[n])
			n++
		}
		chunk := newChunk(chunkID(next.Number, attempt, len(chunks)), lines[:n])
		if len(chunk) > maxDocument {
			return nil, stint.Invalid("a rule", document.Verbatim(fmt.Sprintf("%d bytes", len(chunk))), "what MongoDB takes as one document, 16 MiB")
		}
		chunks = append(chunks, chunk)
		lines = lines[n:]
	}
	return chunks, nil
}

// newChunk is a document with rules that are written as JSON.
func newChunk(id string, lines [][]byte) bson.Raw {
	size := len(id)
	for _, line := range lines {
		size += len(line) + len(line)/2
	}
	chunk := make([]byte, 4, size) // it starts with its length
	chunk = appendText(appendName(chunk, bson.TypeString, "_id"), id)
	chunk = appendName(chunk, bson.TypeArray, rulesField)
	start := len(chunk)
	chunk = append(chunk, 0, 0, 0, 0)
	for i, line := range lines {
		chunk, _ = appendValue(chunk, strconv.Itoa(i), line)
	}
	return closed(closed(chunk, start), 0)
}

// rulesField holds the rules of a chunk, and of a head that was made by hand.
const rulesField = "rules"

// appendValue appends the first value of a text, which is JSON as notation.JSON writes it, as an element of BSON
// (https://bsonspec.org/spec.html), and returns the text after it.
func appendValue(doc []byte, name string, text []byte) (_, rest []byte) {
	switch text[0] {
	case '"':
		value, rest := cutText(text)
		return appendText(appendName(doc, bson.TypeString, name), value), rest
	case '{', '[':
		kind, end := bson.TypeEmbeddedDocument, byte('}')
		if text[0] == '[' {
			kind, end = bson.TypeArray, ']'
		}
		doc = appendName(doc, kind, name)
		start := len(doc)
		doc, rest = append(doc, 0, 0, 0, 0), text[1:]
		for i := 0; rest[0] != end; i++ {
			if rest[0] == ',' {
				rest = rest[1:]
			}
			key := strconv.Itoa(i)
			if end == '}' {
				key, rest = cutText(rest)
				key, rest = escape(key), rest[1:]
			}
			doc, rest = appendValue(doc, key, rest)
		}
		return closed(doc, start), rest[1:]
	default:
		n := bytes.IndexAny(text, ",]}")
		return appendScalar(doc, name, string(text[:n])), text[n:]
	}
}

// appendScalar appends true, false or a number: an integer as the shorter kind where it fits, as people write it.
func appendScalar(doc []byte, name, text string) []byte {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case text == "true":
		return append(appendName(doc, bson.TypeBoolean, name), 1)
	case text == "false":
		return append(appendName(doc, bson.TypeBoolean, name), 0)
	case err != nil:
		f, _ := strconv.ParseFloat(text, 64)
		return binary.LittleEndian.AppendUint64(appendName(doc, bson.TypeDouble, name), math.Float64bits(f))
	case n == int64(int32(n)):
		return binary.LittleEndian.AppendUint32(appendName(doc, bson.TypeInt32, name), uint32(n))
	default:
		return binary.LittleEndian.AppendUint64(appendName(doc, bson.TypeInt64, name), uint64(n))
	}
}

func appendName(doc []byte, kind bson.Type, name string) []byte {
	return append(append(append(doc, byte(kind)), name...), 0)
}

func appendText(doc []byte, text string) []byte {
	doc = binary.LittleEndian.AppendUint32(doc, uint32(len(text)+1))
	return append(append(doc, text...), 0)
}

// closed ends the document that starts with its length at a place.
func closed(doc []byte, start int) []byte {
	doc = append(doc, 0)
	binary.LittleEndian.PutUint32(doc[start:], uint32(len(doc)-start))
	return doc
}

// cutText takes the text off that JSON begins with.
func cutText(text []byte) (value string, rest []byte) {
	end, plain := 1, true
	for ; text[end] != '"'; end++ {
		if text[end] == '\\' {
			plain = false
			end++
		}
	}
	if plain {
		return string(text[1:end]), text[end+1:]
	}
	_ = json.Unmarshal(text[:end+1], &value) // it was written a moment ago
	return value, text[end+1:]
}

// What field names can't hold everywhere is written as in a URL.
var (
	escaper   = strings.NewReplacer("%", "%25", ".", "%2E", "$", "%24", "\x00", "%00")
	unescaper = strings.NewReplacer("%25", "%", "%2E", ".", "%24", "$", "%00", "\x00")
)

func escape(name string) string { return escaper.Replace(name) }

func unescape(name string) string { return unescaper.Replace(name) }

// unreadable is the error of a revision that stint did not write like this.
func (s *Store) unreadable(number int64, format string, args ...any) error {
	var faults document.Faults
	faults.Add(s.at(number), format, args...)
	return unreadable(faults)
}

func unreadable(err error) error { return fmt.Errorf("%w: %w", store.ErrUnreadable, err) }

// at is where a head is, for people.
func (s *Store) at(number int64) document.Position {
	return document.Position{Source: fmt.Sprintf("%s: _id %d", s.place.collection, number)}
}

// readRules reads the rules of a chunk.
func readRules(source string, chunk bson.Raw) ([]rules.Rule, error) {
	var faults document.Faults
	list := notation.Rules(toValue(document.Position{Source: source}, &path{name: rulesField}, chunk.Lookup(rulesField), &faults), rulesField, &faults)
	if err := faults.Err(); err != nil {
		return nil, unreadable(err)
	}
	return list, nil
}

// readByHand reads a head that somebody made with its rules in it, and reports everything that is wrong with it.
func (s *Store) readByHand(ctx context.Context, db *mongo.Database, raw bson.Raw) (store.Revision, error) {
	revision := store.Revision{Info: infoOf(raw)}
	at := s.at(revision.Number)
	elements, err := raw.Elements()
	if err != nil {
		return revision, s.unreadable(revision.Number, "no BSON: %v", err)
	}
	var faults document.Faults
	given := false
	for _, e := range elements {
		name, isDate := e.Key(), e.Value().Type == bson.TypeDateTime
		switch name {
		case "_id", "at", "count", "bytes":
			if v := e.Value(); (name != "at" || !isDate) && toValue(at, &path{name: name}, v, &faults).Kind != document.KindInteger {
				faults.Add(at, "%s is %s; allowed: a whole number", name, v)
			}
		case "by", "action", "comment":
			if v := e.Value(); v.Type != bson.TypeString && v.Type != bson.TypeNull {
				faults.Add(at, "%s is %s; allowed: a text", name, v)
			}
		case rulesField:
			given = true
			revision.Rules = notation.Rules(toValue(at, &path{name: name}, e.Value(), &faults), name, &faults)
		default:
			faults.Unknown("a revision", document.Field{At: at, Name: name}, []string{"_id", "at", "by", "action", "comment", rulesField})
		}
	}
	if !given {
		faults.Add(at, "rules is missing; allowed: a list of rules, which may be empty")
	}
	check(revision.Rules, at, &faults)
	if err := faults.Err(); err != nil {
		return revision, unreadable(err)
	}
	text, err := store.Encode(revision.Rules)
	if err != nil {
		return revision, unreadable(err)
	}
	revision.Count, revision.Bytes = len(revision.Rules), int64(len(text))
	if _, err := raw.LookupErr("bytes"); err != nil || revision.At == 0 {
		s.complete(ctx, db, &revision)
	}
	return revision, nil
}

// check sorts rules that somebody wrote by their IDs, and records what makes no sense. By how many bits IPv6
// clients are counted is not known here.
func check(list []rules.Rule, at document.Position, faults *document.Faults) {
	if len(*faults) > 0 {
		return // which say enough, and could come twice
	}
	slices.SortStableFunc(list, func(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) })
	for i := range list {
		for _, fault := range notation.Unjoin[*rules.Fault](list[i].Validate()) {
			faults.AddOf(list[i].ID, at, "%v", fault)
		}
		if i > 0 && list[i].ID == list[i-1].ID {
			faults.AddOf(list[i].ID, at, "rule %q: id is given twice; allowed: each ID once", list[i].ID)
		}
	}
}

// complete writes into a head that somebody made what others need to know without reading its rules, and by the
// server's clock when it was made. Without the right to do so its time is unknown.
func (s *Store) complete(ctx context.Context, db *mongo.Database, r *store.Revision) {
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

// A path names a value in a message. It is only put together where there is one.
type path struct {
	parent *path
	name   string
	index  int // in a list, if name is ""
}

func (p *path) String() string {
	switch {
	case p.parent == nil:
		return p.name
	case p.name == "":
		return fmt.Sprintf("%s[%d]", p.parent, p.index)
	default:
		return p.parent.String() + "." + p.name
	}
}

// toValue is a value of a document as the notation has it.
func toValue(at document.Position, name *path, raw bson.RawValue, faults *document.Faults) document.Value {
	v := document.Value{At: at}
	switch raw.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
	case bson.TypeString:
		v.Kind, v.Text = document.KindText, raw.StringValue()
	case bson.TypeBoolean:
		v.Kind, v.Text = document.KindBoolean, strconv.FormatBool(raw.Boolean())
	case bson.TypeInt32, bson.TypeInt64:
		v.Kind, v.Text = document.KindInteger, strconv.FormatInt(raw.AsInt64(), 10)
	case bson.TypeDouble: // as mongosh writes 20
		f := raw.Double()
		if v.Kind, v.Text = document.KindFloat, strconv.FormatFloat(f, 'g', -1, 64); f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
			v.Kind, v.Text = document.KindInteger, strconv.FormatInt(int64(f), 10)
		}
	case bson.TypeArray:
		v.Kind = document.KindList
		items, err := raw.Array().Values()
		if err != nil {
			faults.Add(at, "%s: no BSON: %v", name, err)
		}
		for i, item := range items {
			v.Items = append(v.Items, toValue(at, &path{parent: name, index: i}, item, faults))
		}
	case bson.TypeEmbeddedDocument:
		v.Kind = document.KindMapping
		elements, err := raw.Document().Elements()
		if err != nil {
			faults.Add(at, "%s: no BSON: %v", name, err)
		}
		for _, e := range elements {
			inner := unescape(e.Key())
			v.Fields = append(v.Fields, document.Field{At: at, Name: inner, Value: toValue(at, &path{parent: name, name: inner}, e.Value(), faults)})
		}
	default:
		v.Kind, v.Text = document.KindUntyped, raw.String()
		faults.Add(at, "%s is of type %s; allowed: texts, numbers, true, false, lists and mappings", name, raw.Type)
	}
	return v
}
