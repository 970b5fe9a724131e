package bench

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
)

// manyKeys is the number of keys where there are many: with -short, by which nothing is measured, few.
func manyKeys() int {
	if testing.Short() {
		return 10_000
	}
	return 1_000_000
}

// names returns the first n names of clients, each a string of its own.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = "user:" + strconv.Itoa(i)
	}
	return list
}

// A workload is which keys a benchmark asks about, and in which order.
//
// What is asked for is equal to what was filled in but is another string, as each
// request of a service brings its own: a limiter that keeps its keys has to
// compare their bytes.
type workload struct {
	name string
	fill func() []string // the keys to fill in
	ask  func() []string // the same keys, to ask for
	draw func() []uint32 // indexes of keys, cycled through
}

var (
	manyNames  = sync.OnceValue(func() []string { return names(manyKeys()) })
	askedNames = sync.OnceValue(func() []string { return names(manyKeys()) })
)

func oneName() []string { return names(1) }

// shuffled visits every key once.
var shuffled = sync.OnceValue(func() []uint32 {
	order := make([]uint32, manyKeys())
	for i := range order {
		order[i] = uint32(i)
	}
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
})

// zipf draws keys by Zipf's law with exponent 1.1; which keys are the popular
// ones is shuffled.
var zipf = sync.OnceValue(func() []uint32 {
	order := make([]uint32, 2*manyKeys())
	ranks := rand.NewZipf(rand.New(rand.NewPCG(3, 4)), 1.1, 1, uint64(manyKeys()-1))
	rank := shuffled()
	for i := range order {
		order[i] = rank[ranks.Uint64()]
	}
	return order
})

func workloads() []workload {
	return []workload{
		{"hot", oneName, oneName, func() []uint32 { return []uint32{0} }},
		{"uniform_1M", manyNames, askedNames, shuffled},
		{"zipf_1M", manyNames, askedNames, zipf},
	}
}
