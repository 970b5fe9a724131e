package goredis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/goredis"
)

// TestOpenWithoutRedis: with no setting at all a program's requests are admitted, marked, while Redis is stopped, and
// counted again when it is back.
func TestOpenWithoutRedis(t *testing.T) {
	server := testredis.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	store, err := goredis.Open(client, redisstore.Options{}, failover.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	if err := store.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	limiter, err := stint.New(store, "api", stint.FixedWindow(1, 24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		// A process that did not get a processor meanwhile says that it was overloaded.
		if d, err := limiter.Allow(t.Context(), "ann"); !errors.Is(err, stint.ErrOverloaded) && (err != nil || !d.Allowed || !d.Degraded) {
			t.Errorf("without Redis: %+v, %v", d, err)
		}
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); ; <-time.After(time.Millisecond) {
		if d, err := limiter.Allow(t.Context(), "bob"); err == nil && !d.Degraded && !d.Allowed {
			break
		}
		if time.Since(start) > 5*time.Minute {
			t.Fatal("the store does not decide again")
		}
	}
}

// Open says what is wrong with what it is given, and leaves nothing behind.
func TestOpenFaults(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	if _, err := goredis.Open(client, redisstore.Options{}, failover.Config{Timeout: -1}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a timeout below 0: %v", err)
	}
	if _, err := goredis.Open(nil, redisstore.Options{}, failover.Config{}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}
