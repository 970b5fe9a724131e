//go:build !seeded

// Package keyhash hashes keys by a secret seed, so that nobody can choose keys that share a hash.
// Tests that are built with the tag "seeded", as scripts/test does, hash by the SEED of the
// environment instead: a failure by chance can be repeated.
package keyhash

import "hash/maphash"

// A Seed chooses a hash. Its zero value is none; MakeSeed makes one.
type Seed = maphash.Seed

// MakeSeed makes a seed that nobody knows.
func MakeSeed() Seed { return maphash.MakeSeed() }

// String hashes a key. It is inlined: the memory store hashes on every decision.
func String(seed Seed, key string) uint64 { return maphash.String(seed, key) }
