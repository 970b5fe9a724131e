package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Watch tells of versions, and of edits by people, by a change stream. A server that is no member of
// a replica set has none: the error is errors.ErrUnsupported then.
func (b *Backend) Watch(ctx context.Context, ready, notify func()) error {
	db, err := b.database(ctx)
	if err != nil {
		return meaning(ctx, err)
	}
	var stream *mongo.ChangeStream
	err = b.call(ctx, func(ctx context.Context, _ *mongo.Database) (err error) {
		stream, err = open(ctx, db)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }()
	// People may have edited before anybody listened.
	b.searched.hear()
	ready()
	for stream.Next(ctx) {
		if name, _ := stream.Current.Lookup("ns", "coll").StringValueOK(); name != versionsName {
			b.searched.hear()
		}
		notify()
	}
	err = stream.Err()
	if err == nil {
		err = errors.New("the change stream ended")
	}
	return meaning(ctx, err)
}

// open opens a stream of what becomes of the two collections that make news.
func open(ctx context.Context, db *mongo.Database) (*mongo.ChangeStream, error) {
	var server struct {
		Set     string `bson:"setName"` // of a member of a replica set
		Message string `bson:"msg"`     // isdbgrid: it stands before several
	}
	if err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&server); err != nil {
		return nil, err
	}
	if server.Set == "" && server.Message != "isdbgrid" {
		return nil, errors.ErrUnsupported
	}
	return db.Watch(ctx, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "ns.coll", Value: bson.D{{Key: "$in", Value: bson.A{versionsName, rulesName}}}}}}},
		// Where is enough, however large the document.
		{{Key: "$project", Value: bson.D{{Key: "ns", Value: 1}, {Key: "operationType", Value: 1}}}},
	})
}
