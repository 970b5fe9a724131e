// Package redis keeps a rule set in Redis (6.2 or later) or Valkey, for several processes to share.
//
//	conn, err := rueidis.Dial(rueidis.Connection{URL: "redis://localhost:6379"})
//	...
//	s, err := redis.New(conn, redis.Options{})
//
// All revisions are fields of one hash, so that they are lost together or not at all. One script
// compares the newest one, writes the next and publishes that it did. docs/internals/layout.md describes the fields.
package redis
