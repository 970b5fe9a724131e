package redisstore

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/redisstore/internal/layout"
	"github.com/stint-go/stint/redisstore/internal/queue"
)

// What Options are by default, where a program may need to know it.
const (
	DefaultKeyPrefix = "rate_limiter"
	DefaultLeaseTime = 100 * time.Millisecond
)

// Other defaults, and bounds.
const (
	defaultPartitions        = 1
	defaultClusterPartitions = 16
	maxPartitions            = layout.MaxPartitions
	defaultMaxBatch          = 256
	maxMaxBatch              = 1000
	defaultMaxQueue          = 65536
	defaultDenialCache       = 65536
	minLeaseTime             = time.Millisecond
	maxLeaseTime             = 10 * time.Second
)

// A LogEncoding says how sliding window logs are kept.
type LogEncoding string

// The encodings of a sliding window log. Each has its own keys.
const (
	LogPacked LogEncoding = layout.Packed // one string of records of 4 to 11 bytes
	LogZSet   LogEncoding = layout.ZSet
	LogStream LogEncoding = layout.Stream
)

// Options say how a [Store] works. The zero value is a good choice.
type Options struct {
	// KeyPrefix starts every key: 1 to 64 printable ASCII characters without braces. Default: DefaultKeyPrefix.
	KeyPrefix string
	// Partitions is in how many hashes, and slots of a cluster, the clients of each limit are kept: a power of two, 1 to
	// 256. The servers remember both, and nothing is decided by options that differ; to change them, stop all processes
	// and delete the key that the error names. Default: what the servers remember, or LogPacked and 1, on a cluster 16.
	LogEncoding LogEncoding
	Partitions  int
	// MaxBatch is how many limits one script call decides at most: 1 to 1,000. The server takes about
	// 5 microseconds for each. Default: 256. A larger one keeps other clients of the server waiting
	// for longer, as it runs one script at a time.
	MaxBatch int
	// InFlight is how many script calls are in flight at once, per server or partition of a cluster: 1
	// to 64. Default: 2, and 18 where they take more than 4 ms. More in flight means smaller batches,
	// and helps only where most of a call's time is on the way.
	InFlight int
	// MaxQueue is how many operations wait at most, per server or partition; the next fails with an
	// error that wraps stint.ErrOverloaded. Default: 65,536. It bounds memory and wait: what is behind
	// so many could not be answered in time.
	MaxQueue int
	// DenialCache is how many denials are remembered at most; below 0 none. Default: 65,536, with Now
	// none. A denial takes about 200 bytes, and what its limits say.
	DenialCache int
	// MaxHolds is how many holds a client may have under one limit, 1 to 10,000; a Reserve more is denied.
	// Default: 1000.
	MaxHolds int
	// LeaseTime is how long leased permits may be spent: 1 ms to 10 s. Default: DefaultLeaseTime.
	// Longer leases save more calls, and let a bucket admit more in a row: C + R x (b - a + V) / P in
	// any [a, b].
	LeaseTime time.Duration
	// CountInstances sends a heartbeat about every 2 seconds, for [Store.Instances]. Default: false.
	CountInstances bool
	// OnCall is called when a script call has ended: how long it took from sending, how many operations it carried, how
	// many of their limits shared a state with another one of the call, and why it failed. It must not block, and must be
	// safe for concurrent use. Default: nil.
	OnCall func(elapsed time.Duration, operations, coalesced int, err error)
	// Now is the time of every decision instead of the server's clock, for tests, in whole microseconds, cut
	// down, from 1970 to 2255. Default: nil.
	Now func() time.Time
}

// Validate reports all that is wrong with the options, as [New] does.
func (o Options) Validate() error {
	o.ensureDefaults()
	return o.validate()
}

// ensureDefaults fills in what was left out. InFlight stays 0, which lets the store choose.
func (o *Options) ensureDefaults() {
	o.KeyPrefix = cmp.Or(o.KeyPrefix, DefaultKeyPrefix)
	o.LeaseTime = cmp.Or(o.LeaseTime, DefaultLeaseTime)
	o.MaxBatch = cmp.Or(o.MaxBatch, defaultMaxBatch)
	o.MaxHolds = cmp.Or(o.MaxHolds, bounds.DefaultMaxHolds)
	o.MaxQueue = cmp.Or(o.MaxQueue, defaultMaxQueue)
}

// validate reports everything that is wrong, joined; defaults are filled in by then.
func (o *Options) validate() error {
	faults := []error{CheckKeyPrefix(o.KeyPrefix)}
	invalid := func(name string, value any, allowed string) {
		faults = append(faults, stint.Invalid(name, value, allowed))
	}
	if o.LogEncoding != "" && !layout.ValidEncoding(string(o.LogEncoding)) {
		invalid("LogEncoding", string(o.LogEncoding), "packed, zset or stream")
	}
	if o.Partitions != 0 && !layout.ValidPartitions(o.Partitions) {
		invalid("Partitions", o.Partitions, fmt.Sprintf("a power of two from 1 to %d", maxPartitions))
	}
	for _, number := range []struct {
		name       string
		value, max int
	}{
		{"MaxBatch", o.MaxBatch, maxMaxBatch},
		{"InFlight", cmp.Or(o.InFlight, queue.DefaultInFlight), queue.MaxInFlight},
		{"MaxHolds", o.MaxHolds, bounds.MaxHolds},
		{"MaxQueue", o.MaxQueue, math.MaxInt},
	} {
		switch {
		case number.value >= 1 && number.value <= number.max:
		case number.max == math.MaxInt:
			invalid(number.name, number.value, "1 or more")
		default:
			invalid(number.name, number.value, fmt.Sprintf("1 to %d", number.max))
		}
	}
	if o.LeaseTime < minLeaseTime || o.LeaseTime > maxLeaseTime {
		invalid("LeaseTime", o.LeaseTime, fmt.Sprintf("%s to %s", minLeaseTime, maxLeaseTime))
	}
	return prefix.Join(faults...)
}

// CheckKeyPrefix reports why keys can't start with a prefix.
func CheckKeyPrefix(prefix string) error {
	if prefix != "" && !layout.ValidPrefix(prefix) {
		return stint.Invalid("KeyPrefix", prefix, "1 to 64 printable ASCII characters without spaces and braces")
	}
	return nil
}
