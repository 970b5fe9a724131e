package states

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/memstore"
)

// What want of memory does is told once a minute, with how often; nothing is told of a minute without.
func TestFullMemoryIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		stats := memstore.Stats{MaxBytes: 1 << 20, Evictions: 5, HoldsRefused: 5} // before it is looked at
		var mu sync.Mutex
		read := func() memstore.Stats {
			mu.Lock()
			defer mu.Unlock()
			return stats
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			tellFull(ctx, slog.New(slog.NewTextHandler(&log, nil)), read)
			close(ended)
		}()
		for _, more := range []memstore.Stats{{}, {Evictions: 2}, {HoldsRefused: 300_000}, {}, {Evictions: 1, HoldsRefused: 1}} {
			synctest.Wait()
			mu.Lock()
			stats.Evictions += more.Evictions
			stats.HoldsRefused += more.HoldsRefused
			mu.Unlock()
			<-time.After(time.Minute)
		}
		synctest.Wait()
		cancel()
		<-ended
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		for i, want := range []string{
			"dropped=2 reserves_denied=0 store.max_memory=1048576", "dropped=0 reserves_denied=300000", "dropped=1 reserves_denied=1",
		} {
			if len(lines) != 3 || !strings.Contains(lines[i], want) {
				t.Fatalf("the log, want %s:\n%s", want, log.String())
			}
		}
	})
}
