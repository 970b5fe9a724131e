// Package redis keeps rules in Redis (6.2 or later) or Valkey, for several processes to share.
//
//	conn, err := rueidis.Dial(rueidis.Connection{URL: "redis://localhost:6379"})
//	...
//	backend, err := redis.New(conn, redis.Options{})
//	...
//	r, err := registry.New(backend, registry.Options{})
//
// The rules are a hash, a rule's JSON by its ID, and their versions a stream. All keys are in one
// slot of a cluster, so that a script writes a version in one step; it publishes that it did. Rules
// are loaded in pages, as they were at one version nonetheless: see [Backend.Load]. docs/redis.md describes the keys.
package redis
