package goredis_test

import (
	"errors"
	"strings"
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
	store, err := goredis.Open(client, goredis.Config{})
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

// Open names all that is wrong with what it is given at once.
func TestOpenFaults(t *testing.T) {
	_, err := goredis.Open(nil, goredis.Config{
		Store: redisstore.Options{MaxBatch: -1}, Failover: failover.Config{Timeout: -1},
	})
	for _, want := range []string{"client is", "MaxBatch is", "Timeout is"} {
		if err == nil || !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not report %q: %v", want, err)
		}
	}
}
