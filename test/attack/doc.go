// Package attack attacks the service as anonymous clients can: from many connections at full
// speed, with what costs it most, beside an innocent client. Nothing may be admitted beyond a limit,
// nothing decided by the failure policy, and the innocent client's checks must be
// decided by the store. `make attack` runs it at length. There is nothing in it but tests.
package attack
