package memstore_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
)

// BenchmarkDecideAll compares batches of 64 takes with as many single takes: of a million keys, whose states are not in the
// processor's cache, and of 64.
func BenchmarkDecideAll(b *testing.B) {
	for _, keys := range []int{64, 1_000_000} {
		store, policy := memstore.New(memstore.Config{}), plenty(b, "api")
		names := make([]string, keys)
		for i := range names {
			names[i] = "user:" + strconv.Itoa(i)
			if _, err := store.Take(b.Context(), policy, names[i], 1); err != nil {
				b.Fatal(err)
			}
		}
		rng := rand.New(rand.NewPCG(1, 2))
		ops, results := make([]stint.Op, 64), make([]stint.Result, 64)
		draw := func() {
			for i := range ops {
				ops[i].Claim = stint.Claim{Key: names[rng.IntN(keys)], Policy: policy, Permits: 1}
			}
		}
		b.Run("keys="+strconv.Itoa(keys)+"/single", func(b *testing.B) {
			for b.Loop() {
				draw()
				for i := range ops {
					results[i].Decision, results[i].Err = store.Take(b.Context(), policy, ops[i].Key, 1)
				}
			}
		})
		b.Run("keys="+strconv.Itoa(keys)+"/batch", func(b *testing.B) {
			for b.Loop() {
				draw()
				store.DecideAll(b.Context(), ops, results)
			}
		})
	}
}
