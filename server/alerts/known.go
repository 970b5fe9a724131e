package alerts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
)

// maxKnown bounds the clients that a process remembers to have told of, of each kind. When they are more, those are forgotten whose window is
// over, or else all: an alert then may come twice.
const maxKnown = 100_000

// known are the clients that were told of in their windows, by events of one kind.
type known struct {
	now func() time.Time

	mu   sync.Mutex
	ends map[subject]time.Time
}

// subject is what is told once.
type subject struct{ rule, client string }

func subjectOf(event *Event) subject { return subject{event.Rule, event.Client} }

// first reports whether an event's client was not told of in the window, and remembers it.
func (k *known) first(event *Event) bool {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Before(k.ends[subjectOf(event)]) {
		return false
	}
	if len(k.ends) >= maxKnown {
		for s, end := range k.ends {
			if !now.Before(end) {
				delete(k.ends, s)
			}
		}
	}
	if k.ends == nil || len(k.ends) >= maxKnown {
		k.ends = map[subject]time.Time{}
	}
	event.ends = now.Add(event.left(now))
	k.ends[subjectOf(event)] = event.ends
	return true
}

func (k *known) forget(event *Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.ends, subjectOf(event))
}

// left is how long the event's window lasts from now on, at least a millisecond.
func (e *Event) left(now time.Time) time.Duration {
	window := e.Window.Milliseconds()
	return time.Duration(window-now.UnixMilli()%window) * time.Millisecond
}

// name is what processes claim: a hash of the kind, the rule, the client, whom the store need not know, and the window.
func (e *Event) name() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", e.Kind, e.Rule, e.ends.UnixMilli(), e.Client))
	return "alert:" + hex.EncodeToString(sum[:16])
}
