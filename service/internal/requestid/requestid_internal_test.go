package requestid

import (
	"net/http"
	"sync"
	"testing"
)

// TestRequestIDsDiffer: many at once get IDs of their own.
func TestRequestIDsDiffer(t *testing.T) {
	ids := New()
	var seen sync.Map
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 1000 {
				if id := ids.Of(http.Header{})[0]; id == "" {
					t.Error("an ID is empty")
				} else if _, again := seen.LoadOrStore(id, true); again {
					t.Errorf("%s is given twice", id)
				}
			}
		})
	}
	running.Wait()
}
