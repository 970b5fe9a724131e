package redisstore_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/redisstore"
)

// Concurrency: many goroutines in several processes, which stores with
// connections of their own stand for, are admitted exactly as often as the limit
// says, and each admission is told another Remaining.
func TestExactAcrossStores(t *testing.T) {
	const limit, processes, callers, calls = 150, 4, 50, 2
	type entry struct {
		name     string
		encoding redisstore.LogEncoding
		limits   []stint.Limit
	}
	var entries []entry
	for _, algorithm := range notation.Algorithms() {
		entries = append(entries, entry{algorithm.String(), redisstore.LogPacked, []stint.Limit{aLimit(algorithm, limit)}})
	}
	for _, encoding := range encodings {
		log := aLimit(stint.AlgorithmSlidingWindowLog, limit)
		entries = append(entries,
			entry{"log as " + string(encoding), encoding, []stint.Limit{log}},
			entry{"policy with a log as " + string(encoding), encoding, []stint.Limit{
				aLimit(stint.AlgorithmTokenBucket, 2*limit), log, aLimit(stint.AlgorithmSlidingWindowCounter, limit+1),
			}})
	}
	for _, e := range entries {
		t.Run(e.name, func(t *testing.T) {
			options := redisstore.Options{LogEncoding: e.encoding, KeyPrefix: "exact" + strconv.FormatInt(prefixes.Add(1), 10)}
			var (
				group     sync.WaitGroup
				mu        sync.Mutex
				remaining []int64
			)
			for range processes {
				store := open(t, server.URL(), options)
				policy := policyOf(t, "", e.limits...)
				for range callers {
					group.Go(func() {
						for range calls {
							d, err := store.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1))
							if err != nil {
								t.Error(err)
							}
							if d.Allowed {
								mu.Lock()
								remaining = append(remaining, d.Remaining)
								mu.Unlock()
							}
						}
					})
				}
			}
			group.Wait()
			slices.Sort(remaining)
			if len(remaining) != limit {
				t.Fatalf("%d of %d requests were admitted, want %d", len(remaining), processes*callers*calls, limit)
			}
			for i, n := range remaining {
				if n != int64(i) {
					t.Fatalf("the admitted were told that %v remain, want each of 0 to %d once", remaining, limit-1)
				}
			}
		})
	}
}
