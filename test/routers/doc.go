// Package routers holds the tests that package httplimit works with chi and echo as it is. It is a
// module of its own, so that users of stint do not download them.
package routers
