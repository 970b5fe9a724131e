package failover_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// As long as the store it wraps is well, a failover store is as transparent as glass.
func TestConformance(t *testing.T) {
	options := storetest.Options{Operations: 10_000}
	if testing.Short() {
		options = storetest.Options{Operations: 1_000}
	}
	for name, wrap := range map[string]func(stint.Store) stint.Store{
		"whole":   func(s stint.Store) stint.Store { return s },
		"sharded": func(s stint.Store) stint.Store { return sharded{Store: s, n: 3} },
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(t testing.TB, clock *storetest.Clock) stint.Store {
				// The timeout is such that a machine with much to do does not run into it.
				store := must.Get(failover.New(wrap(memstore.New(memstore.Config{Now: clock.Now})), failover.Config{
					Timeout: time.Minute,
				}))(t)
				t.Cleanup(store.Close)
				return store
			}, options)
		})
	}
}
