package main

import (
	"math/rand/v2"
	"strconv"
)

// turnsOfAll is about how many turns are drawn for all callers of a load together; who
// has had all of his begins again.
const turnsOfAll = 1 << 20

// traffic is which clients each caller asks for, drawn beforehand. It depends on the
// load and the callers only, so that all implementations get the same.
type traffic struct {
	names   [][]string   // the clients of each quota
	indexes [][][]uint32 // of each caller and quota
}

// newTraffic draws the traffic of a load. Each caller has a generator of its own.
func newTraffic(l *load, keys, callers int) *traffic {
	t := &traffic{names: names(l, keys), indexes: make([][][]uint32, callers)}
	turns := max(turnsOfAll/callers, 1)
	for caller := range t.indexes {
		t.indexes[caller] = make([][]uint32, len(l.draws))
		for quota, d := range l.draws {
			random := rand.New(rand.NewPCG(uint64(caller), uint64(quota)))
			t.indexes[caller][quota] = d.sequence(random, turns, len(t.names[quota]))
		}
	}
	return t
}

// names returns the clients of each quota as ready strings.
func names(l *load, keys int) [][]string {
	all := make([][]string, len(l.draws))
	for quota, d := range l.draws {
		if d == single {
			all[quota] = []string{"everybody"}
			continue
		}
		all[quota] = make([]string, keys)
		for i := range all[quota] {
			all[quota][i] = name(quota, i)
		}
	}
	return all
}

// name tells the clients of the quotas apart, since not everybody keeps quotas apart.
func name(quota, i int) string {
	if quota == 2 {
		return "address:10." + strconv.Itoa(i>>16) + "." + strconv.Itoa(i>>8&255) + "." + strconv.Itoa(i&255)
	}
	return "user:" + strconv.Itoa(i)
}

func (d draw) sequence(random *rand.Rand, turns, keys int) []uint32 {
	if d == single {
		return []uint32{0}
	}
	sequence := make([]uint32, turns)
	zipf := rand.NewZipf(random, 1.1, 1, uint64(keys-1))
	for i := range sequence {
		if d == zipfian {
			sequence[i] = uint32(zipf.Uint64())
		} else {
			sequence[i] = random.Uint32N(uint32(keys))
		}
	}
	return sequence
}
