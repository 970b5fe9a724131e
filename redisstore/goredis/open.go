package goredis

import (
	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/redisstore"
)

// Open makes a store on a connection of [New]. It connects nothing and waits for nothing, as the client
// connects by itself. The client stays the caller's: closing the store does not close it. Errors are those
// of New and of [redisstore.New], and wrap stint.ErrInvalid.
func Open(client redis.UniversalClient, options redisstore.Options) (*redisstore.Store, error) {
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
