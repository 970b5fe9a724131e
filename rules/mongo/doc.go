// Package mongo keeps rules in MongoDB, as a backend of package rules/registry.
//
//	backend, err := mongo.New("mongodb://user:pass@db.example.com/stint?tls=true", mongo.Options{})
//	...
//	defer backend.Close()
//	r, err := registry.New(backend, registry.Options{})
//
// The rules are documents of the collection rate_limit_rules, which people may edit too. What
// counts is kept beside it: rate_limit_rule_versions has a document for each version,
// rate_limit_rule_states each rule as of the version that changed it last, and rate_limit_rule_applied
// says up to which version that is so.
//
// A version is made by one insert, of its number: that is atomic on every server, so that
// nothing here needs transactions. What it changes is applied after that, and who comes next
// finishes what a process could not. All that is read of it is written by inserts of documents that never
// change, so that it does not matter how often or how late one is applied. docs/mongodb.md says
// what people have to know.
package mongo
