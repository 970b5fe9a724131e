// Package httplimit says over HTTP what a limit decided: the X-RateLimit fields,
// the IETF's RateLimit and RateLimit-Policy, and Retry-After.
package httplimit
