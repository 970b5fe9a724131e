package goredis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/goredis"
)

// What a program needs for production: a store that answers, by default by admitting, while Redis can't be reached.
func ExampleOpen() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	store, err := goredis.Open(client, goredis.Config{
		Store: redisstore.Options{KeyPrefix: "open"}, Failover: failover.Config{Timeout: time.Minute},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	if err := store.Ready(ctx); err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := stint.New(store, "api", stint.FixedWindow(100, 24*time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	decision, err := limiter.AllowN(ctx, "user:42", 30)
	fmt.Println(decision.Allowed, decision.Remaining, decision.Degraded, err)
	// Output: true 70 false <nil>
}

// The client stays the program's, for whatever else it does.
func ExampleNew() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()

	conn, err := goredis.New(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := redisstore.New(conn, redisstore.Options{KeyPrefix: "example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	ready, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := store.Ready(ready); err != nil {
		fmt.Println(err)
		return
	}
	limiter, err := stint.New(store, "api", stint.FixedWindow(100, 24*time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	decision, err := limiter.AllowN(ctx, "user:42", 30)
	fmt.Println(decision.Allowed, decision.Remaining, err)
	// Output: true 70 <nil>
}
