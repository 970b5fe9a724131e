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
	Shards      int    // parts of the store that fail apart
	Unreachable int    // of which so many are unreachable now
}

type counts struct {
	open, closed, local atomic.Uint64
	timeouts, errors    atomic.Uint64
	probes, overloaded  atomic.Uint64
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
		Shards: len(s.shards),
	}
	for _, sh := range s.shards {
		if sh.down.Load() != nil {
			stats.Unreachable++
		}
	}
	return stats
}

// Down lists the shards that are unreachable, in order; nil when the store is up. It asks
// nobody.
func (s *Store) Down() (outages []Outage) {
	for _, sh := range s.shards {
		if down := sh.down.Load(); down != nil {
			outages = append(outages, down.Outage)
		}
	}
	return outages
}

var _ stint.Store = (*Store)(nil)

// A Change says that a shard became unreachable, or can be reached again.
type Change struct {
	// Shard is the part of the store, 0 when it has but one.
	Shard int
	// Up says that the store is asked again. Otherwise only probes contact it, and modes decide.
	Up bool
	// Cause is why the store is unreachable, or was before it was up.
	Cause error
}

// An Outage is a shard that is unreachable.
type Outage struct {
	Shard int
	Since time.Time
	Cause error
}
