// Package storetest is the conformance suite for stores.
//
// [Run] puts a store through every check of ALGORITHMS.md: random sequences of
// operations compared field by field with an [Oracle], the exactness of
// RetryAfter, peeks, resets, changed limits, atomic policies, refused input,
// concurrency, and, of a store that can do it, that a policy is forgotten. A store's test package needs one line:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t testing.TB, clock *storetest.Clock) stint.Store {
//			return mystore.New(mystore.Config{Now: clock.Now})
//		}, storetest.Options{})
//	}
//
// The oracle is a second, deliberately naive implementation in big integers; it
// shares no code with the algorithms. [Reference] is a store made of it, and
// [Faulty] a store that fails on demand.
package storetest
