// Package client asks a running stint service, as a stint.Store or by its plain
// verbs.
//
// A [Client] is a [stint.Store], so a program chooses by one line whether it
// asks Redis itself or goes through the service:
//
//	store, err := client.Open("https://limits.example.com", client.Options{Token: token})
//	...
//	limiter, err := stint.NewLimiter(stint.Config{Store: store, Policy: push})
//
// # Whose limits
//
// The limits are the service's. A policy goes over the wire as a name: one with a
// name is asked for by that name, and one without, of a single limit, by that limit's
// algorithm, if the limit is what the service has as its default
// ([Options.Defaults]). What the service has configured under the name decides, and a
// [stint.Decision] carries that limit's capacity, whatever the program's own policy
// says. Its Index is the first limit of the program's policy with the algorithm and
// capacity that the answer names, else the first with the algorithm, else 0.
//
// So the limits that a program makes up, and rules, whose policies the service does not have,
// can't be decided through a client: package enforce gets an error that wraps [stint.ErrInvalid].
//
// The service's own rules are another way: [Client.Rules] has it decide a request by all rules that
// match, for middleware of packages httplimit and grpclimit, and [Client.Evaluate] is the plain verb.
//
// # What the service can be asked
//
// Take and Peek are carried out as by any other store, but for a cost above the limit: the
// service calls that invalid, where other stores deny it with RetryAfter Never. Of the
// rest the REST API can say this much; what it can't is refused with an error that
// wraps [stint.ErrInvalid], before anything is sent:
//
//   - Try is Take for limits that don't count denied requests; for others it is
//     refused.
//   - Reset answers Allowed and nothing else.
//   - Settle is carried out as by any other store.
//   - Each is filled in for a policy of one limit. GrowsAfter is ResetAfter, a bound.
//     With Reset it is refused, and so it is for several limits, of which the service
//     tells the deciding one.
//   - And is refused: the service decides for one key at a time.
//   - A key has to be UTF-8 without control characters.
//
// So [stint.Limiter.Wait] is refused for limits that count denied requests.
package client
