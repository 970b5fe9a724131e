// Package routers holds the tests that package httplimit works with chi and echo as it is. It is a
// module of its own, so that nobody who uses stint downloads them.
package routers
