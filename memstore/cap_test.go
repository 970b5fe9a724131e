package memstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// "A hard cap on memory with a stated eviction rule; evictions are counted."
func TestCap(t *testing.T) {
	for name, limit := range map[string]stint.Limit{
		"fixed size": stint.TokenBucket(10, stint.PerHour(10)),
		"log":        stint.SlidingWindowLog(10, time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			clients := 100_000
			if testing.Short() {
				clients = 40_000
			}
			clock := storetest.NewClock(1_790_000_000_000_000)
			store := memstore.New(memstore.Config{MaxBytes: memstore.MinMaxBytes, Now: clock.Now})
			limiter := must.Get(stint.New(store, "test", limit))(t)
			for i := range clients {
				must.Get(limiter.Allow(t.Context(), strconv.Itoa(i)))(t)
			}
			stats := store.Stats()
			if stats.Bytes > stats.MaxBytes {
				t.Errorf("%d bytes, the cap is %d", stats.Bytes, stats.MaxBytes)
			}
			if stats.Evictions == 0 || stats.Clients+stats.Evictions != int64(clients) || stats.Reclaimed != 0 {
				t.Errorf("stats are %+v; want every client held or counted as evicted", stats)
			}
			clock.Advance(48 * time.Hour)
			for i := range clients / 10 {
				must.Get(limiter.Allow(t.Context(), strconv.Itoa(-1-i%10)))(t)
			}
			if after := store.Stats(); after.Reclaimed == 0 || after.Evictions != stats.Evictions {
				t.Errorf("stats are %+v after two days; want the worthless reclaimed and nothing more evicted", after)
			}
		})
	}
}

// Without a cap there is the default one, and below the least there is that.
func TestCapOfAConfig(t *testing.T) {
	for given, want := range map[int64]int64{0: memstore.DefaultMaxBytes, 1: memstore.MinMaxBytes, 5 << 20: 5 << 20} {
		if got := memstore.New(memstore.Config{MaxBytes: given}).Stats().MaxBytes; got != want {
			t.Errorf("MaxBytes %d: a cap of %d, want %d", given, got, want)
		}
	}
}
