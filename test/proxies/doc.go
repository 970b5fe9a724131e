// Package proxies holds the tests of nginx and Caddy in front of an application: they start the
// command of each example, with the real proxy and the configuration as it stands, but for the time
// that stint may take, and ask as clients do who want around a limit.
//
// Each run has an address of its own in 127.0.0.0/8, so that many can be made at once.
package proxies
