// Package document reads what people write: YAML and JSON as one tree of values, each with its line
// and column, and everything that is wrong with it at once.
//
//	var faults document.Faults
//	v := document.Parse("stint.yaml", data, 1<<20, &faults)
//
// [Parse] makes a [Value] of a text, and records what is no YAML or JSON as [Faults]. [Kinds.Read] fills a struct
// from it by the struct's tags, and records what the value may not say in the same way. Reading is strict: there is one document, a
// name stands in a mapping once, and a document says everything where it stands, so anchors, aliases,
// tags and directives are faults.
package document
