// Package browser tests the dashboard as a person uses it: a real service that makes up traffic, in a real
// browser. It has no code of its own outside tests.
package browser
