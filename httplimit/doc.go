// Package httplimit puts limits into net/http, plain ones or rules. A [Middleware] decides
// about requests before a handler sees them; a [Transport] limits the calls that a client makes, and
// heeds what servers say of their limits; [Headers] says in a response what was decided:
// the X-RateLimit fields, the IETF's RateLimit and RateLimit-Policy, and Retry-After.
//
// Begin with [PerAddress] for a limit of each client's address, or with [New] for plain limits or
// rules. A middleware is made once and wraps as many handlers as are to share
// its limits; it is immutable and safe for concurrent use. The state is in the limiter's store.
// Middleware for gin and fiber is in packages of their own, ginlimit and fiberlimit; routers on
// net/http take [Middleware.Wrap] as it is.
package httplimit
