// Package topk finds the heaviest keys of a stream in bounded memory.
//
// A [Sketch] is for one goroutine; its owners, such as package activity, lock it. Sketches of
// several processes, or minutes, can be merged, with the same bounds on their errors.
package topk

import (
	"cmp"
	"math/bits"
	"slices"
)

// A Sketch counts the heaviest keys of a stream, by the Space-Saving algorithm (Metwally, Agrawal and El
// Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005).
//
// It has k counters. After a stream of total weight N, for each key with the true weight w:
//
//   - if w > N/k the key is among those that are counted,
//   - w <= Count <= w + Error, and Error <= N/k, if it is counted.
//
// Keys are hashes, by a seed that no sender knows: their lowest bits alone place them.
//
// A Sketch is not safe for concurrent use. Make it with [New].
type Sketch struct {
	most  int
	total int64
	// where counters are found by their keys: a hash table of linear probing, at most a quarter full
	index    []entry
	counters []counter
	// of the counters, apart from them so that a least one is found fast
	counts []int64

	// lost is the most that a key without a counter weighs in sketches that were merged into this one.
	lost int64

	// A least count is sought from one counter to the next. The search starts again when it has passed all of them, with a
	// floor that is at least 1 more. Since floor <= N/k, the steps in a stream of weight N are 2N at most, beside the
	// first 2k.
	floor int64 // no count is less
	next  int   // the counts before it are more than floor
}

// A counter has the key that it counts.
type counter struct {
	key   uint64
	error int64
}

// An entry of the index is a counter's number plus 1, with its key's hash, whose low bits say where its place is. 0 is
// a free place.
type entry struct {
	hash, number uint32
}

// An Item is a counted key.
type Item struct {
	Key uint64
	// Count is at least the key's weight in the stream, and at most Error more.
	Count, Error int64
}

// New makes a sketch with k counters, at least one.
func New(k int) *Sketch {
	k = max(1, k)
	return &Sketch{
		most: k, index: make([]entry, 4<<bits.Len(uint(k-1))),
		counters: make([]counter, 0, k), counts: make([]int64, 0, k),
	}
}

// Add counts a key with a weight. It returns the index of the key's counter, 0 to k-1, so that a
// caller can keep something beside each counter, and whether the key has just got it, from another
// key or none. A weight below 1 is ignored: the index is -1. It does not allocate once all counters
// are in use.
func (s *Sketch) Add(key uint64, weight int64) (index int, fresh bool) {
	if weight < 1 {
		return -1, false
	}
	s.total += weight
	at, known := s.find(key)
	if known {
		index = int(s.index[at].number - 1)
		s.counts[index] += weight
		return index, false
	}
	if len(s.counters) < s.most {
		return s.insert(Item{Key: key, Count: weight + s.lost, Error: s.lost}), true
	}
	index = s.leastCounter()
	s.unlink(index)
	s.counters[index] = counter{key, s.counts[index]}
	s.counts[index] += weight
	s.link(index)
	return index, true
}

// insert puts a key into a counter that is not in use.
func (s *Sketch) insert(item Item) (index int) {
	s.counters = append(s.counters, counter{item.Key, item.Error})
	s.counts = append(s.counts, item.Count)
	s.link(len(s.counters) - 1)
	return len(s.counters) - 1
}

// leastCounter finds one with the least count; all are in use. Counts only grow, so that a counter
// that was above the floor stays above it: the search never has to go back until it has passed all.
func (s *Sketch) leastCounter() int {
	for {
		for ; s.next < len(s.counts); s.next++ {
			if s.counts[s.next] == s.floor {
				return s.next
			}
		}
		s.next, s.floor = 0, slices.Min(s.counts)
	}
}

// least is the most that a key without a counter may weigh. In sketches that were merged a key may
// have weighed lost without being counted.
func (s *Sketch) least() int64 {
	if len(s.counters) < s.most {
		return s.lost
	}
	return slices.Min(s.counts) // each is as much as lost, and more
}

