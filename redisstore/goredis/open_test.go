package goredis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/goredis"
)

// A call waits for Redis as long as its context lasts.
func ExampleOpenBare() {
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()

	store, err := goredis.OpenBare(client, redisstore.Options{KeyPrefix: "bare"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	limiter, err := stint.New(store, "api", stint.TokenBucket(10, stint.PerMinute(10)))
	if err != nil {
		fmt.Println(err)
		return
	}
	decision, err := limiter.Allow(context.Background(), "user:42")
	fmt.Println(decision, err)
	// Output: allowed, 9 of 10 left <nil>
}

// OpenBare refuses what New and redisstore.New refuse, and its store leaves the client open.
func TestOpenBare(t *testing.T) {
	client := closing(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	for name, open := range map[string]func() (*redisstore.Store, error){
		"client":  func() (*redisstore.Store, error) { return goredis.OpenBare(nil, redisstore.Options{}) },
		"options": func() (*redisstore.Store, error) { return goredis.OpenBare(client, redisstore.Options{MaxBatch: -1}) },
	} {
		if store, err := open(); store != nil || !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%s: %v, %v; want an invalid argument", name, store, err)
		}
	}
	store, err := goredis.OpenBare(client, redisstore.Options{KeyPrefix: "bare"})
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("the client after its store was closed: %v", err)
	}
}
