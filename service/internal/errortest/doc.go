// Package errortest tests how the errors of all packages begin, those of the service's own packages
// among them.
package errortest
