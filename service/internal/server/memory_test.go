package server_test

import (
	"bytes"
	"flag"
	"net/http"
	"runtime"
	"strconv"
	"testing"

	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server"
)

// In full: go test ./server -run TestMemoryIsBounded -v -keys 50000000
var keys = flag.Int("keys", 2_000_000, "how many distinct keys TestMemoryIsBounded sends")

// Millions of distinct keys stay within the store's cap, and the service around it
// keeps nothing of them.
func TestMemoryIsBounded(t *testing.T) {
	const room = 8 << 20
	limit, n := int64(16<<20), *keys
	if raceEnabled {
		limit, n = 2<<20, min(n, 100_000) // it is slow there, and this fills the store
	}
	if testing.Short() {
		n = min(n, 600_000) // more than fit
	}
	// The clock stands still, so that no state is outlived and its room free.
	store := memstore.New(memstore.Config{MaxBytes: limit, Now: start.Time})
	config, _, _ := testConfig()
	config.Store = store
	s := must.Get(server.New(config))(t)
	before, most := memory(), int64(0)
	w := &discard{header: http.Header{}}
	var body bytes.Buffer
	for sent := 0; sent < n; {
		body.Reset()
		separator := byte('[')
		for range min(bounds.MaxBatch, n-sent) {
			body.WriteByte(separator)
			body.WriteString(`{"key":"client:`)
			body.WriteString(strconv.Itoa(sent))
			body.WriteString(`"}`)
			separator = ','
			sent++
		}
		body.WriteByte(']')
		if serve(s.Handler(), w, newRequest(http.MethodPost, check, body.String())); w.status != http.StatusOK {
			t.Fatalf("status %d", w.status)
		}
		if sent%(n/10) == 0 {
			most = max(most, memory()-before)
		}
	}
	stats := store.Stats()
	t.Logf("%d keys: at most %d bytes of heap, of which the store says %d; %d evictions", n, most, stats.Bytes, stats.Evictions)
	if most > limit+room {
		t.Errorf("the heap grows by %d bytes; allowed: the cap of %d and %d", most, limit, room)
	}
	if stats.Bytes > limit {
		t.Errorf("the store uses %d bytes; its cap is %d", stats.Bytes, limit)
	}
	if stats.Evictions == 0 || most < limit/4 {
		t.Errorf("%d bytes and %d evictions: the cap was not reached", most, stats.Evictions)
	}
	runtime.KeepAlive(s)
}
