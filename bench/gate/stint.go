package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// Limits that do not move while they are measured: generous and wide always admit, spent denies until
// the next day, and fill takes its one permit.
var (
	generous = stint.TokenBucket(stint.MaxPermits, stint.Per(1_000_000, 24*time.Hour))
	spent    = stint.TokenBucket(1, stint.Per(1, 24*time.Hour))
	wide     = stint.FixedWindow(stint.MaxPermits, 24*time.Hour)
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

// allRows are the rows in the order in which they are measured. Their names are the same in all
// commits: a row with another name is not compared.
func allRows() []row {
	rows := []row{
		{"memory/hot", memory("hot", generous, true)},
		{"memory/uniform", memory("uniform", generous, true)},
		{"memory/zipf", memory("zipf", generous, true)},
		{"memory/denied", memory("hot", spent, false)},
		{"memory/two-limits", memory("hot", generous, true, wide)},
		{"memory/hold", holds(inMemory)},
		{"memory/two-ways", twoWays},
		{"memory/hot/procs=2", memory("hot", generous, true)},
		{"memory/uniform/procs=2", memory("uniform", generous, true)},
		{"memory/zipf/procs=2", memory("zipf", generous, true)},
		{"floor/go-limiter", goLimiter},
	}
	for _, open := range []struct {
		name string
		open opener
	}{{"open", protected}, {"bare", bare}} {
		in := "redis/" + open.name
		rows = append(rows,
			row{in + "/hot/callers=1", onRedis(open.open, "hot", 1, generous, true)},
			row{in + "/hot/callers=64", onRedis(open.open, "hot", 64, generous, true)},
			row{in + "/hot/callers=512", onRedis(open.open, "hot", 512, generous, true)},
			row{in + "/uniform/callers=1", onRedis(open.open, "uniform", 1, generous, true)},
			row{in + "/uniform/callers=64", onRedis(open.open, "uniform", 64, generous, true)},
			row{in + "/uniform/callers=512", onRedis(open.open, "uniform", 512, generous, true)},
			row{in + "/zipf/callers=512", onRedis(open.open, "zipf", 512, generous, true)},
			row{in + "/flood/callers=512", onRedis(open.open, "hot", 512, spent, false)},
			row{in + "/two-limits/callers=64", onRedis(open.open, "uniform", 64, generous, true, wide)},
			row{in + "/hold/callers=64", holds(open.open)},
			row{in + "/flood/callers=512/procs=2", onRedis(open.open, "hot", 512, spent, false)},
			row{in + "/hot/callers=512/procs=2", onRedis(open.open, "hot", 512, generous, true)},
		)
	}
	rows = append(rows, row{"floor/incr/callers=64", incr})
	return append(rows, serviceRows()...)
}

// An opener makes a store, and says which process is its server's, if it has one.
type opener func(*rig) (store stint.Store, server int, end func(), err error)

// inMemory opens a store in this process.
func inMemory(*rig) (stint.Store, int, func(), error) {
	return memstore.New(memstore.Config{}), 0, func() {}, nil
}

// bare opens a store on Redis without failover before it.
func bare(r *rig) (stint.Store, int, func(), error) {
	server, err := r.redisServer()
	if err != nil {
		return nil, 0, nil, err
	}
	store, err := rueidis.OpenBare(rueidis.Connection{URL: "redis://" + server.addr}, redisstore.Options{})
	if err != nil {
		return nil, 0, nil, err
	}
	return store, server.id(), store.Close, store.Ready(r.ctx)
}

// protected opens a store on Redis as programs do, with failover before it. The timeout is so long
// that a busy machine answers no decision by its mode.
func protected(r *rig) (stint.Store, int, func(), error) {
	server, err := r.redisServer()
	if err != nil {
		return nil, 0, nil, err
	}
	store, err := rueidis.Open(
		rueidis.Connection{URL: "redis://" + server.addr}, redisstore.Options{}, failover.Config{Timeout: 10 * time.Second},
	)
	if err != nil {
		return nil, 0, nil, err
	}
	return store, server.id(), store.Close, store.Ready(r.ctx)
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

// holds is a hold of two permits and its commit of one, each caller with a client of its own.
func holds(open opener) func(*rig) (*work, error) {
	return func(r *rig) (*work, error) {
		store, server, end, err := open(r)
		if err != nil {
			return nil, err
		}
		limiter, err := limiterOn(r, store, generous)
		if err != nil {
			return nil, err
		}
		callers, keys := 1, filledNames()
		if server != 0 {
			callers = 64
		}
		op := func(caller, _ int) error {
			reservation, d, err := limiter.Reserve(r.ctx, keys[caller], 2, stint.Hold{})
			if err := must(d, err, true); err != nil {
				return err
			}
			_, err = reservation.Commit(r.ctx, 1)
			return err
		}
		return &work{callers: callers, op: op, redis: server, close: end}, nil
	}
}

// twoWays is an operation with a group of two ways: a team's own floor, counted in the whole, or else
// a permit of the whole that leaves 1,000 to others. The first way always admits.
func twoWays(r *rig) (*work, error) {
	store := memstore.New(memstore.Config{})
	team, err := limiterOn(r, store, generous)
	if err != nil {
		return nil, err
	}
	whole, err := limiterOn(r, store, generous)
	if err != nil {
		return nil, err
	}
	keys := names(1024)
	and := make([]stint.Claim, 2)
	op := func(_, i int) error {
		and[0] = stint.Claim{Key: "all", Policy: whole.Policy(), Permits: 1, Way: stint.With}
		and[1] = stint.Claim{Key: "all", Policy: whole.Policy(), Permits: 1, Keep: 1000, Way: stint.Else}
		d, err := store.Decide(r.ctx, stint.Op{
			Claim: stint.Claim{Key: keys[i%len(keys)], Policy: team.Policy(), Permits: 1, Way: stint.Either}, And: and,
		})
		return must(d, err, true)
	}
	return &work{op: op}, nil
}
