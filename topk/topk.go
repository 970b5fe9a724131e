// Package topk finds the heaviest keys of a stream in bounded memory.
package topk

import (
	"cmp"
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
// A Sketch is not safe for concurrent use. Make it with [New].
type Sketch[K comparable] struct {
	most     int
	total    int64
	slots    map[K]int32 // the counter of a key
	counters []counter[K]
	heap     []node // of counters, the least first: no child of heap[i] is less, which are arity*i+1 and on
}

type counter[K comparable] struct {
	Item[K]

	place int32 // in the heap
}

// A node is a counter's place in the heap, with its count, so that those of siblings lie side by side.
type node struct {
	count int64
	slot  int32
}

// arity is how many children a node of the heap has. With 4 a heap is half as deep as with 2, and the
// children's places are in one cache line.
const arity = 4

// An Item is a counted key.
type Item[K comparable] struct {
	Key K
	// Count is at least the key's weight in the stream, and at most Error more.
	Count, Error int64
}

// New makes a sketch with k counters, at least one.
func New[K comparable](k int) *Sketch[K] {
	k = max(1, k)
	return &Sketch[K]{most: k, slots: make(map[K]int32, k), counters: make([]counter[K], 0, k), heap: make([]node, 0, k)}
}

// Add counts a key with a weight. It returns the index of the key's counter, 0 to k-1, so that a caller can keep
// something beside each counter, and whether the key has just got it, from another key or none. A weight below 1 is ignored: the
// index is -1. It does not allocate once all counters are in use.
func (s *Sketch[K]) Add(key K, weight int64) (index int, fresh bool) {
	if weight < 1 {
		return -1, false
	}
	s.total += weight
	if slot, known := s.slots[key]; known {
		c := &s.counters[slot]
		c.Count += weight
		s.sink(int(c.place), node{c.Count, slot})
		return int(slot), false
	}
	if len(s.counters) < s.most {
		s.insert(Item[K]{Key: key, Count: weight})
		return len(s.counters) - 1, true
	}
	slot := s.heap[0].slot
	c := &s.counters[slot]
	delete(s.slots, c.Key)
	s.slots[key] = slot
	c.Item = Item[K]{Key: key, Count: c.Count + weight, Error: c.Count}
	s.sink(0, node{c.Count, slot})
	return int(slot), true
}

// insert puts a key into a counter that is not in use.
func (s *Sketch[K]) insert(item Item[K]) {
	slot := int32(len(s.counters))
	s.counters = append(s.counters, counter[K]{item, slot})
	s.heap = append(s.heap, node{item.Count, slot})
	s.slots[item.Key] = slot
	s.rise(int(slot))
}

// least is the most that a key without a counter may weigh.
func (s *Sketch[K]) least() int64 {
	if len(s.counters) < s.most {
		return 0
	}
	return s.heap[0].count
}

// sink moves a counter down from its place in the heap, after its count has grown.
func (s *Sketch[K]) sink(at int, n node) {
	for {
		first := arity*at + 1
		if first >= len(s.heap) {
			break
		}
		child := first
		for i := first + 1; i < min(first+arity, len(s.heap)); i++ {
			if s.heap[i].count < s.heap[child].count {
				child = i
			}
		}
		if n.count <= s.heap[child].count {
			break
		}
		s.put(at, s.heap[child])
		at = child
	}
	s.put(at, n)
}

// rise moves a new counter at the end of the heap up.
func (s *Sketch[K]) rise(at int) {
	n := s.heap[at]
	for at > 0 {
		parent := (at - 1) / arity
		if s.heap[parent].count <= n.count {
			break
		}
		s.put(at, s.heap[parent])
		at = parent
	}
	s.put(at, n)
}

func (s *Sketch[K]) put(at int, n node) {
	s.heap[at] = n
	s.counters[n.slot].place = int32(at)
}

// Total is the weight of the whole stream.
func (s *Sketch[K]) Total() int64 { return s.total }

// Top returns the n heaviest keys that are counted, or all if there are fewer, the heaviest first.
func (s *Sketch[K]) Top(n int) []Item[K] {
	items := make([]Item[K], len(s.counters))
	for i := range s.counters {
		items[i] = s.counters[i].Item
	}
	sortItems(items)
	return items[:max(0, min(n, len(items)))]
}

func sortItems[K comparable](items []Item[K]) {
	slices.SortStableFunc(items, func(a, b Item[K]) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error))
	})
}

// Merge adds the stream of another sketch, which does not change. If both have k counters and the streams weigh
// N together, w <= Count <= w + Error and Error <= N/k still hold, and a key with w > 2N/k is
// counted.
func (s *Sketch[K]) Merge(other *Sketch[K]) {
	mine, theirs := s.least(), other.least()
	items := make([]Item[K], 0, len(s.counters)+len(other.counters))
	for i := range s.counters {
		item := s.counters[i].Item
		if slot, both := other.slots[item.Key]; both {
			item.Count += other.counters[slot].Count
			item.Error += other.counters[slot].Error
		} else {
			item.Count, item.Error = item.Count+theirs, item.Error+theirs
		}
		items = append(items, item)
	}
	for i := range other.counters {
		item := other.counters[i].Item
		if _, both := s.slots[item.Key]; !both {
			item.Count, item.Error = item.Count+mine, item.Error+mine
			items = append(items, item)
		}
	}
	sortItems(items)
	total := s.total + other.total
	s.Reset()
	s.total = total
	for _, item := range items[:min(s.most, len(items))] {
		s.insert(item)
	}
}

// Reset forgets everything.
func (s *Sketch[K]) Reset() {
	clear(s.slots)
	clear(s.counters)
	s.total, s.counters, s.heap = 0, s.counters[:0], s.heap[:0]
}
