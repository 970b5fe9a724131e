package memstore

import (
	"math"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
)

// A worthless state equals an untouched one, or was reset with its policy. It is removed in small
// steps as decisions are made (sweepNow), and before a table grows (makeRoom).

// At most every sweepEvery microseconds, sweepGroups groups of some shard are looked at.
const sweepEvery, sweepGroups = 100, 8

// rebuild gives the shard's table so many groups, which fit what it holds. The slots of
// the old one stay held, so that nobody decides on what is no longer there.
func (s *Store) rebuild(t *shard, groups int) {
	old, table := t.table.Load(), newTable(groups)
	for group := range old.groups {
		for i := range groupSlots {
			slot := &old.groups[group][i]
			if hash := slot.hash.Load(); hash != 0 {
				id := slot.hold()
				table.insert(hash, slot.numbers(), id)
			}
		}
	}
	t.table.Store(table)
	t.cursor = 0
	s.bytes.Add(int64(len(table.groups)-len(old.groups)) * groupBytes)
}

// purge removes every worthless state of a shard.
func (s *Store) purge(t *shard, now stint.Instant) {
	for group := range t.table.Load().groups {
		s.reclaim(t, group, now)
	}
}

// reclaim removes every worthless state of a group.
func (s *Store) reclaim(t *shard, group int, now stint.Instant) {
	for i := 0; i < groupSlots; {
		slot := &t.table.Load().groups[group][i]
		if slot.hash.Load() != 0 {
			id := slot.hold()
			if ends, life := s.life(t, slot, id); isWorthless(ends, life, now) {
				s.remove(t, slot, group, id, now)
				s.reclaimed.Add(1)
				continue // what had passed may have moved here
			}
			slot.release(id)
		}
		i++
	}
}

// makeRoom makes room for one more state of an operation: by dropping worthless ones, by
// growing, or at the cap by evicting. A pass over the shard is made only
// where it may grow, so that the passes stay rare; at the cap a sample decides.
func (s *Store) makeRoom(t *shard, own []place, now stint.Instant) {
	grown := int64(groupsFor(t.used+1)-len(t.table.Load().groups)) * groupBytes
	if s.bytes.Load()+grown > s.maxBytes && s.hasShare(t) && s.evict(t, own, now) {
		return
	}
	s.purge(t, now)
	if int(t.used) < t.maxStates()*3/4 {
		return // enough was worthless; leave the size as it is
	}
	s.rebuild(t, groupsFor(t.used+1))
}

// life returns when a state whose slot is held, and which is of the epoch with the id,
// equals an untouched one, and how long it was to live when it was written.
func (s *Store) life(t *shard, slot *slot, id uint32) (ends stint.Instant, life int64) {
	e := s.epoch(id)
	if e.version == nil {
		return longAgo, 0
	}
	state := algorithm.State{Numbers: slot.numbers()}
	if e.isLog {
		state.Log = t.logs[slot.hash.Load()]
	}
	ends, life = e.version.Worthless(&state, e.version.siblings.versions.Load() > 1)
	if e.isHeld {
		// Until its last hold has expired nothing of it has gone, and then it may take as long again.
		last := t.held[slot.hash.Load()].LastExpiry()
		ends, life = max(ends, last)+stint.Instant(life), life+int64(bounds.MaxHoldTTL/time.Microsecond)
	}
	return ends, life
}

// longAgo is since when a state that was reset equals an untouched one.
const longAgo = stint.Instant(math.MinInt64 / 2)

// isWorthless reports whether a state has equalled an untouched one for longer than
// the margin, so that dropping it changes nothing.
func isWorthless(ends stint.Instant, life int64, now stint.Instant) bool {
	return ends+stint.Instant(algorithm.Margin(life)) < now
}

// sweepNow sweeps, if that is due. So that deciding writes nothing that all share,
// it is paced by time: a state becomes worthless by time alone.
func (s *Store) sweepNow(now stint.Instant) {
	// A clock that was set back makes the difference negative, which is due as well.
	if last := s.lastSweep.Load(); uint64(int64(now)-last) >= sweepEvery {
		s.sweep(now, last)
	}
}

// sweep looks at a few groups of a shard, another one each time, and drops what is
// worthless. Of the callers that saw the same last sweep, one sweeps.
func (s *Store) sweep(now stint.Instant, last int64) {
	if !s.lastSweep.CompareAndSwap(last, int64(now)) {
		return
	}
	t := &s.shards[s.sweepCount.Add(1)%shardCount]
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	for range min(sweepGroups, len(t.table.Load().groups)) {
		if int(t.cursor) >= len(t.table.Load().groups) {
			t.cursor = 0
			s.shrink(t)
		}
		s.reclaim(t, int(t.cursor), now)
		t.cursor++
	}
}

// shrink gives back the memory of a table that has emptied.
func (s *Store) shrink(t *shard) {
	if groups := groupsFor(t.used + 1); groups*4 < len(t.table.Load().groups) {
		s.rebuild(t, groups)
	}
}
