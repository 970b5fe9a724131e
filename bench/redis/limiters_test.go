// Package redis measures stint's store in Redis beside other limiters that keep their state there and beside bare counters,
// from this process: how many decisions callers in a closed loop get, also per second of Redis's processor, their latency,
// whether what was admitted is right, and the bytes of a client in Redis.
package redis

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// A quota is what a limiter is asked to enforce: permits at once, and refill more of
// them per period, evenly.
type quota struct {
	Permits int64
	Refill  int64
	Period  time.Duration
	// Leased lets stint take permits in advance and spend them in the process. The
	// others don't know that.
	Leased bool
}

// Refilled is what comes back in a time, in permits and parts of them.
func (q quota) Refilled(d time.Duration) float64 {
	return float64(q.Refill) * d.Seconds() / q.Period.Seconds()
}

// Lifetime is the time in which all permits come back.
func (q quota) Lifetime() time.Duration {
	return time.Duration(float64(q.Permits) / float64(q.Refill) * float64(q.Period))
}

// An answer is what a limiter said.
type answer struct {
	Allowed bool
	// Remaining is how many permits are left; of several quotas, the least.
	Remaining int64
	// At is the limiter's time of the decision; 0 when it does not tell.
	At stint.Instant
}

// A subject is a limiter under measurement, made for one or more quotas. Take and
// TakeOne are safe for concurrent use.
type subject struct {
	// Take asks for one permit under every quota at once, of the client keys[i] under
	// quota i. It keeps nothing of the slice.
	Take func(ctx context.Context, keys []string) (answer, error)
	// TakeOne asks for one permit under one of the quotas.
	TakeOne func(ctx context.Context, quota int, key string) (answer, error)
	// Fill takes one permit of each client, all of them new, under one of the quotas, many
	// in a round trip.
	Fill func(ctx context.Context, quota int, keys []string) error
	// Close ends its connections.
	Close func() error
}

// options are what all subjects are made with.
type options struct {
	// Addrs are Redis's addresses, HOST:PORT; in a cluster those of all primaries.
	Addrs []string
	// Cluster says that they are a cluster.
	Cluster bool
	// Callers is the largest number of goroutines that will ask at once: clients with
	// a pool of connections get one for each.
	Callers int
	// Now, if set, is the time of every decision, where the implementation can be told.
	Now func() time.Time
}

// A contender is a way to make a subject.
type contender struct {
	Name string
	// Counter says that it counts and never denies.
	Counter bool
	// Windows says that permits come back all at once, not evenly.
	Windows bool
	// TellsTime says that its answers carry the time of the decision.
	TellsTime bool
	// Make connects. Redis must be empty: some remember what they know of it.
	Make func(tb testing.TB, o options, quotas []quota) *subject
}

// The names of those that are compared everywhere.
const (
	stintName = "stint"
	redisRate = "redis_rate"
	fastest   = "rueidislimiter"
)

// contenders lists the implementations by the name that the impl= part of a
// benchmark carries.
func contenders() []contender {
	return []contender{
		{Name: stintName, TellsTime: true, Make: newStint},
		{Name: redisRate, Make: newRedisRate},
		{Name: fastest, Windows: true, Make: newRueidisLimiter},
		{Name: "ulule", Windows: true, Make: newUlule},
		{Name: "throttled", Make: newThrottled},
		{Name: "incr_goredis", Counter: true, Make: newIncrGoRedis},
		{Name: "incr_rueidis", Counter: true, Make: newIncrRueidis},
	}
}

// patience is how long what takes no time otherwise may take on a machine that stands still.
const patience = 5 * time.Minute

// fillBatch is how many permits are asked for in one round trip of Fill.
const fillBatch = 500

func errFull(key string) error {
	return fmt.Errorf("%s was denied its first permit; Redis is not empty", key)
}
