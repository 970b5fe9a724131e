package memstore

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/decide"
)

// The shape of the tables: 2^shardBits shards, each a table of groups of 4 slots of 32 bytes, which
// are two cache lines.
const (
	shardBits  = 8
	shardCount = 1 << shardBits

	groupSlots = 4
	groupBytes = groupSlots * 32
	// A table is full with fullNum/fullDen of its slots in use, and is given
	// roomNum/roomDen slots for each state when it is built: its load is between 0.7
	// and 0.83.
	fullNum, fullDen = 5, 6
	roomNum, roomDen = 10, 7
	// page is the number of groups in a page of the allocator; larger tables fill
	// whole pages, which would otherwise be wasted in part.
	page = 8192 / groupBytes
)

// shard is one part of the clients. Its lock is needed to add, move or remove
// states. To decide on a state that is there, holding its slot is enough.
type shard struct {
	mu     sync.Mutex
	table  atomic.Pointer[table]
	used   uint32
	cursor uint32                     // the group that the sweep, or an eviction, looked at last
	logs   map[uint64]algorithm.Log   // by hash, of the sliding window logs
	held   map[uint64]*decide.Holding // by hash, of the states of which something is held
	// mostHeld is of how many states it was, at most, since it was made.
	mostHeld int
	latest   atomic.Int64 // the latest time of a decision (clock.go)
	_        [8]byte      // to a cache line
}

// table is an open-addressing table of groups of slots. A state is in the first group from its
// hash's home on that had an empty slot, so a search ends at a group that has one. It is replaced
// as a whole when it grows or shrinks; a slot of the old one stays empty for ever, so that nobody
// writes to it.
type table struct{ groups []group }

// group is two cache lines, next to each other.
type group [groupSlots]slot

// find returns the slot of a hash, or an empty one's with 0; nil when there is none.
// It does not stop at the first that fits: without branches to guess, both lines are
// on their way from memory at once.
func (g *group) find(hash uint64) *slot {
	i := 0
	if g[1].hash.Load() == hash {
		i = 1
	}
	if g[2].hash.Load() == hash {
		i = 2
	}
	if g[3].hash.Load() == hash {
		i = 3
	}
	if s := &g[i]; s.hash.Load() == hash {
		return s
	}
	return nil
}

// full reports whether the group has no empty slot.
func (g *group) full() bool { return g.find(0) == nil }

// newTable makes an empty table.
func newTable(groups int) *table { return &table{make([]group, groups)} }

// groupsFor is how many groups a table for so many states gets.
func groupsFor(states uint32) int {
	groups := int(states)*roomNum/roomDen/groupSlots + 1
	if groups > 2*page {
		groups = (groups + page - 1) / page * page
	}
	return groups
}

// home is the group where a hash belongs: its bits below the shard's, scaled to the
// groups.
func (t *table) home(hash uint64) int {
	hi, _ := bits.Mul64(hash<<shardBits, uint64(len(t.groups)))
	return int(hi)
}

// touch reads from both cache lines of a hash's home.
func (t *table) touch(hash uint64) {
	if home := t.home(hash); home < len(t.groups) { // there is none in an empty table
		t.groups[home][0].hash.Load()
		t.groups[home][groupSlots-1].hash.Load()
	}
}

// next is the group after one, around the table.
func (t *table) next(group int) int {
	if group++; group >= len(t.groups) {
		return 0
	}
	return group
}

// find returns the slot of a hash and its group, or nil. It needs no lock, but without
// the shard's it may miss a state that is just being moved.
func (t *table) find(hash uint64) (s *slot, group int) {
	group = t.home(hash)
	for range t.groups {
		g := &t.groups[group]
		if s = g.find(hash); s != nil || !g.full() {
			return s, group
		}
		group = t.next(group)
	}
	return nil, 0
}

// hold finds the state of a hash that is of the version's epoch, whose id was read before,
// and takes hold of its slot. It needs no lock. When it returns nil, the state may be there
// all the same, busy or just being moved. Under the shard's lock this is certain.
func (t *table) hold(hash uint64, id uint32, version *limitVersion) *slot {
	s, _ := t.find(hash)
	if s == nil || !s.tryHold(hash, id) {
		return nil
	}
	if version.id.Load() != id { // a reset came between; the id may be another version's by now
		s.release(id)
		return nil
	}
	return s
}

// insert adds a state that is not there.
func (t *table) insert(hash uint64, n algorithm.Numbers, id uint32) {
	group := t.home(hash)
	for t.groups[group].full() {
		group = t.next(group)
	}
	t.groups[group].find(0).fill(hash, n, id)
}

// delete empties a slot of a group, which the caller holds, and closes the gap: a state whose
// search passed the full group moves into it. Without tombstones a search never gets longer than
// the load makes it.
func (t *table) delete(s *slot, group int) {
	for s != nil {
		full := t.groups[group].full()
		s.hash.Store(0)
		if !full {
			return
		}
		gap := s
		if s, group = t.passed(group); s != nil {
			id := s.hold()
			gap.fill(s.hash.Load(), s.numbers(), id)
		}
	}
}

// passed finds a state whose search passes the group.
func (t *table) passed(group int) (s *slot, at int) {
	for at = t.next(group); at != group; at = t.next(at) {
		g := &t.groups[at]
		for i := range g {
			hash := g[i].hash.Load()
			if hash != 0 && t.steps(t.home(hash), at) >= t.steps(group, at) {
				return &g[i], at
			}
		}
		if !g.full() {
			break
		}
	}
	return nil, 0
}

// steps is how many groups lie from one to another, around the table.
func (t *table) steps(from, to int) int {
	if to < from {
		to += len(t.groups)
	}
	return to - from
}

// full reports whether the table is to be rebuilt before another insertion.
func (t *shard) full() bool { return int(t.used) >= t.maxStates() }

// maxStates is how many states the table is to hold at most.
func (t *shard) maxStates() int { return maxStatesOf(len(t.table.Load().groups)) }

// maxStatesOf is how many states a table of so many groups is to hold at most.
func maxStatesOf(groups int) int { return groups * groupSlots * fullNum / fullDen }
