package rueidis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// A program's requests are admitted, and marked, while Redis can't be reached.
func ExampleOpen() {
	// Nobody listens there. The time is that of a busy machine; a program does well with the 100 ms of the zero value.
	store, err := rueidis.Open(rueidis.Config{
		URL: "redis://127.0.0.1:1", Failover: failover.Config{Timeout: time.Minute},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	limiter, err := stint.New(store, "api", stint.FixedWindow(100, 24*time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	decision, err := limiter.AllowN(context.Background(), "user:42", 30)
	fmt.Println(decision.Allowed, decision.Degraded, err)
	// Output: true true <nil>
}

// What the three parts of a configuration say is heeded: the connection's, the store's and failover's.
func TestOpenConfig(t *testing.T) {
	store := must.Get(rueidis.Open(rueidis.Config{
		URL: server.URL(), Store: redisstore.Options{KeyPrefix: "config"}, Failover: failover.Config{Timeout: time.Minute},
	}))(t)
	t.Cleanup(store.Close)
	if d := take(t, store, "k", policyOf(t, "", aLimit(stint.AlgorithmTokenBucket, 5)), 2); d.Remaining != 3 || d.Degraded {
		t.Errorf("%+v, want 3 left by Redis", d)
	}
	reply, err := server.Do("KEYS", "config:*")
	if keys, _ := reply.([]any); err != nil || len(keys) == 0 {
		t.Errorf("no key has the prefix: %v, %v", reply, err)
	}
}

// Open names all faults of all three parts at once.
func TestOpenFaults(t *testing.T) {
	_, err := rueidis.Open(rueidis.Config{
		URL: "redis://u@localhost", Username: "v",
		Store:    redisstore.Options{KeyPrefix: "{", MaxBatch: -1},
		Failover: failover.Config{Timeout: -1, Mode: 9},
	})
	for _, want := range []string{"username is", "KeyPrefix is", "MaxBatch is", "Timeout is", "Mode is"} {
		if err == nil || !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not report %q: %v", want, err)
		}
	}
}
