package docs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// A cost above the capacity is denied, whatever is left: docs/algorithms.md, "Costs above one".
func TestCostAboveCapacity(t *testing.T) {
	for _, limit := range []stint.Limit{
		stint.TokenBucket(10, stint.PerMinute(10)), stint.LeakyBucket(10, stint.PerMinute(10)), stint.FixedWindow(10, time.Minute),
		stint.SlidingWindowLog(10, time.Minute), stint.SlidingWindowCounter(10, time.Minute),
	} {
		limiter := must.Get(stint.New(memstore.New(memstore.Config{Now: still}), "api", limit))(t)
		must.Get(limiter.AllowN(t.Context(), "ann", 3))(t)
		d, err := limiter.AllowN(t.Context(), "ann", 11)
		if err != nil || d.Allowed || d.RetryAfter != stint.Never || d.Remaining != 7 {
			t.Errorf("%v: %v, %v; want it denied for ever, 7 left", limit.Algorithm, d, err)
		}
		if _, err := limiter.WaitN(t.Context(), "ann", 11); !errors.Is(err, stint.ErrNever) {
			t.Errorf("%v: %v; want %v at once", limit.Algorithm, err, stint.ErrNever)
		}
	}
}
