package main

import (
	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

func allRows() []row {
	rows := []row{
		{"memory/hot", memory("hot", generous, true)},
		{"memory/uniform", memory("uniform", generous, true)},
		{"memory/zipf", memory("zipf", generous, true)},
		{"memory/denied", memory("hot", spent, false)},
		{"memory/two-limits", memory("hot", generous, true, wide)},
		{"memory/hot/procs=2", memory("hot", generous, true)},
		{"memory/uniform/procs=2", memory("uniform", generous, true)},
		{"memory/zipf/procs=2", memory("zipf", generous, true)},
		{"floor/go-limiter", goLimiter},
	}
	for _, open := range []struct {
		name string
		open opener
	}{{"bare", bare}} {
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
			row{in + "/flood/callers=512/procs=2", onRedis(open.open, "hot", 512, spent, false)},
			row{in + "/hot/callers=512/procs=2", onRedis(open.open, "hot", 512, generous, true)},
		)
	}
	rows = append(rows, row{"floor/incr/callers=64", incr})
	return append(rows,
		row{"floor/bare-handler", bareHandler},
		row{"rest/check/admitted", check(plenty, 200)},
		row{"rest/check/denied", check(none, 429)},
		row{"rest/evaluate", evaluate},
	)
}

func bare(r *rig) (stint.Store, int, func(), error) {
	server, err := r.redisServer()
	if err != nil {
		return nil, 0, nil, err
	}
	store, err := rueidis.Open(rueidis.Connection{URL: "redis://" + server.addr}, redisstore.Options{})
	if err != nil {
		return nil, 0, nil, err
	}
	return store, server.id(), store.Close, store.Ping(r.ctx)
}
