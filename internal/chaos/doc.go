// Package chaos holds the failover store, on real servers, to the table of
// docs/failure.md: each of its faults is made under load, what the callers see is
// measured, and everything that the table promises is checked. `make chaos` prints the
// table as it was measured. There is nothing in it but tests.
package chaos
