package goredis

import (
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/redisstore"
)

// A Config says how a store works, and what it does while its servers are unreachable. The zero value is a good choice.
type Config struct {
	// Store says how the store works: the prefix of its keys, sizes of batches and caches. The zero value is a good
	// choice.
	Store redisstore.Options
	// Failover says how long a call takes at most, and what is done while the servers are unreachable. The zero value
	// bounds a call to 100 ms and admits. Local and Instances are filled in, as [failover.Protect] does.
	Failover failover.Config
}

// Open makes a store for production on a client, a [redisstore.Store] on a connection of [New] within
// [failover.Protect]. It connects nothing and waits for nothing, as the client connects by itself. While Redis can't be
// reached a mode decides, by default one that admits; a call takes 100 ms at most.
//
// Open fails only for what is wrong with its arguments, with an error that tells all of it and wraps stint.ErrInvalid.
// The store is safe for concurrent use, and has to be closed. The client stays the caller's: closing the store does not
// close it.
func Open(client redis.UniversalClient, c Config) (*failover.Store, error) {
	conn, err := New(client)
	if err := prefix.Join(err, c.Store.Validate(), c.Failover.Validate()); err != nil {
		return nil, err
	}
	c.Store.CountInstances = c.Store.CountInstances || c.Failover.Instances == nil
	store, err := redisstore.New(conn, c.Store)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return failover.Protect(store, c.Failover)
}
