// Package stint decides whether a request may proceed under a rate limit.
//
// A [Limit] is one algorithm with its parameters; a [Policy] is several limits
// decided together, atomically; a [Store] holds the state and decides; a
// [Limiter] joins a store and a policy and is what most callers use:
//
//	limiter, err := stint.New(memstore.New(memstore.Config{}), "api",
//		stint.TokenBucket(100, stint.PerSecond(10)))
//	...
//	decision, err := limiter.Allow(ctx, "user:42")
//
// Five algorithms are built in: token bucket, leaky bucket, fixed window,
// sliding window log and sliding window counter. If in doubt, choose the token
// bucket. All of them count in integers: no fraction of a permit is lost or
// invented. Time is the store's, in whole microseconds.
//
// A cost that is known only afterwards is reserved before ([Limiter.Reserve]), and
// committed when it is known; [Concurrency] limits how many permits are held at once.
//
// State lives in the process (package memstore) or in Redis or Valkey (package
// redisstore). Both give the same decision for the same sequence of times, keys
// and costs.
//
// Where to begin: [Limit] and its constructors say what may be admitted, [New] and [NewLimiter]
// make a limiter of them, and [Limiter.Allow] decides. [Limiter.Wait] waits instead of denying,
// [Limiter.Peek] looks, [Limiter.Settle] corrects a cost afterwards. An [Observer] is told of each
// decision. Those who write a store implement [Store], and test it by package storetest.
//
// A [Limiter], a [Policy] and a [Store] are safe for concurrent use; limits, operations and
// decisions are plain values. No clock is read in this package but to bound waits: an [Instant] is
// the store's.
//
// Errors are few: [ErrInvalid] (the caller's), [ErrUnavailable] and [ErrOverloaded] (nothing was
// decided, by the store's or by this process's fault), and those of waiting and of holds. A denial
// is none of them.
package stint
