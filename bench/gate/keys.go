package main

import (
	"math/rand/v2"
	"strconv"
	"sync"
)

// Numbers of clients, in memory and on Redis.
const (
	manyKeys  = 1_000_000
	redisKeys = 100_000
)

// names are those of n clients, each a string of its own.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = "user:" + strconv.Itoa(i)
	}
	return list
}

var (
	filledNames = sync.OnceValue(func() []string { return names(manyKeys) })
	// askedNames are equal to those that are filled in, and other strings, as each request brings its own.
	askedNames = sync.OnceValue(func() []string { return names(manyKeys) })
)

// shuffled is 0 to n-1 in an order that is the same in each run.
func shuffled(n int) []uint32 {
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// orderOf is the order in which n clients are asked for, as indexes: "hot" is one client, "uniform"
// each client once, "zipf" 2n draws by Zipf's law with exponent 1.1. A client's rank is by chance, so
// popular clients do not lie next to each other in memory. The order is the same in each run.
func orderOf(load string, n int) []uint32 {
	switch load {
	case "hot":
		return []uint32{0}
	case "zipf":
		order, rank := make([]uint32, 2*n), shuffled(n)
		ranks := rand.NewZipf(rand.New(rand.NewPCG(3, 4)), 1.1, 1, uint64(n-1))
		for i := range order {
			order[i] = rank[ranks.Uint64()]
		}
		return order
	}
	return shuffled(n)
}
