// Package mongo keeps the revisions of a rule set in MongoDB.
//
//	s, err := mongo.New("mongodb://user:pass@db.example.com/stint?tls=true")
//	...
//	defer s.Close()
//
// A revision is a head document in the collection rate_limit_revisions, and chunks of its rules in
// rate_limit_revisions.chunks. The chunks are inserted first, under a random name of their own. The
// insert of the head, whose _id is the revision's number, is the compare-and-swap. It is atomic on every
// server, so neither transactions nor a replica set are needed. Chunks whose head was never inserted
// are not in force, and are removed later. docs/mongodb.md is for operators.
//
// [Import] reads the rules of a FluxGate collection.
package mongo

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/rulestore"
)

const (
	// defaultCollection holds the heads unless the URL names another one.
	defaultCollection = "rate_limit_revisions"
	// chunksSuffix is added to the name of the collection of heads to name that of chunks.
	chunksSuffix = ".chunks"
	// cleanEvery is the number of revisions between two removals of old ones.
	cleanEvery = 8
)

// Store is a [rulestore.Store] in a database of MongoDB. Make it with [New].
type Store struct {
	connection
	cleaned atomic.Bool // whether this process has cleaned once
}

var _ rulestore.Store = (*Store)(nil)

// New makes a store in the database that a URL names, stint if it names none, and in the collection
// rate_limit_revisions or the one of the option collection. The other options are the driver's. It
// does not connect, so the server may be unreachable. The error wraps stint.ErrInvalid, and does
// not show the URL.
func New(url string) (*Store, error) {
	p, err := parse(url, defaultCollection)
	if err != nil {
		return nil, err
	}
	return &Store{connection: connection{place: p}}, nil
}

func (s *Store) heads(db *mongo.Database) *mongo.Collection { return db.Collection(s.place.collection) }

func (s *Store) chunks(db *mongo.Database) *mongo.Collection {
	return db.Collection(s.place.collection + chunksSuffix)
}

// byID matches documents by their _id.
func byID(id any) bson.D { return bson.D{{Key: "_id", Value: id}} }

// anyHead matches every head. Heads are ordered by their numbers.
var anyHead = byID(bson.D{{Key: "$gt", Value: 0}})

// newest is the newest head with the named fields, or with all if none is named; nil if there is no
// head.
func (s *Store) newest(ctx context.Context, db *mongo.Database, fields ...string) (bson.Raw, error) {
	o := options.FindOne().SetSort(byID(-1))
	if len(fields) > 0 {
		var projection bson.D
		for _, field := range fields {
			projection = append(projection, bson.E{Key: field, Value: 1})
		}
		o.SetProjection(projection)
	}
	head, err := s.heads(db).FindOne(ctx, anyHead, o).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	return head, err
}

// Head returns the newest revision's ID.
func (s *Store) Head(ctx context.Context) (id rulestore.ID, err error) {
	err = s.call(ctx, func(ctx context.Context, db *mongo.Database) error {
		head, err := s.newest(ctx, db, "at")
		id = infoOf(head).ID
		return err
	})
	return id, err
}

// Load returns a revision; number 0 is the newest.
func (s *Store) Load(ctx context.Context, number int64) (revision rulestore.Revision, err error) {
	err = s.call(ctx, func(ctx context.Context, db *mongo.Database) error {
		for {
			head, err := s.find(ctx, db, number)
			if err != nil || head == nil {
				return err
			}
			revision, err = s.read(ctx, db, head)
			if !errors.Is(err, rulestore.ErrNotKept) || number != 0 {
				return err
			}
		}
	})
	if err != nil {
		return rulestore.Revision{}, err
	}
	return revision, nil
}

// find returns the head of a revision; number 0 is the newest.
func (s *Store) find(ctx context.Context, db *mongo.Database, number int64) (bson.Raw, error) {
	if number == 0 {
		return s.newest(ctx, db)
	}
	head, err := s.heads(db).FindOne(ctx, byID(number)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, rulestore.ErrNotKept
	}
	return head, err
}

