// Package redislimit puts limiters that keep their state in Redis, and two bare
// counters, behind one type, each configured for many callers in one process.
package redislimit

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-go/stint"
)

// A Quota is what a limiter is asked to enforce: permits at once, and refill more of
// them per period, evenly.
type Quota struct {
	Permits int64
	Refill  int64
	Period  time.Duration
	// Leased lets stint take permits in advance and spend them in the process. The
	// others don't know that.
	Leased bool
}

// Refilled is what comes back in a time, in permits and parts of them.
func (q Quota) Refilled(d time.Duration) float64 {
	return float64(q.Refill) * d.Seconds() / q.Period.Seconds()
}

// Lifetime is the time in which all permits come back.
func (q Quota) Lifetime() time.Duration {
	return time.Duration(float64(q.Permits) / float64(q.Refill) * float64(q.Period))
}

// An Answer is what a limiter said.
type Answer struct {
	Allowed bool
	// Remaining is how many permits are left; of several quotas, the least.
	Remaining int64
	// At is the limiter's time of the decision; 0 when it does not tell.
	At stint.Instant
}

// A Subject is a limiter under measurement, made for one or more quotas. Take and
// TakeOne are safe for concurrent use.
type Subject struct {
	// Take asks for one permit under every quota at once, of the client keys[i] under
	// quota i. It keeps nothing of the slice.
	Take func(ctx context.Context, keys []string) (Answer, error)
	// TakeOne asks for one permit under one of the quotas.
	TakeOne func(ctx context.Context, quota int, key string) (Answer, error)
	// Fill takes one permit of each client, all of them new, under one of the quotas, many
	// in a round trip.
	Fill func(ctx context.Context, quota int, keys []string) error
	// Close ends its connections.
	Close func() error
}

// Options are what all subjects are made with.
type Options struct {
	// Addrs are Redis's addresses, HOST:PORT; in a cluster those of all primaries.
	Addrs []string
	// Cluster says that they are a cluster.
	Cluster bool
	// Callers is the largest number of goroutines that will ask at once: clients with
	// a pool of connections get one for each.
	Callers int
	// Now, if set, is the time of every decision, where the implementation can be told.
	Now func() stint.Instant
}

// A Contender is a way to make a subject.
type Contender struct {
	Name string
	// Counter says that it counts and never denies.
	Counter bool
	// Windows says that permits come back all at once, not evenly.
	Windows bool
	// TellsTime says that its answers carry the time of the decision.
	TellsTime bool
	// Make connects. Redis must be empty: some remember what they know of it.
	Make func(ctx context.Context, o Options, quotas []Quota) (*Subject, error)
}

// The names of the two that are compared.
const (
	Stint     = "stint"
	RedisRate = "redis_rate"
)

// Contenders lists the implementations by the name that the impl= part of a
// benchmark carries.
func Contenders() []Contender {
	return []Contender{
		{Name: Stint, TellsTime: true, Make: newStint},
		{Name: RedisRate, Make: NewRedisRate},
		{Name: "ulule", Windows: true, Make: newUlule},
		{Name: "throttled", Make: newThrottled},
		{Name: "incr_goredis", Counter: true, Make: newIncrGoRedis},
		{Name: "incr_rueidis", Counter: true, Make: newIncrRueidis},
	}
}

// fillBatch is how many permits are asked for in one round trip of Fill.
const fillBatch = 500

func errFull(key string) error {
	return fmt.Errorf("%s was denied its first permit; Redis is not empty", key)
}
