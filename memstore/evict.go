package memstore

import (
	"math"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// What is done at the cap. The cost of a state is how many permits its loss gives away: the
// nearer to untouched, the cheaper. The states that the operation itself writes are never
// evicted.
//
// A new state of a shard that has its share of the memory replaces another state of that
// shard (evict). Everything else grows first: a log, and the table of a shard that has
// little because logs or other shards hold the memory. When the operation has released its
// locks, memory is freed in any shard (fitCap).
const (
	// sample is how many states an eviction chooses from at least, if there are as many.
	sample = 8
	// surveyGroups is how many groups of one shard a choice between shards looks at.
	surveyGroups = 4
	// A table gives up 1/yieldDen of its groups at a time, since each time copies the rest.
	yieldDen = 8
)

// A candidate is a state that may be evicted.
type candidate struct {
	slot  *slot // nil: there is none
	group int
	hash  uint64
	ends  stint.Instant // when it equals an untouched one
}

// overCap reports whether the memory is above the cap.
func (s *Store) overCap() bool { return s.bytes.Load() > s.maxBytes }

// hasShare reports whether the shard's table has at least half of the shard's share of
// the memory, so that a sample of it is as good as one of all shards.
func (s *Store) hasShare(t *shard) bool {
	return int64(len(t.table.Load().groups))*groupBytes*2*shardCount >= s.maxBytes
}

// consider makes the states of a group candidates, except those that the operation with
// the operation writes. It returns how many it considered.
func (s *Store) consider(t *shard, group int, own []place, c *candidate) (considered int) {
	slots := &t.table.Load().groups[group]
	for i := range slots {
		slot := &slots[i]
		hash := slot.hash.Load()
		if hash == 0 || hasHash(own, hash) {
			continue
		}
		considered++
		if ends := s.ends(t, slot); c.slot == nil || ends <= c.ends {
			*c = candidate{slot, group, hash, ends}
		}
	}
	return considered
}

// choose returns the cheapest of at least eight states of a shard, if so many are in the
// next groups, and how many it chose from.
func (s *Store) choose(t *shard, groups int, own []place) (c candidate, considered int) {
	table := t.table.Load()
	for range min(groups, len(table.groups)) {
		t.cursor = uint32(table.next(int(t.cursor)))
		if considered += s.consider(t, int(t.cursor), own, &c); considered >= sample {
			break
		}
	}
	return c, considered
}

// evict drops the cheapest of a few states of a shard. One that was worthless already is
// reclaimed and not counted as evicted. It reports false if there are only states that the
// operation writes.
func (s *Store) evict(t *shard, own []place, now stint.Instant) bool {
	c, considered := s.choose(t, len(t.table.Load().groups), own)
	if considered > 0 {
		s.drop(t, c.slot, c.group, now)
	}
	return considered > 0
}

// fitCap brings the memory below the cap after an operation that has released its locks. If
// only the operation's own states are left, their logs are made coarser, so that their
// limits still hold.
func (s *Store) fitCap(own []place, now stint.Instant) {
	s.evicting.Lock()
	defer s.evicting.Unlock()
	for s.overCap() {
		if !s.evictAnywhere(own, now) && !s.coarsen(own) {
			return // the limits in use alone are above the cap
		}
	}
}

// evictAnywhere frees memory of one shard, and reports false if there was none to free.
// A table that is too large for its states shrinks first, which costs nothing. Else the
// cheapest of a few states of several shards is found. If it is a log, it is dropped; if
// not, its table becomes smaller. So logs and tables give way as they are many, and cheap.
func (s *Store) evictAnywhere(own []place, now stint.Instant) bool {
	victim, least := candidate{ends: math.MaxInt64}, -1
	for seen, shards := 0, 0; seen < sample && shards < shardCount; shards++ {
		s.nextShard = (s.nextShard + 1) % shardCount
		c, considered, shrunk := s.shrinkOrChoose(&s.shards[s.nextShard], own)
		if shrunk {
			return true
		}
		if seen += considered; considered > 0 && c.ends <= victim.ends {
			victim, least = c, s.nextShard
		}
	}
	if least < 0 {
		return false
	}
	t := &s.shards[least]
	t.mu.Lock()
	defer t.mu.Unlock()
	slot, group := t.table.Load().find(victim.hash)
	switch _, isLog := t.logs[victim.hash]; {
	case slot == nil: // it has gone meanwhile
	case isLog:
		s.drop(t, slot, group, now)
	default:
		s.shrinkByEvicting(t, own, now)
	}
	return true
}

// shrinkOrChoose shrinks the shard's table if it has too much room, or else chooses one of its
// states.
func (s *Store) shrinkOrChoose(t *shard, own []place) (c candidate, considered int, shrunk bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if groups := groupsFor(t.used + 1); groups <= smaller(len(t.table.Load().groups)) {
		s.rebuild(t, groups)
		return c, 0, true
	}
	c, considered = s.choose(t, surveyGroups, own)
	return c, considered, false
}

// smaller is how many groups a table has once it gave up some.
func smaller(groups int) int {
	groups -= max(1, groups/yieldDen)
	if groups > 2*page {
		groups = groups / page * page
	}
	return groups
}

// shrinkByEvicting makes a shard's table smaller. The worthless and the cheapest states go until the
// others fit.
func (s *Store) shrinkByEvicting(t *shard, own []place, now stint.Instant) {
	groups := smaller(len(t.table.Load().groups))
	s.purge(t, now)
	for int(t.used) > maxStatesOf(groups) {
		if !s.evict(t, own, now) {
			return // the states of the operation itself need the room
		}
	}
	s.rebuild(t, groups)
}

// coarsen halves the records of an operation's logs, until the memory is below the cap. It
// reports false if nothing became smaller.
func (s *Store) coarsen(own []place) (freed bool) {
	for i := range own {
		if own[i].limit.HasLog() && s.overCap() && s.coarsenLog(own[i].hash) {
			freed = true
			s.evictions.Add(1)
		}
	}
	return freed
}

// coarsenLog halves the records of one log, and reports whether that freed anything.
func (s *Store) coarsenLog(hash uint64) bool {
	t := s.shard(hash)
	t.mu.Lock()
	defer t.mu.Unlock()
	log, known := t.logs[hash]
	before := log.Records()
	if !known || !log.Coarsen() {
		return false
	}
	t.logs[hash] = log
	s.bytes.Add(int64(log.Records()-before) * algorithm.RecordBytes)
	return true
}

// ends is when the state of a slot equals an untouched one.
func (s *Store) ends(t *shard, slot *slot) stint.Instant {
	id := slot.hold()
	ends, _ := s.life(t, slot, id)
	slot.release(id)
	return ends
}

// drop removes a state for want of memory, and counts it.
func (s *Store) drop(t *shard, slot *slot, group int, now stint.Instant) {
	id := slot.hold()
	if ends, life := s.life(t, slot, id); isWorthless(ends, life, now) {
		s.reclaimed.Add(1)
	} else {
		s.evictions.Add(1)
	}
	s.remove(t, slot, group, id, now)
}
