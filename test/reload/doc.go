// Package reload holds rules to what docs/keeping-rules.md promises of a reload: while many callers have requests
// decided, set after set is put in force, and every decision is compared with what the exact model of storetest says of
// the very set that decided it. `make reload` does so with 1,000 rules and 100,000 clients for as long as told. There
// is nothing in it but tests.
//
// A model needs to know the order in which a state was changed. So each client, each tenant and
// each host with rules of its own belongs to one caller, which has a model of its own and asks one
// request after another; all of that is checked field by field, at the time at which the store
// decided. The rules that all callers share have limits of which nothing comes back for years. Of
// those the order does not matter: as many must be admitted as the limit says, and each must leave
// another number behind. A request that such a rule denies is, to the model, denied by somebody
// else.
//
// The first and the last rule of every set carry its number and hold for every request, so an
// answer tells which set decided. From then on it is known which rules hold, for whom, at which
// cost, and what each limit says, for rules that stay as they are as well as for those that have
// just changed: the state must have moved as docs/internals/semantics.md says, or not at all if any
// of them denies.
package reload
