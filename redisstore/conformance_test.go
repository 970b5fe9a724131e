package redisstore_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/storetest"
)

var prefixes atomic.Int64

// newStore opens a store with keys of its own on the shared server.
func newStore(t testing.TB, options redisstore.Options) *redisstore.Store {
	t.Helper()
	options.KeyPrefix = "test" + strconv.FormatInt(prefixes.Add(1), 10)
	store, err := rueidis.Open(rueidis.Connection{URL: server.URL()}, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func TestConformance(t *testing.T) {
	for encoding, options := range map[redisstore.LogEncoding]storetest.Options{
		redisstore.LogPacked: {},
		redisstore.LogZSet:   {Operations: 5_000}, // of another encoding only the log differs
		redisstore.LogStream: {Operations: 5_000},
	} {
		t.Run(string(encoding), func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, clock *storetest.Clock) stint.Store {
				return newStore(t, redisstore.Options{LogEncoding: encoding, Now: clock.Now})
			}, options)
		})
	}
}
