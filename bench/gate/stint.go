package main

import (
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

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

// bare opens a store on Redis without failover before it.
func bare(r *rig) (stint.Store, int, func(), error) {
	server, err := r.redisServer()
	if err != nil {
		return nil, 0, nil, err
	}
	conn, err := rueidis.Dial(rueidis.Config{URL: "redis://" + server.addr})
	if err != nil {
		return nil, 0, nil, err
	}
	store, err := redisstore.New(conn, redisstore.Options{})
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
	store, err := rueidis.Open(rueidis.Config{
		URL: "redis://" + server.addr, Failover: failover.Config{Timeout: 10 * time.Second},
	})
	if err != nil {
		return nil, 0, nil, err
	}
	return store, server.id(), store.Close, store.Ready(r.ctx)
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
	claims := make([]stint.Claim, 3)
	group := []stint.Way{claims[:2], claims[2:]}
	extra := &stint.Extra{Groups: [][]stint.Way{group}}
	op := func(_, i int) error {
		claims[0] = stint.Claim{Key: keys[i%len(keys)], Policy: team.Policy(), Permits: 1}
		claims[1] = stint.Claim{Key: "all", Policy: whole.Policy(), Permits: 1}
		claims[2] = stint.Claim{Key: "all", Policy: whole.Policy(), Permits: 1, Keep: 1000}
		d, err := store.Decide(r.ctx, stint.Op{Extra: extra})
		return must(d, err, true)
	}
	return &work{op: op}, nil
}
