package memstore_test

import (
	"strconv"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/memstore"
)

// BenchmarkKeep and BenchmarkWays compare what leaves permits to others, and two ways, with plain takes of the same states.
func BenchmarkKeep(b *testing.B) {
	for name, keep := range map[string]int64{"plain": 0, "keep": 1000} {
		b.Run("take="+name, func(b *testing.B) {
			store, policy := memstore.New(memstore.Config{}), plenty(b, "api")
			keys := clientKeys()
			for i := range b.N {
				op := stint.Op{Claim: stint.Claim{Key: keys[i%len(keys)], Policy: policy, Permits: 1, Keep: keep}}
				if d, err := store.Decide(b.Context(), op); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}

func BenchmarkWays(b *testing.B) {
	for name, ways := range map[string]bool{"plain": false, "ways": true} {
		b.Run("take="+name, func(b *testing.B) {
			store, floor, parent := memstore.New(memstore.Config{}), plenty(b, "team"), plenty(b, "org")
			keys := clientKeys()
			claims := make([]stint.Claim, 3)
			extra := &stint.Extra{Groups: [][]stint.Way{{claims[:2], claims[2:]}}}
			for i := range b.N {
				claims[0] = stint.Claim{Key: keys[i%len(keys)], Policy: floor, Permits: 1}
				claims[1] = stint.Claim{Key: "org", Policy: parent, Permits: 1}
				op := stint.Op{Claim: claims[0], And: claims[1:2]}
				if ways {
					claims[2] = stint.Claim{Key: "org", Policy: parent, Permits: 1, Keep: 1000}
					op = stint.Op{Extra: extra}
				}
				if d, err := store.Decide(b.Context(), op); err != nil || !d.Allowed {
					b.Fatal(d, err)
				}
			}
		})
	}
}

func plenty(b *testing.B, name string) *stint.Policy {
	b.Helper()
	policy, err := stint.NewPolicy(name, stint.TokenBucket(bounds.MaxPermits, stint.PerSecond(1_000_000)))
	if err != nil {
		b.Fatal(err)
	}
	return policy
}

func clientKeys() []string {
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = "client-" + strconv.Itoa(i)
	}
	return keys
}