// find returns the place of a key in the index, or else the free place where the search ended.
func (s *Sketch) find(key uint64) (at uint32, known bool) {
	hash, mask := uint32(key), uint32(len(s.index)-1)
	for at = hash & mask; ; at = (at + 1) & mask {
		e := s.index[at]
		if e.number == 0 {
			return at, false
		}
		if e.hash == hash && s.counters[e.number-1].key == key {
			return at, true
		}
	}
}

// link puts a counter into the index.
func (s *Sketch) link(index int) {
	mask, hash := uint32(len(s.index)-1), uint32(s.counters[index].key)
	at := hash & mask
	for s.index[at].number != 0 {
		at = (at + 1) & mask
	}
	s.index[at] = entry{hash, uint32(index + 1)}
}

// unlink takes a counter out of the index, and closes the gap, so that each search still meets no
// free place before its key. It is the deletion of linear probing without tombstones (Knuth, The
// Art of Computer Programming, volume 3, section 6.4, algorithm R).
func (s *Sketch) unlink(index int) {
	mask := uint32(len(s.index) - 1)
	gap := uint32(s.counters[index].key) & mask
	for s.index[gap].number != uint32(index+1) {
		gap = (gap + 1) & mask
	}
	for at := (gap + 1) & mask; s.index[at].number != 0; at = (at + 1) & mask {
		if (at-s.index[at].hash)&mask >= (at-gap)&mask { // its own place is not behind the gap
			s.index[gap] = s.index[at]
			gap = at
		}
	}
	s.index[gap] = entry{}
}

// item is what a counter counts.
func (s *Sketch) item(index int) Item {
	c := &s.counters[index]
	return Item{Key: c.key, Count: s.counts[index], Error: c.error}
}

// Total is the weight of the whole stream.
func (s *Sketch) Total() int64 { return s.total }

// Top returns the n heaviest keys that are counted, or all if there are fewer, the heaviest first:
// by what they weigh at least, Count - Error. A flood of keys that come once each drives up all
// counts alike, but not that. The order is stable, and equal keys stand in the order of their
// counters.
func (s *Sketch) Top(n int) []Item {
	items := make([]Item, len(s.counters))
	for i := range s.counters {
		items[i] = s.item(i)
	}
	slices.SortStableFunc(items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(b.Count-b.Error, a.Count-a.Error), cmp.Compare(b.Count, a.Count))
	})
	return items[:max(0, min(n, len(items)))]
}

// Merge adds the stream of another sketch, which does not change. If both have k counters and the
// streams weigh N together, w <= Count <= w + Error and Error <= N/k still hold, and a key with w >
// 2N/k is counted. A sketch with a counter for each of the merged ones loses no key. A key that
// only one of the two counts may have weighed up to the other's least there, which is added to its
// Count and to its Error. The k items with the highest counts stay.
func (s *Sketch) Merge(other *Sketch) {
	mine, theirs := s.least(), other.least()
	items := make([]Item, 0, len(s.counters)+len(other.counters))
	for i := range s.counters {
		item := s.item(i)
		if at, both := other.find(item.Key); both {
			same := other.item(int(other.index[at].number - 1))
			item.Count, item.Error = item.Count+same.Count, item.Error+same.Error
		} else {
			item.Count, item.Error = item.Count+theirs, item.Error+theirs
		}
		items = append(items, item)
	}
	for i := range other.counters {
		item := other.item(i)
		if _, both := s.find(item.Key); !both {
			item.Count, item.Error = item.Count+mine, item.Error+mine
			items = append(items, item)
		}
	}
	slices.SortStableFunc(items, func(a, b Item) int { // by Count, which keeps Error below N/k
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error))
	})
	total := s.total + other.total
	s.Reset()
	s.total, s.lost = total, mine+theirs
	for _, item := range items[:min(s.most, len(items))] {
		s.insert(item)
	}
}

// Reset forgets everything.
func (s *Sketch) Reset() {
	clear(s.index)
	clear(s.counters)
	s.counters, s.counts = s.counters[:0], s.counts[:0]
	s.total, s.lost, s.floor, s.next = 0, 0, 0, 0
}
