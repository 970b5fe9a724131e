package listen

import (
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// The time for a first head begins when the connection is admitted, whenever net/http says that it is new.
func TestFirstHeadIsTimedFromAdmission(t *testing.T) {
	w := trackedBy(t, HTTP, connLimiter{most: 2})
	conn := enter(t, w)
	admitted := conn.since.Load()
	w.now.Add(1)
	w.changedHTTP(conn, http.StateNew)
	if since := conn.since.Load(); since != admitted {
		t.Errorf("new since %d, want %d, when it was admitted", since>>2, admitted>>2)
	}
}

// chunk is how many bytes each Read of chunks has at most.
const chunk = 8

// chunks is a connection on which there is always another chunk.
type chunks struct{ net.Conn }

func (chunks) Read(to []byte) (int, error) { return min(len(to), chunk), nil }

// What a client has sent ahead counts until a Read brings less than it asked for: that is all that has come.
func TestRequestsAheadAreCounted(t *testing.T) {
	conn := &trackedConn{Conn: chunks{}}
	for _, step := range []struct {
		buffer int
		want   uint32
	}{{chunk, 1}, {chunk - 1, 2}, {chunk, 3}, {chunk + 1, 1}, {chunk, 2}} {
		must.Get(conn.Read(make([]byte, step.buffer)))(t)
		conn.took()
		if got := conn.ahead.Load(); got != step.want {
			t.Errorf("after a read of up to %d bytes where there are %d: %d requests ahead, want %d", step.buffer, chunk, got, step.want)
		}
	}
}

// A connection on which the next requests have come already lets others go between two of them.
func TestOthersGoBetweenRequests(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := trackedBy(t, HTTP, connLimiter{most: 2})
	conn := enter(t, w)
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