// read reads the rules of a head. The error is rulestore.ErrNotKept if they were removed meanwhile.
func (s *Store) read(ctx context.Context, db *mongo.Database, raw bson.Raw) (rulestore.Revision, error) {
	if _, err := raw.LookupErr("chunks"); err != nil {
		return s.readByHand(ctx, db, raw)
	}
	revision := rulestore.Revision{Info: infoOf(raw)}
	for i := range int(intOf(raw, "chunks")) {
		id := chunkID(revision.Number, textOf(raw, "attempt"), i)
		chunk, err := s.chunks(db).FindOne(ctx, byID(id)).Raw()
		if errors.Is(err, mongo.ErrNoDocuments) {
			return revision, s.lacks(ctx, db, revision.ID)
		}
		if err != nil {
			return revision, err
		}
		list, err := readRules(s.place.collection+chunksSuffix+": "+id, chunk)
		if err != nil {
			return revision, err
		}
		revision.Rules = append(revision.Rules, list...)
	}
	if len(revision.Rules) != revision.Count {
		return revision, s.unreadable(
			revision.Number, "has %d rules; allowed: %d, as count says", len(revision.Rules), revision.Count,
		)
	}
	return revision, nil
}

// lacks is the error of missing chunks: the revision is no longer kept, or somebody removed them.
func (s *Store) lacks(ctx context.Context, db *mongo.Database, id rulestore.ID) error {
	heads, err := s.list(ctx, db, rulestore.KeptRevisions)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(kept(heads), func(i rulestore.Info) bool { return i.ID == id }):
		return s.unreadable(id.Number, "some of its chunks are missing in %s", s.place.collection+chunksSuffix)
	default:
		return rulestore.ErrNotKept
	}
}

// Put makes next the newest revision. It reads the newest one first. The insert of the next
// number fails if another one was put since.
func (s *Store) Put(ctx context.Context, expected rulestore.ID, next *rulestore.Revision) error {
	if next.Number != expected.Number+1 {
		return rulestore.ErrConflict
	}
	return s.call(ctx, func(ctx context.Context, db *mongo.Database) error {
		newest, err := s.newest(ctx, db, "at")
		if err != nil {
			return refused(err)
		}
		if infoOf(newest).ID != expected {
			return rulestore.ErrConflict
		}
		attempt := rand.Text()
		chunks, err := encode(next, attempt)
		if err != nil {
			return err
		}
		if len(chunks) > 0 {
			if _, err := s.chunks(db).InsertMany(ctx, chunks); err != nil {
				s.discard(ctx, db, next.Number, attempt)
				return refused(err)
			}
		}
		if err := s.insert(ctx, db, head{
			Number: next.Number, At: next.At, By: next.By, Action: next.Action, Comment: next.Comment,
			Count: next.Count, Bytes: next.Bytes, Chunks: len(chunks), Attempt: attempt,
		}); err != nil {
			if errors.Is(err, rulestore.ErrConflict) || errors.Is(err, rulestore.ErrRefused) {
				s.discard(ctx, db, next.Number, attempt)
			}
			return err
		}
		if next.Number%cleanEvery == 0 || !s.cleaned.Swap(true) {
			_ = s.clean(ctx, db) // the revision is made; the next clean tries again
		}
		return nil
	})
}

// insert inserts a head, which makes its revision the newest one.
func (s *Store) insert(ctx context.Context, db *mongo.Database, h head) error {
	_, err := s.heads(db).InsertOne(ctx, h)
	if mongo.IsDuplicateKeyError(err) {
		// The driver may have sent the insert twice.
		there, err := s.heads(db).FindOne(ctx, byID(h.Number)).Raw()
		if err != nil || textOf(there, "attempt") != h.Attempt {
			return rulestore.ErrConflict
		}
		return nil
	}
	const unauthorized = 13
	if failed, ok := errors.AsType[mongo.CommandError](err); ok && failed.HasErrorCode(unauthorized) {
		return refused(err)
	}
	return err
}

// refused is the error of a revision whose head was not inserted.
func refused(err error) error { return prefix.Errorf("%w: %w", rulestore.ErrRefused, err) }

// discard removes the chunks of a failed attempt. If it fails, clean removes them later.
func (s *Store) discard(ctx context.Context, db *mongo.Database, number int64, attempt string) {
	_, _ = s.chunks(db).DeleteMany(ctx, chunksOf(number, attempt))
}

// list reads heads without their rules, the newest first: at most this many, 0 is all.
func (s *Store) list(ctx context.Context, db *mongo.Database, most int64) (heads []bson.Raw, err error) {
	cursor, err := s.heads(db).Find(ctx, anyHead,
		options.Find().SetSort(byID(-1)).SetLimit(most).SetProjection(bson.D{{Key: rulesField, Value: 0}}))
	if err != nil {
		return nil, err
	}
	return heads, cursor.All(ctx, &heads)
}

