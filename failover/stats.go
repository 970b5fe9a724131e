package failover

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

// Stats is what a store has done since it was made, and its state.
type Stats struct {
	Open        uint64 // decisions that the mode Open made
	Closed      uint64 // operations that the mode Closed refused
	Local       uint64 // decisions that the mode Local made
	Timeouts    uint64 // operations that the store did not answer in time
	Errors      uint64 // operations that it failed otherwise
	Overloaded  uint64 // operations that this process was too busy to have decided in time
	Probes      uint64 // probes made
	Charged     uint64 // permits spent locally that were charged to the store
	Dropped     uint64 // local spendings that were not, or perhaps not, charged
	Touched     int    // clients whose local spending waits to be charged
	Shards      int    // parts of the store that fail apart
	Unreachable int    // of which so many are unreachable now
}

type counts struct {
	open, closed, local atomic.Uint64
	timeouts, errors    atomic.Uint64
	probes, overloaded  atomic.Uint64
	charged, dropped    atomic.Uint64
}

func (c *counts) failure(err error) {
	if errors.Is(err, context.DeadlineExceeded) {
		c.timeouts.Add(1)
		return
	}
	c.errors.Add(1)
}

// Stats reads the store's figures.
func (s *Store) Stats() Stats {
	c := &s.counts
	stats := Stats{
		Open: c.open.Load(), Closed: c.closed.Load(), Local: c.local.Load(),
		Timeouts: c.timeouts.Load(), Errors: c.errors.Load(), Probes: c.probes.Load(), Overloaded: c.overloaded.Load(),
		Charged: c.charged.Load(), Dropped: c.dropped.Load(), Shards: len(s.shards),
	}
	for _, sh := range s.shards {
		if sh.down.Load() != nil {
			stats.Unreachable++
		}
	}
	s.locals.mu.Lock()
	stats.Touched = len(s.locals.touched)
	s.locals.mu.Unlock()
	return stats
}

// Down lists the shards that are unreachable, in order; nil when the store is up. It asks
// nobody.
func (s *Store) Down() (outages []Outage) {
	for _, sh := range s.shards {
		if down := sh.down.Load(); down != nil {
			outages = append(outages, Outage{Shard: sh.index, Since: down.since, Cause: down.cause})
		}
	}
	return outages
}

var (
	_ stint.Store    = (*Store)(nil)
	_ stint.Binder   = (*Store)(nil)
	_ stint.Resetter = (*Store)(nil)
)

// A State says whether the store, or a shard of it, is asked. The zero value is Up.
type State uint8

// The states.
const (
	// Up is asked.
	Up State = iota
	// Unreachable is not asked but for probes; modes decide instead.
	Unreachable
)

// String is the state in lower case.
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Unreachable:
		return "unreachable"
	default:
		return "unknown"
	}
}

// Hooks are called as a store becomes unreachable and can be reached again, and for what is answered instead of it. Every field may
// be nil.
type Hooks struct {
	// StateChanged is called once for each change of the state of a shard, in order for
	// each. It runs in the goroutine that noticed the change,
	// so it must not block and must not call the store. It must be safe for concurrent use.
	StateChanged func(Change)
	// Answered is called for each Take and Try that a mode answers instead of the store, with whether it is admitted, and why
	// the store could not decide. It runs in the caller's goroutine, so it must not block. It must be safe for concurrent use.
	Answered func(allowed bool, cause error)
}

// A Change of a shard's state.
type Change struct {
	// Shard is the part of the store, 0 when it has but one.
	Shard    int
	From, To State
	// Cause is why the store is unreachable; of a change to Up, why it was before.
	Cause error
}

// An Outage is a shard that is unreachable.
type Outage struct {
	Shard int
	Since time.Time
	Cause error
}
