// Package mongo keeps the revisions of a rule set in MongoDB.
//
//	s, err := mongo.New("mongodb://user:pass@db.example.com/stint?tls=true")
//	...
//	defer s.Close()
//
// A revision is a head document in the collection rate_limit_revisions, and chunks of its rules in
// rate_limit_revisions.chunks. The chunks are inserted first, under a random name of their own. The
// insert of the head, whose _id is the revision's number, is the compare-and-swap: it is atomic on every
// server, so neither transactions nor a replica set are needed. Chunks whose head was never inserted
// are in force nowhere, and are removed later. docs/mongodb.md says what operators need to know.
//
// [Import] reads the rules of a FluxGate collection.
package mongo