// kept lists the revisions that are kept, the newest first: the newest 1,000, as far as they fit
// into 64 MiB. It depends only on the heads, so that all processes agree, whatever was removed
// already.
func kept(heads []bson.Raw) (list []rulestore.Info) {
	size := int64(0)
	for _, head := range heads[:min(len(heads), rulestore.KeptRevisions)] {
		info := infoOf(head)
		if size += info.Bytes; size > rulestore.KeptBytes && len(list) > 0 {
			break
		}
		list = append(list, info)
	}
	return list
}

// clean removes revisions that are no longer kept, and chunks of failed attempts. Heads are removed by their number
// only, so that the slow insert of a number that others have long used still fails.
func (s *Store) clean(ctx context.Context, db *mongo.Database) error {
	heads, err := s.list(ctx, db, 0)
	if err != nil || len(heads) == 0 {
		return err
	}
	list := kept(heads)
	newest, oldest := list[0].Number, list[len(list)-1].Number
	named, byHand := map[string]bool{}, false // the attempts to keep; whether there are heads made by hand
	for i, head := range heads {
		if i < len(list) {
			named[textOf(head, "attempt")] = true
		} else if _, err := head.LookupErr("chunks"); err != nil {
			byHand = true
		}
	}
	below := func(id any) bson.D { return byID(bson.D{{Key: "$lt", Value: id}}) }
	if first := newest - rulestore.KeptRevisions + 1; intOf(heads[len(heads)-1], "_id") < first {
		if _, err := s.heads(db).DeleteMany(ctx, below(first)); err != nil {
			return err
		}
	}
	if byHand { // their heads become those of revisions whose chunks are gone
		inline := append(below(oldest), bson.E{Key: rulesField, Value: bson.D{{Key: "$exists", Value: true}}})
		if _, err := s.heads(db).UpdateMany(ctx, inline, bson.D{
			{
				Key:   "$unset",
				Value: bson.D{{Key: rulesField, Value: ""}},
			},
			{Key: "$set", Value: bson.D{{Key: "chunks", Value: 1}}},
		}); err != nil {
			return err
		}
	}
	// Attempts at later numbers may still succeed. The index of _id covers this query.
	cursor, err := s.chunks(db).Find(ctx, below(chunkPrefix(newest+1)), options.Find().SetProjection(byID(1)))
	if err != nil {
		return err
	}
	var chunks []bson.Raw
	if err := cursor.All(ctx, &chunks); err != nil {
		return err
	}
	var lost []string
	for _, chunk := range chunks {
		id := textOf(chunk, "_id")
		if parts := strings.Split(id, "/"); len(parts) != 3 || !named[parts[1]] {
			lost = append(lost, id)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	_, err = s.chunks(db).DeleteMany(ctx, byID(bson.D{{Key: "$in", Value: lost}}))
	return err
}

// History returns revisions without their rules, the newest first.
func (s *Store) History(ctx context.Context, before int64, n int) (list []rulestore.Info, err error) {
	err = s.call(ctx, func(ctx context.Context, db *mongo.Database) error {
		heads, err := s.list(ctx, db, rulestore.KeptRevisions)
		list = kept(heads)
		return err
	})
	if err != nil {
		return nil, err
	}
	if before > 0 {
		list = slices.DeleteFunc(list, func(i rulestore.Info) bool { return i.Number >= before })
	}
	return list[:max(0, min(n, len(list)))], nil
}

// Watch notifies of new heads by a change stream. Only members of a replica set have one. For another server
// the error is errors.ErrUnsupported then.
func (s *Store) Watch(ctx context.Context, ready, notify func()) error {
	var stream *mongo.ChangeStream
	err := s.call(ctx, func(ctx context.Context, db *mongo.Database) (err error) {
		stream, err = s.stream(ctx, db)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }()
	ready()
	for stream.Next(ctx) {
		notify()
	}
	err = stream.Err()
	if err == nil {
		err = errors.New("the change stream ended")
	}
	return meaning(ctx, err)
}

// stream opens a change stream of the head document. Only replica sets and sharded clusters have
// change streams; of a single server the error is errors.ErrUnsupported, and its head is asked for
// at intervals.
func (s *Store) stream(ctx context.Context, db *mongo.Database) (*mongo.ChangeStream, error) {
	var server struct {
		Set     string `bson:"setName"` // of a member of a replica set
		Message string `bson:"msg"`     // isdbgrid: a mongos
	}
	if err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&server); err != nil {
		return nil, err
	}
	if server.Set == "" && server.Message != "isdbgrid" {
		return nil, errors.ErrUnsupported
	}
	// The notification needs no more than the _id, however large the document is.
	return s.heads(db).Watch(ctx, mongo.Pipeline{{{Key: "$project", Value: bson.D{{Key: "operationType", Value: 1}}}}})
}
