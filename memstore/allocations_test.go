//go:build !race

// The race detector makes pools forget.

package memstore_test

import (
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// A hold and its commit take at most 8 pieces of memory: the reservation, its ID and key, and what the store keeps.
func TestAllocationsOfAHold(t *testing.T) {
	limiter := must.Get(stint.New(memstore.New(memstore.Config{}), "api", stint.Concurrency(5)))(t)
	n := testing.AllocsPerRun(1000, func() {
		r, d, err := limiter.Reserve(t.Context(), "k", 2, stint.Hold{})
		if err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		if _, err := r.Commit(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	})
	if n > 8 {
		t.Errorf("%v allocations, want 8 at most", n)
	}
}
