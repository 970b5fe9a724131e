// Package keyhash hashes keys by a secret seed, so that nobody can choose keys that share a hash.
// Tests that are built with the tag "seeded", as scripts/test does, hash by the SEED of the
// environment instead: a failure by chance can be repeated.
package keyhash
