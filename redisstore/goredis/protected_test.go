package goredis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
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
	store := must.Get(goredis.Open(client, goredis.Config{}))(t)
	t.Cleanup(store.Close)
	must.Do(t, store.Ready(t.Context()))
	limiter := must.Get(stint.New(store, "api", stint.FixedWindow(1, 24*time.Hour).FromFirst()))(t)
	must.Do(t, server.Pause())
	for range 5 {
		// A process that did not get a processor meanwhile says that it was overloaded.
		if d, err := limiter.Allow(t.Context(), "ann"); !errors.Is(err, stint.ErrOverloaded) && (err != nil || !d.Allowed || !d.Degraded) {
			t.Errorf("without Redis: %+v, %v", d, err)
		}
	}
	must.Do(t, server.Resume())
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
