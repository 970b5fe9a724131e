package mongo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// Names in a document of rate_limit_rules that are no parameters of a rule.
const (
	idField      = "_id"      // the rule's ID
	versionField = "_version" // the number of the version that the document was written for
)

// document is a rule as one of rate_limit_rules, written for a version.
func document(id string, rule []byte, version int64) (bson.D, error) {
	decoder := json.NewDecoder(bytes.NewReader(rule))
	decoder.UseNumber()
	value, err := fromJSON(decoder)
	if err != nil {
		return nil, fmt.Errorf("rule %q: %w", id, err)
	}
	fields, _ := value.(bson.D) // a rule is an object
	doc := bson.D{{Key: idField, Value: id}}
	for _, f := range fields {
		if f.Key != "id" {
			doc = append(doc, f)
		}
	}
	return append(doc, bson.E{Key: versionField, Value: version}), nil
}

// fromJSON is the next value of a text that is JSON.
func fromJSON(decoder *json.Decoder) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Number:
		return number(t)
	case json.Delim:
		if t == '[' {
			return list(decoder)
		}
		return mapping(decoder)
	default:
		return t, nil
	}
}

// number is an integer as one, the shorter kind where it fits, which people can write too.
func number(n json.Number) (any, error) {
	integer, err := strconv.ParseInt(n.String(), 10, 64)
	switch {
	case err != nil:
		return n.Float64()
	case integer == int64(int32(integer)):
		return int32(integer), nil
	default:
		return integer, nil
	}
}

func list(decoder *json.Decoder) (any, error) {
	items := bson.A{}
	for decoder.More() {
		item, err := fromJSON(decoder)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := decoder.Token() // the bracket
	return items, err
}

func mapping(decoder *json.Decoder) (any, error) {
	fields := bson.D{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		value, err := fromJSON(decoder)
		if err != nil {
			return nil, err
		}
		text, _ := name.(string) // the decoder allows no other
		fields = append(fields, bson.E{Key: escape(text), Value: value})
	}
	_, err := decoder.Token() // the brace
	return fields, err
}

// What field names can't hold everywhere is written like in a URL.
var (
	escaper   = strings.NewReplacer("%", "%25", ".", "%2E", "$", "%24", "\x00", "%00")
	unescaper = strings.NewReplacer("%25", "%", "%2E", ".", "%24", "$", "%00", "\x00")
)

func escape(name string) string { return escaper.Replace(name) }

func unescape(name string) string { return unescaper.Replace(name) }

// A written rule is a document of rate_limit_rules.
type written struct {
	id      string
	version int64 // that it was written for; 0: somebody wrote it who knows of none
	rule    rules.Rule
	faults  notation.Faults
}

// readDocument reads a document, also one that people wrote.
func readDocument(raw bson.Raw) written {
	var w written
	elements, err := raw.Elements()
	at := notation.Position{Source: rulesName + ": " + raw.Lookup(idField).String()}
	if err != nil {
		w.faults.Add(at, "no BSON: %v", err)
		return w
	}
	id, isText := raw.Lookup(idField).StringValueOK()
	if !isText {
		w.faults.Add(at, "_id is no text; allowed: the rule's ID")
		return w
	}
	w.id = id
	v := notation.Value{At: at, Kind: notation.KindMapping, Fields: []notation.Field{
		{At: at, Name: "id", Value: notation.Value{At: at, Kind: notation.KindText, Text: id}},
	}}
	for _, e := range elements {
		switch name := e.Key(); name {
		case idField:
		case versionField:
			w.version, _ = e.Value().AsInt64OK() // what is no number is of no version
		case "id":
			if text, isText := e.Value().StringValueOK(); !isText || text != id {
				w.faults.Add(at, "id is %s; allowed: the same as _id, or none", e.Value())
			}
		default:
			v.Fields = append(v.Fields, notation.Field{At: at, Name: name, Value: toValue(at, name, e.Value(), &w.faults)})
		}
	}
	w.rule = notation.Rule(v, "the rule", &w.faults)
	return w
}

// toValue is a value of a document as the notation has it.
func toValue(at notation.Position, name string, raw bson.RawValue, faults *notation.Faults) notation.Value {
	v := notation.Value{At: at}
	switch raw.Type {
	case bson.TypeNull, bson.TypeUndefined:
	case bson.TypeString:
		v.Kind, v.Text = notation.KindText, raw.StringValue()
	case bson.TypeBoolean:
		v.Kind, v.Text = notation.KindBoolean, strconv.FormatBool(raw.Boolean())
	case bson.TypeInt32, bson.TypeInt64:
		v.Kind, v.Text = notation.KindInteger, strconv.FormatInt(raw.AsInt64(), 10)
	case bson.TypeDouble:
		v.Kind, v.Text = double(raw.Double())
	case bson.TypeArray:
		v.Kind = notation.KindList
		items, err := raw.Array().Values()
		if err != nil {
			faults.Add(at, "%s: no BSON: %v", name, err)
		}
		for i, item := range items {
			v.Items = append(v.Items, toValue(at, fmt.Sprintf("%s[%d]", name, i), item, faults))
		}
	case bson.TypeEmbeddedDocument:
		v.Kind = notation.KindMapping
		elements, err := raw.Document().Elements()
		if err != nil {
			faults.Add(at, "%s: no BSON: %v", name, err)
		}
		for _, e := range elements {
			inner := unescape(e.Key())
			v.Fields = append(v.Fields, notation.Field{At: at, Name: inner, Value: toValue(at, name+"."+inner, e.Value(), faults)})
		}
	default:
		v.Kind, v.Text = notation.KindUntyped, raw.String()
		faults.Add(at, "%s is of type %s; allowed: texts, numbers, true, false, lists and mappings", name, raw.Type)
	}
	return v
}

// double is a number of mongosh, in which 20 is one with a fraction of 0.
func double(f float64) (notation.Kind, string) {
	if f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
		return notation.KindInteger, strconv.FormatInt(int64(f), 10)
	}
	return notation.KindFloat, strconv.FormatFloat(f, 'g', -1, 64)
}

// maxDocument bounds a document, with room for what the driver adds. MongoDB's bound is 16 MiB.
const maxDocument = 16<<20 - 16<<10

// errTooLarge says that a document would be too large.
var errTooLarge = errors.New("the document is too large")

// fits returns an error if MongoDB would not take a document.
func fits(doc bson.D) error {
	size, err := bson.Marshal(doc)
	if err == nil && len(size) > maxDocument {
		err = errTooLarge
	}
	return err
}
