// Package chaos holds the failover store, on real servers, to the table of
// docs/reference/failures.md: each of its faults is made under load, what the callers see is
// measured, and everything that the table promises is checked. `make chaos` prints the
// table as it was measured. `make soak` makes those faults after which nothing is lost
// one after another, drawn by chance, under a load of everything that can be asked, for
// as long as told. There is nothing in it but tests.
package chaos
