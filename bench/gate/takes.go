package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
)

// Limits that do not move while they are measured: generous and wide always admit, spent denies until
// the next day, and fill takes its one permit.
var (
	generous = stint.TokenBucket(1_000_000_000, stint.Per(1_000_000, 24*time.Hour))
	spent    = stint.TokenBucket(1, stint.Per(1, 24*time.Hour))
	wide     = stint.FixedWindow(1_000_000_000, 24*time.Hour)
)

var errOtherwise = errors.New("it was not decided as it had to be")

// must is the error of a decision that has to be an admission, or a denial. A row whose decisions are
// wrong measures something else, and fails.
func must(d stint.Decision, err error, allowed bool) error {
	if err == nil && d.Allowed != allowed {
		err = errOtherwise
	}
	return err
}

// An opener makes a store, and says which process is its server's, if it has one.
type opener func(*rig) (store stint.Store, server int, end func(), err error)

// inMemory opens a store in this process.
func inMemory(*rig) (stint.Store, int, func(), error) {
	return memstore.New(memstore.Config{}), 0, func() {}, nil
}

// memory is takes in memory.
func memory(load string, limit stint.Limit, allowed bool, more ...stint.Limit) func(*rig) (*work, error) {
	return takes(inMemory, load, manyKeys, 0, limit, allowed, more)
}

// onRedis is takes on Redis.
func onRedis(
	open opener, load string, callers int, limit stint.Limit, allowed bool, more ...stint.Limit,
) func(*rig) (*work, error) {
	return takes(open, load, redisKeys, callers, limit, allowed, more)
}

// takes is takes of one of n clients each, by a limiter of some limits.
func takes(
	open opener, load string, n, callers int, limit stint.Limit, allowed bool, more []stint.Limit,
) func(*rig) (*work, error) {
	return func(r *rig) (*work, error) {
		store, server, end, err := open(r)
		if err != nil {
			return nil, err
		}
		limiter, err := limiterOn(r, store, append([]stint.Limit{limit}, more...)...)
		if err != nil {
			return nil, err
		}
		order := orderOf(load, n)
		filled, keys := filledNames()[:n], askedNames()
		if load == "hot" {
			filled = filled[:1]
		}
		if err := fill(r.ctx, store, limiter.Policy(), filled, min(limit.Capacity, 10_000)); err != nil {
			return nil, err
		}
		callers := max(callers, 1)
		op := func(caller, i int) error {
			d, err := limiter.Allow(r.ctx, keys[order[(caller*len(order)/callers+i)%len(order)]])
			return must(d, err, allowed)
		}
		if !allowed { // which is asked once
			server = 0
		}
		return &work{callers: callers, op: op, redis: server, close: end}, nil
	}
}

// limiterOn is a limiter of a name that no other has.
func limiterOn(r *rig, store stint.Store, limits ...stint.Limit) (*stint.Limiter, error) {
	r.limiters++
	return stint.New(store, "gate-"+strconv.Itoa(r.limiters), limits...)
}

// fill takes permits of each client, so that every state exists before it is measured.
func fill(ctx context.Context, store stint.Store, policy *stint.Policy, keys []string, permits int64) error {
	const batch = 1000
	results := make([]stint.Result, batch)
	for from := 0; from < len(keys); from += batch {
		var ops []stint.Op
		for _, key := range keys[from:min(from+batch, len(keys))] {
			ops = append(ops, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: permits}})
		}
		store.DecideAll(ctx, ops, results)
		for _, result := range results[:len(ops)] {
			if err := must(result.Decision, result.Err, true); err != nil {
				return err
			}
		}
	}
	return nil
}
