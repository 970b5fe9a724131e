// Package measure counts the files that a request runs through, and the types declared in them:
// what somebody has to know who follows it. `make measure` prints it. There is nothing in it but
// tests.
package measure
