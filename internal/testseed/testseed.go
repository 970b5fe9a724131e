// Package testseed says what tests draw by that have no seed of their own.
package testseed

import (
	"math/rand/v2"
	"os"
	"strconv"
)

// Seed is SEED of the environment, which scripts/test sets to one of the commit. Without it, or if it is 0, it is a
// fresh one. A test says it where it fails.
func Seed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil && n != 0 {
		return n
	}
	return rand.Uint64()
}
