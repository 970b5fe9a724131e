package redisstore_test

import (
	"testing"

	redisclient "github.com/redis/go-redis/v9"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/goredis"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// TestScriptLoads: the scripts loaded at first are counted, and the one that a server forgot; a call by its digest is not.
func TestScriptLoads(t *testing.T) {
	own := testredis.Start(t)
	for name, connect := range map[string]func() (redisstore.Conn, error){
		"rueidis": func() (redisstore.Conn, error) { return rueidis.Dial(rueidis.Connection{URL: own.URL()}) },
		"goredis": func() (redisstore.Conn, error) {
			client := redisclient.NewClient(&redisclient.Options{Addr: own.Addr(), ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = client.Close() })
			return goredis.New(client)
		},
	} {
		conn, err := connect()
		if err != nil {
			t.Fatal(err)
		}
		store, err := redisstore.New(conn, redisstore.Options{KeyPrefix: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		policy := policyOf(t, name, aLimit(stint.AlgorithmTokenBucket, 1000))
		if err := store.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		takeAll := func() uint64 {
			for range 50 {
				take(t, store, "k", policy, 1)
			}
			return store.Stats().ScriptLoads
		}
		first := takeAll()
		if again := takeAll(); first < 1 || first > 30 || again > first+5 {
			t.Errorf("%s: %d scripts were loaded at first, %d later", name, first, again-first)
		}
		before := store.Stats().ScriptLoads
		if _, err := own.Do("SCRIPT", "FLUSH"); err != nil {
			t.Fatal(err)
		}
		if after := takeAll(); after <= before || after > before+10 {
			t.Errorf("%s: %d scripts were loaded after SCRIPT FLUSH", name, after-before)
		}
	}
}
