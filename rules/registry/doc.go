// Package registry keeps rules that are changed while they are in force.
//
//	r, err := registry.New(backend, registry.Options{})
//	...
//	version, err := r.Edit(ctx, registry.Author{By: "ann", Action: "create login"}, func(d *registry.Draft) error {
//		d.Put(rule)
//		return nil
//	})
//
// Every edit makes a [Version] of all rules together, which says who made it, when, and what
// it changed; two edits can't make the same one, whichever processes they come from. What
// rules can't be enforced with is refused before it is kept. A [Backend] keeps the versions:
// in the process ([NewMemory]), in Redis (package rules/redis) or in MongoDB (package
// rules/mongo). [Registry.Follow] puts each version in force, in every process that follows.
package registry
