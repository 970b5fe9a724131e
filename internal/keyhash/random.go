//go:build !seeded

package keyhash

import "hash/maphash"

// A Seed chooses a hash. Its zero value is none; MakeSeed makes one.
type Seed = maphash.Seed

// MakeSeed makes a seed that nobody knows.
func MakeSeed() Seed { return maphash.MakeSeed() }

// String hashes a key. It is inlined: the memory store hashes on every decision.
func String(seed Seed, key string) uint64 { return maphash.String(seed, key) }
