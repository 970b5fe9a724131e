package alerts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/sleep"
)

// A queue has the events of one kind that wait. Each kind has its own, so that a flood of one
// leaves room for the other. It is a channel of MaxQueue places: putting never blocks, and taking
// is a select over both kinds.
type queue struct {
	config *Config
	kind   Kind
	events chan Alert
	known  known

	overflowing atomic.Bool   // whether events were lost in the last minute
	overflowed  atomic.Uint64 // events that were lost
	// those of them since the last line about them
	unreported atomic.Uint64
}

func (q *queue) init(config *Config, kind Kind) {
	q.config, q.kind, q.events, q.known.now = config, kind, make(chan Alert, config.MaxQueue), config.Now
}

// put has an event wait, or drops and counts it. A loss is logged at once the first time, and then
// once a minute as long as there are any.
func (q *queue) put(event Alert) {
	select {
	case q.events <- event:
	default:
		q.known.forget(&event) // the next one may find room
		q.overflowed.Add(1)
		q.unreported.Add(1)
		if q.overflowing.CompareAndSwap(false, true) {
			q.reportOverflow()
		}
	}
}

// reportOverflow logs how many events were lost since the last line, if any.
func (q *queue) reportOverflow() (lost bool) {
	n := q.unreported.Swap(0)
	if n > 0 {
		q.config.Logger.Warn(
			"alerts are lost: too many wait for their receiver", "kind", q.kind, "lost", n, "waiting", q.config.MaxQueue,
		)
	}
	return n > 0
}

// overflowInterval is how often the log is told of events that found the queue full.
const overflowInterval = time.Minute

// watchOverflow logs each minute how many events found the queue full, until the returned function is called, which
// logs the rest.
func (s *Sender) watchOverflow() (end func()) {
	report := func() {
		s.nearLimit.overflowing.Store(s.nearLimit.reportOverflow())
		s.denied.overflowing.Store(s.denied.reportOverflow())
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { sleep.Every(ctx, overflowInterval, report) })
	return func() {
		cancel()
		watching.Wait()
		report()
	}
}

// maxKnown bounds the clients that a process remembers to have told of, of each kind. When they are more, those are
// forgotten whose window is over, or else all: an alert then may come twice.
const maxKnown = 100_000

// known are the clients that were told of in their windows, by events of one kind. It is the first
// of two filters, without the network: a client that floods is told of once here, and then claimed
// once among all processes.
type known struct {
	now func() time.Time

	mu   sync.Mutex
	ends map[subject]time.Time
}

// subject is what is told once.
type subject struct{ rule, client string }

func subjectOf(event *Alert) subject { return subject{event.Rule, event.Client} }

// first reports whether an event's client was not told of in the window, and remembers it.
func (k *known) first(event *Alert) bool {
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

// forget lets the client be told of again in the same window.
func (k *known) forget(event *Alert) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.ends, subjectOf(event))
}

// left is how long the event's window lasts from now on, at least a millisecond. Windows begin at
// multiples of their length since 1970, as all processes can compute by themselves.
func (e *Alert) left(now time.Time) time.Duration {
	window := e.window.Milliseconds()
	return time.Duration(window-now.UnixMilli()%window) * time.Millisecond
}

// name is what processes claim: a hash of the kind, the rule, the client, whom the store need not
// know, and the window. The end of the window is part of it, so that the next window has another
// name, and of a name nobody can tell the client.
func (e *Alert) name() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", e.Kind, e.Rule, e.ends.UnixMilli(), e.Client))
	return "alert:" + hex.EncodeToString(sum[:16])
}
