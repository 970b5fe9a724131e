package server

import (
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A connection on which the next requests have come already lets others go between two of them.
func TestOthersGoBetweenRequests(t *testing.T) {
	connections, err := newConnMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := newIdleTracker(time.Minute, time.Minute, time.Minute, connLimiter{most: 2, metrics: connections[serviceHTTP], logger: slog.New(slog.DiscardHandler)})
	conn := &trackedConn{Conn: silence{}}
	w.admit(conn)
	const rounds = 1000
	late := 0
	for range rounds {
		var went atomic.Bool
		go went.Store(true)
		for range 3 * yieldEvery { // the scheduler may choose this goroutine again, seldom
			w.changed(conn, http.StateActive)
			w.changed(conn, http.StateIdle)
		}
		if !went.Load() {
			late++
		}
	}
	if late > 0 {
		t.Errorf("another goroutine had to wait in %d of %d cases", late, rounds)
	}
}
