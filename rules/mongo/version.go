package mongo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/registry"
)

// A version is a document of rate_limit_rule_versions: a version as the registry writes it,
// with its changes as a text, which takes less room than documents in a document.
type version struct {
	ID      string `json:"-" bson:"_id"`
	Number  int64  `json:"version" bson:"version"`
	At      int64  `json:"at" bson:"at"`
	By      string `json:"by,omitempty" bson:"by"`
	Action  string `json:"action,omitempty" bson:"action"`
	Comment string `json:"comment,omitempty" bson:"comment"`
	Changes text   `json:"changes" bson:"changes"`
	// Edited says that people made the changes in rate_limit_rules, which has them already.
	Edited bool `json:"-" bson:"edited,omitempty"`
}

// versionID names the document of a version. The order of the IDs is that of the versions.
func versionID(number int64) string { return fmt.Sprintf("%019d", number) }

// text is JSON as it is.
type text string

func (t text) MarshalJSON() ([]byte, error) { return []byte(t), nil }

func (t *text) UnmarshalJSON(data []byte) error {
	*t = text(data)
	return nil
}

func newVersion(v *registry.Version, edited bool) (version, error) {
	var made version
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &made)
	}
	made.ID, made.Edited = versionID(v.Number), edited
	return made, err
}

func (v *version) head() registry.Head { return registry.Head{Number: v.Number, At: v.At} }

// read is the version as the registry has it.
func (v *version) read() (registry.Version, error) {
	var read registry.Version
	data, err := json.Marshal(v)
	if err != nil {
		return read, v.unreadable(err)
	}
	if err := json.Unmarshal(data, &read); err != nil {
		return read, unreadable(err)
	}
	return read, nil
}

// unreadable is the error of a version whose changes are not what stint writes.
func (v *version) unreadable(err error) error {
	return unreadable(stint.Invalid(fmt.Sprintf("version %d", v.Number), err.Error(), "JSON as the registry writes it"))
}

// unreadable is the error of what is wrong with what is kept.
func unreadable(err error) error { return fmt.Errorf("%w: %w", registry.ErrUnreadable, err) }

// change is one of a version, with the rules as they are written.
type change struct {
	ID     string          `json:"id"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

func (v *version) changes() ([]change, error) {
	var list []change
	if err := json.Unmarshal([]byte(v.Changes), &list); err != nil {
		return nil, v.unreadable(err)
	}
	return list, nil
}

// after returns all versions above a number, the oldest first. Hardly ever are there more than
// one or two.
func after(ctx context.Context, db *mongo.Database, number int64) ([]version, error) {
	var list []version
	for {
		known := len(list)
		err := find(ctx, db.Collection(versionsName), byID(versionID(number+1+int64(known))), &list, nil)
		if err != nil || len(list) == known {
			return list, err
		}
	}
}

// byID matches one document.
func byID(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

// find appends all documents that a filter matches to a list.
func find[T any](ctx context.Context, c *mongo.Collection, filter bson.D, list *[]T, o *options.FindOptionsBuilder) error {
	if o == nil {
		o = options.Find()
	}
	cursor, err := c.Find(ctx, filter, o)
	if err != nil {
		return err
	}
	var found []T
	err = cursor.All(ctx, &found)
	*list = append(*list, found...)
	var odd *bson.DecodeError
	if errors.As(err, &odd) {
		return unreadable(stint.Invalid(c.Name(), verbatim(err.Error()), "documents as stint writes them"))
	}
	return err
}
