package redisstore_test

import (
	"flag"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

var operations = flag.Int("operations", 0, "compare so many random operations of each algorithm and encoding with the model; 0 is a small `number`")

var prefixes atomic.Int64

// newStore opens a store with keys of its own on the shared server.
func newStore(t testing.TB, options redisstore.Options) *redisstore.Store {
	t.Helper()
	return newStoreAt(t, server, options)
}

// newStoreAt opens a store with keys of its own on a server.
func newStoreAt(t testing.TB, at *testredis.Server, options redisstore.Options) *redisstore.Store {
	t.Helper()
	options.KeyPrefix = "test" + strconv.FormatInt(prefixes.Add(1), 10)
	return open(t, at.URL(), options)
}

// TestConformance is the small size of `make conformance`, whose operations take minutes:
// 20,000 of each algorithm find all that 100,000 do, of what was broken on purpose. Of
// another encoding only the log differs. Races show in few operations of one encoding.
func TestConformance(t *testing.T) {
	sizes := map[redisstore.LogEncoding]storetest.Options{}
	logs := []stint.Algorithm{stint.AlgorithmSlidingWindowLog}
	for _, encoding := range encodings {
		sizes[encoding] = storetest.Options{Operations: 5_000, Algorithms: logs}
	}
	sizes[redisstore.LogPacked] = storetest.Options{Operations: 20_000}
	if testing.Short() {
		sizes = map[redisstore.LogEncoding]storetest.Options{redisstore.LogPacked: {Operations: 1_000}}
	}
	if *operations > 0 {
		for _, encoding := range encodings {
			sizes[encoding] = storetest.Options{Operations: *operations}
		}
	}
	for encoding, options := range sizes {
		t.Run(string(encoding), func(t *testing.T) {
			t.Parallel()
			// The many keys would be in the way of tests that list theirs.
			own := testredis.Start(t)
			storetest.Run(t, func(t testing.TB, clock *storetest.Clock) stint.Store {
				return newStoreAt(t, own, redisstore.Options{LogEncoding: encoding, Now: clock.Now})
			}, options)
		})
	}
}
