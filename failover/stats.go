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
	// Open counts decisions that the mode Open made.
	Open uint64 `counter:"rate_limiter_failover_answers_total" label:"mode=open"`
	// Closed counts operations that the mode Closed refused.
	Closed uint64 `counter:"rate_limiter_failover_answers_total" label:"mode=closed"`
	// Local counts decisions that the mode Local made.
	Local uint64 `counter:"rate_limiter_failover_answers_total" label:"mode=local"`
	// Timeouts counts operations that the store did not answer in time.
	Timeouts uint64 `counter:"rate_limiter_failover_failures_total" label:"kind=timeout"`
	// Errors counts operations that it failed otherwise.
	Errors uint64 `counter:"rate_limiter_failover_failures_total" label:"kind=error"`
	// Overloaded counts operations that this process was too busy to have decided in time.
	Overloaded uint64 `counter:"rate_limiter_failover_overloaded_total"`
	// Probes counts probes of parts that were unreachable.
	Probes uint64 `counter:"rate_limiter_failover_probes_total"`
	// Reachable is how many parts of the store, which fail apart, can be reached now.
	Reachable int `gauge:"rate_limiter_store_shards" label:"state=up"`
	// Unreachable is how many can not.
	Unreachable int `gauge:"rate_limiter_store_shards" label:"state=unreachable"`
}

// counts are the counters behind Stats: answers by mode, failures by kind, probes, and calls that this
// process was too busy for.
type counts struct {
	open, closed, local atomic.Uint64
	timeouts, errors    atomic.Uint64
	probes, overloaded  atomic.Uint64
}

// failure counts a failed operation by how it failed: in time, or for want of it.
func (c *counts) failure(err error) {
	if timedOut(err) {
		c.timeouts.Add(1)
		return
	}
	c.errors.Add(1)
}

// timedOut reports whether a store gave up since time had passed: an operation's Timeout, or that of a context.
func timedOut(err error) bool {
	late, is := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return is && late.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// Stats reads the store's figures.
func (s *Store) Stats() Stats {
	c := &s.counts
	stats := Stats{
		Open: c.open.Load(), Closed: c.closed.Load(), Local: c.local.Load(),
		Timeouts: c.timeouts.Load(), Errors: c.errors.Load(), Probes: c.probes.Load(), Overloaded: c.overloaded.Load(),
	}
	for _, sh := range s.shards {
		if sh.down.Load() != nil {
			stats.Unreachable++
		}
	}
	stats.Reachable = len(s.shards) - stats.Unreachable
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
