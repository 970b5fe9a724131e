package promlimit

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Calls observes the calls of a store that processes share:
//
//	rate_limiter_store_round_trip_seconds{outcome}   from sending a call to its reply, without the wait before it was
//	                                                 sent: answered, failed
//	rate_limiter_store_batch_operations              operations that one call carried
//	rate_limiter_store_coalesced_operations_total    of these, those that shared a state and a policy with another
//	                                                 one of the call, and were decided with it
//
// It is safe for concurrent use; make it with [NewCalls].
type Calls struct {
	answered, failed, operations prometheus.Observer
	coalesced                    prometheus.Counter
}

// NewCalls makes the metrics and registers them, all or none. The buckets reach from 100us, a Redis
// on the same machine, to 2.5s, above any sensible timeout of a store.
func NewCalls(registerer prometheus.Registerer) (*Calls, error) {
	seconds := prometheus.NewHistogramVec(histogram("rate_limiter_store_round_trip_seconds",
		"Time from sending a call to the store to its reply, without the wait before it was sent.",
		1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5), []string{"outcome"})
	operations := prometheus.NewHistogram(histogram("rate_limiter_store_batch_operations",
		"Operations that one call of the store carried.", 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000))
	c := &Calls{
		answered: seconds.WithLabelValues("answered"), failed: seconds.WithLabelValues("failed"), operations: operations,
		coalesced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rate_limiter_store_coalesced_operations_total",
			Help: "Operations that were decided together with another one on the same state, in one step of a call.",
		}),
	}
	return c, register(registerer, seconds, operations, c.coalesced)
}

// Done observes a call that has ended: how long it took, how many operations it carried, and how many of these were
// coalesced with another one. Of a call that failed only the time counts.
func (c *Calls) Done(elapsed time.Duration, operations, coalesced int, err error) {
	if err != nil {
		c.failed.Observe(elapsed.Seconds())
		return
	}
	c.answered.Observe(elapsed.Seconds())
	c.operations.Observe(float64(operations))
	if coalesced > 0 {
		c.coalesced.Add(float64(coalesced))
	}
}

// histogram describes a histogram with classic buckets, and native ones for servers that scrape
// them. The factor 1.1 makes native buckets that are at most 10 % wide; when there are more than
// 100, the histogram gets coarser, at most once an hour.
func histogram(name, help string, buckets ...float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1, // how much wider each native bucket is than the one before
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
}
