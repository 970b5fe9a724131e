package httplimit

import (
	"sync"
	"time"
)

// holds remembers until when hosts asked not to be called. It is safe for concurrent
// use.
type holds struct {
	most int // hosts that are remembered

	mu    sync.Mutex
	until map[string]time.Time
}

// left is how long the host is still held, 0 for one that is not.
func (h *holds) left(host string, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, held := h.until[host]
	if !held {
		return 0
	}
	if left := until.Sub(now); left > 0 {
		return left
	}
	delete(h.until, host)
	return 0
}

// hold keeps the host for so long, or for what is left of an earlier hold if that is
// longer: responses come in any order.
func (h *holds) hold(host string, wait time.Duration, now time.Time) {
	if wait <= 0 {
		return
	}
	until := now.Add(wait)
	h.mu.Lock()
	defer h.mu.Unlock()
	earlier, held := h.until[host]
	if held && earlier.After(until) {
		return
	}
	if !held && len(h.until) >= h.most {
		h.makeRoom(now)
	}
	h.until[host] = until
}

// makeRoom forgets what is over, or else the host that would be free first.
func (h *holds) makeRoom(now time.Time) {
	var first string
	var soonest time.Time
	for host, until := range h.until {
		if !until.After(now) {
			delete(h.until, host)
			continue
		}
		if soonest.IsZero() || until.Before(soonest) {
			first, soonest = host, until
		}
	}
	if len(h.until) >= h.most {
		delete(h.until, first)
	}
}
