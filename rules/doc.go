// Package rules finds the limits that hold for a request: rules in, and for each
// request the keys, limits and costs that are decided together.
//
//	set, err := rules.Compile(list, rules.Options{})
//	...
//	set.Match(&rules.Request{Method: "GET", Path: "/api/users"}, &matches)
//	for i := range matches.Len() {
//		matched, err := matches.At(i)
//		...
//	}
//
// Every rule that matches a request holds for it; none hides another. Package enforce decides
// all of their limits in one step of a store: the request is admitted when all admit,
// and takes nothing when one does not. Rules in shadow are decided each by itself, and
// never deny.
//
// # Whom a rule counts
//
// A rule has a state for each client, and its scope says what a client is: everybody
// together, an address, a user, an API key, an attribute, or several of them at once. A
// request that lacks what the scope asks for is not counted with others that lack it, but
// is treated as the rule's [Missing] says. State belongs to the rule's ID and to the
// client: it survives every change of the rule but that of its ID, by the rules for a changed
// limit in docs/semantics.md.
//
// # Which requests a rule matches
//
// A request's path has one canonical form, see [AppendPath]: every spelling of a path has the rules
// of that form. Programs differ in what they do with dots, encoded slashes, backslashes,
// runs of slashes (which may begin an authority) and #. So a path with any of these has several variants, 252 at most, and a rule holds if its
// pattern matches any of them: whichever variant a program uses, all rules of the route that it
// finds hold. A parameter's value comes from the first variant that matches, the canonical one
// first. [MaxOddPathBytes] and [MaxOddPathCuts] bound a path with several variants.
//
// The patterns are kept in a tree of the segments of hosts and paths: matching costs as much as the
// path is long, however many rules there are.
package rules
