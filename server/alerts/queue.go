package alerts

import "sync/atomic"

// A queue has the events of one kind that wait. Each kind has its own, so that a flood of one leaves room for the other.
type queue struct {
	config *Config
	kind   Kind
	events chan Event
	known  known

	overflowing atomic.Bool   // whether events were lost in the last minute
	overflowed  atomic.Uint64 // events that were lost
	unreported  atomic.Uint64 // those of them since the last line about them
}

func (q *queue) init(config *Config, kind Kind) {
	q.config, q.kind, q.events, q.known.now = config, kind, make(chan Event, config.MaxQueue), config.Now
}

// put has an event wait, or drops and counts it.
func (q *queue) put(event Event) {
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
		q.config.Logger.Warn("alerts are lost: too many wait for their receiver", "kind", q.kind, "lost", n, "waiting", q.config.MaxQueue)
	}
	return n > 0
}
