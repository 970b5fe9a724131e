package simulate

import (
	"cmp"
	"slices"
	"time"

	"github.com/stint-go/stint"
)

// An Order puts the events of a log in order of time, and spreads those whose time is known to the
// second only: the i-th of n events of a second, counted from 0 in the order of the log, is taken
// to have come i/n of the second after its begin. Make it with [NewOrder]. Events are held until
// nothing can come before them: an event at t lets go all that are before t - delay, down to whole
// seconds, as a second has to be complete to be spread. What is held is sorted by time, and stable:
// of equal times the log's order is kept.
type Order struct {
	delay  stint.Instant
	add    func(*Event) error
	held   []Event
	most   int // events that are held
	newest stint.Instant
	// what is earlier comes too late to be put in order
	flushed stint.Instant
}

// maxHeld bounds the events that are held. When there are so many, all are handed on, and a second
// is spread in parts.
const maxHeld = 1 << 20

const second = stint.Instant(time.Second / time.Microsecond)

// NewOrder hands events on to add. An event that comes no more than delay after a later one, by their own times, is put
// in order; others are handed on as they come.
func NewOrder(delay time.Duration, add func(*Event) error) *Order {
	return &Order{delay: stint.Instant(delay.Microseconds()), most: maxHeld, add: add}
}

// Hold bounds the events that are held, to less than the standard 1,048,576.
func (o *Order) Hold(most int) *Order {
	o.most = min(most, maxHeld)
	return o
}

// Add takes an event.
func (o *Order) Add(ev *Event) error {
	if o.delay == 0 && !ev.Whole && len(o.held) == 0 || ev.Time < o.flushed {
		return o.add(ev)
	}
	o.newest = max(o.newest, ev.Time)
	cut := o.newest - o.delay
	if cut -= cut % second; cut > o.flushed || len(o.held) >= o.most {
		if len(o.held) >= o.most {
			cut = max(cut, o.newest)
		}
		if err := o.flush(cut); err != nil {
			return err
		}
	}
	o.held = append(o.held, *ev)
	return nil
}

// Flush hands on what is held.
func (o *Order) Flush() error { return o.flush(o.newest + 1) }

// The order within ready changes by spreading, as an event with an exact time may now be between
// two of whole seconds, so that it is sorted again.
func (o *Order) flush(cut stint.Instant) error {
	o.flushed = cut
	sortEvents(o.held)
	n, _ := slices.BinarySearchFunc(
		o.held, cut, func(ev Event, cut stint.Instant) int { return cmp.Compare(ev.Time, cut) },
	)
	if len(o.held) >= o.most {
		n = len(o.held)
	}
	ready := o.held[:n]
	spread(ready)
	sortEvents(ready)
	for i := range ready {
		if err := o.add(&ready[i]); err != nil {
			return err
		}
	}
	o.held = o.held[:copy(o.held, o.held[n:])]
	return nil
}

// spread spreads the events of whole seconds, which are in order.
func spread(events []Event) {
	for first := 0; first < len(events); {
		whole, end := stint.Instant(0), first
		for ; end < len(events) && events[end].Time == events[first].Time; end++ {
			if events[end].Whole {
				whole++
			}
		}
		i := stint.Instant(0)
		for at := first; at < end; at++ {
			if ev := &events[at]; ev.Whole {
				ev.Time += i * second / whole
				i++
			}
		}
		first = end
	}
}

// sortEvents is stable, and does nothing for what is in order, as most logs are.
func sortEvents(events []Event) {
	byTime := func(a, b Event) int { return cmp.Compare(a.Time, b.Time) }
	if !slices.IsSortedFunc(events, byTime) {
		slices.SortStableFunc(events, byTime)
	}
}
