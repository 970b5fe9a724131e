// Package httplimit puts limits into net/http, plain ones or rules. A [Middleware] decides
// about requests before a handler sees them; a [Transport] limits the calls that a client makes, and
// heeds what servers say of their limits; [Headers] says in a response what was decided:
// the X-RateLimit fields, the IETF's RateLimit and RateLimit-Policy, and Retry-After.
package httplimit
