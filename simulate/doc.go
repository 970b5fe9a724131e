// Package simulate shows what limits would do to traffic before they are in force: events and
// rules in, decisions out, in virtual time.
//
//	s, err := simulate.New(simulate.Config{Candidates: []simulate.Candidate{{Name: "a.yaml", Set: set}}})
//	...
//	err = source.Run(s.Add) // the requests of a log or of a Pattern, in order of time
//	report, err := s.Finish()
//
// Every candidate is a rule set, and decides all events by itself. Decisions are made by the transitions of
// package algorithm on a table of its own, which evicts nothing. Requests that rules hold wait in virtual time, as package enforce
// would have them wait.
//
// [Suggest] turns it around: it finds the least limit under which a given share of the clients is never denied, and
// proves it by a replay.
//
// No clock is read: the time is the events'.
package simulate
