package memstore

import (
	"math/bits"
	"sync"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

const (
	shardBits  = 8
	shardCount = 1 << shardBits

	slotBytes = 32
	// A table is full at fullNum/fullDen of its homes and is given roomNum/roomDen
	// homes for each state when it is built, so its load is between 0.71 and 0.85.
	fullNum, fullDen = 17, 20
	roomNum, roomDen = 7, 5
	// tail is how many slots follow the last home, for what is displaced past it.
	tail = 16
	// page is the number of slots in a page of the allocator; larger tables fill
	// whole pages, which would otherwise be wasted in part.
	page = 8192 / slotBytes
)

// slot is one client's state under one limit. It holds no pointer, so the garbage
// collector does not look into tables. A hash of 0 marks an empty slot.
type slot struct {
	hash uint64
	words
}

// shard is one part of the table: an ordered linear-probing table (Amble and
// Knuth, "Ordered hash tables", 1974). Slots are sorted by hash, each at its home
// or after it with no empty slot between. A search ends at the first greater hash,
// so a miss costs no more than a hit, and a table grows by one sequential pass.
type shard struct {
	mu    sync.Mutex
	slots []slot
	homes uint32 // how many of the slots are homes
	used  uint32
	turns uint32                   // decisions made, to pace the sweep
	hand  uint32                   // where the sweep stands
	logs  map[uint64]algorithm.Log // by hash, of the sliding window logs
	_     [8]byte                  // to a cache line
}

// lock locks the shard. What is done under it takes tens of nanoseconds, so it is
// worth trying a few times, each after a longer pause, before going to sleep. Of two
// cores that want one shard, the one that has it goes on meanwhile with what its
// cache holds.
func (t *shard) lock() {
	for pause := 512; pause <= 8192; pause *= 2 {
		if t.mu.TryLock() {
			return
		}
		for range pause {
		}
	}
	t.mu.Lock()
}

// home is where a hash belongs: its bits below the shard's, scaled to the homes.
// Homes ascend with hashes.
func (t *shard) home(hash uint64) int {
	hi, _ := bits.Mul64(hash<<shardBits, uint64(t.homes))
	return int(hi)
}

// find returns where the hash is, or would be.
func (t *shard) find(hash uint64) (at int, found bool) {
	slots := t.slots
	at = t.home(hash)
	// An empty slot's 0 wraps to the greatest value and ends the search.
	for at < len(slots) && slots[at].hash-1 < hash-1 {
		at++
	}
	return at, at < len(slots) && slots[at].hash == hash
}

// full reports whether the table is to be rebuilt before another insertion.
func (t *shard) full() bool { return t.used*fullDen >= t.homes*fullNum }

// insert puts a state at the place that find returned for its hash. It reports
// false when the displaced slots don't fit.
func (t *shard) insert(at int, s slot) bool {
	end := at
	for end < len(t.slots) && t.slots[end].hash != 0 {
		end++
	}
	if end == len(t.slots) {
		return false
	}
	copy(t.slots[at+1:end+1], t.slots[at:end])
	t.slots[at] = s
	t.used++
	return true
}

// delete removes the slot at a place and moves those displaced by it back.
func (t *shard) delete(at int) {
	end := at + 1
	for end < len(t.slots) && t.slots[end].hash != 0 && t.home(t.slots[end].hash) < end {
		end++
	}
	copy(t.slots[at:end-1], t.slots[at+1:end])
	t.slots[end-1] = slot{}
	t.used--
}

// size is how many slots a table for so many states gets, its tail included.
func size(states uint32) int {
	slots := int(states)*roomNum/roomDen + 2 + tail
	if slots > 2*page {
		slots = (slots + page - 1) / page * page
	}
	return slots
}

// place fills an empty table with slots in the order of their hashes. It reports
// false when they don't fit.
func (t *shard) place(slots []slot) bool {
	next := 0
	for i := range slots {
		if slots[i].hash == 0 {
			continue
		}
		at := max(next, t.home(slots[i].hash))
		if at >= len(t.slots) {
			return false
		}
		t.slots[at] = slots[i]
		next = at + 1
	}
	return true
}

// rebuild gives the shard's table a size that fits what it holds and more.
func (s *Store) rebuild(t *shard, more uint32) {
	old := t.slots
	for n := size(t.used + more); ; n += tail {
		t.slots = make([]slot, n)
		t.homes = uint32(n - tail)
		if t.place(old) {
			break
		}
	}
	t.hand = 0
	s.bytes.Add(int64(len(t.slots)-len(old)) * slotBytes)
}

// purge removes every worthless state of a shard.
func (s *Store) purge(t *shard, now stint.Instant) {
	for at := 0; at < len(t.slots); {
		if t.slots[at].hash != 0 && s.worthless(t, at, now) {
			s.remove(t, at)
			s.reclaimed.Add(1)
			continue // what was displaced has moved here
		}
		at++
	}
}

// makeRoom lets one more state in: by dropping the worthless, by growing, or at the
// cap by evicting. A pass over the shard is made only where it may grow, so that the
// passes stay rare; at the cap a sample decides.
func (s *Store) makeRoom(t *shard, now stint.Instant) {
	grown := int64(size(t.used+1)-len(t.slots)) * slotBytes
	if s.bytes.Load()+grown > s.maxBytes && t.used > 0 {
		s.evict(t, now)
		return
	}
	s.purge(t, now)
	if t.used*fullDen < t.homes*fullNum*3/4 {
		return // enough was worthless; leave the size as it is
	}
	s.rebuild(t, 1)
}
