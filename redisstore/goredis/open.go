package goredis

import (
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/redisstore"
)

// Open makes a store for production on a client: [OpenBare] within [failover.Protect]. It connects
// nothing and waits for nothing. While Redis can't be reached a mode decides, by default one that
// admits; a call takes 100 ms at most. The client stays the caller's: closing the store does not close
// it. Errors wrap stint.ErrInvalid.
//
// Of the configuration, Store must be nil: Open fills it in. It also fills in Local, by a memory store,
// and Instances, by the number of processes that share the Redis, if they are nil. The other fields have
// the defaults that [failover.Config] names.
func Open(client redis.UniversalClient, options redisstore.Options, config failover.Config) (*failover.Store, error) {
	options.CountInstances = options.CountInstances || config.Instances == nil
	bare, err := OpenBare(client, options)
	if err != nil {
		return nil, err
	}
	return failover.Protect(bare, config)
}

// OpenBare makes a store on a connection of [New], for those who bring a deadline and an answer to failures of their
// own: a call waits for Redis as long as its context lasts. It connects nothing and waits for nothing, as the client
// connects by itself. The client stays the caller's. Errors are those of New and of [redisstore.New], and wrap
// stint.ErrInvalid.
func OpenBare(client redis.UniversalClient, options redisstore.Options) (*redisstore.Store, error) {
	conn, err := New(client)
	if err != nil {
		return nil, err
	}
	store, err := redisstore.New(conn, options)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return store, nil
}
