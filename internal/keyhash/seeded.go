//go:build seeded

package keyhash

import (
	"os"
	"strconv"
)

// A Seed chooses a hash. All seeds of a process are the same.
type Seed struct{ offset uint64 }

// MakeSeed makes a seed of the number in SEED. Without a number it is 0, so that a run is repeatable
// even then.
func MakeSeed() Seed {
	n, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64)
	if err != nil {
		n = 0
	}
	return Seed{mix(n)}
}

// String hashes a key: FNV-1a, which [mix] spreads over all bits.
func String(seed Seed, key string) uint64 {
	const prime = 1<<40 + 1<<8 + 0xb3
	hash := seed.offset
	for i := range len(key) {
		hash = (hash ^ uint64(key[i])) * prime
	}
	return mix(hash)
}

// mix is the end of MurmurHash3: every bit of x changes each bit of the result in half of all cases.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
