package memstore

import (
	"hash/maphash"
	"math"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// At most every sweepEvery microseconds, sweepGroups groups of some shard are looked at.
const sweepEvery, sweepGroups = 100, 8

// hash identifies a key under a limit. Its upper bits choose the shard and are of
// the key alone, so that all limits of one key are in one shard.
func (s *Store) hash(key string, l *limit) uint64 {
	hash := maphash.String(s.seed, key) ^ l.tag
	if hash == 0 {
		return 1
	}
	return hash
}

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>(64-shardBits)] }

// epoch is the epoch with the id, which a slot that is held has.
func (s *Store) epoch(id uint32) *epoch { return (*s.epochs.Load())[id-1] }

// open holds the slot of a part, if there is one, and reads its state as the part's
// limit reads it.
func (s *Store) open(t *shard, p *part, now stint.Instant) {
	if p.slot, _ = t.table.Load().find(p.hash); p.slot == nil {
		return
	}
	p.epoch = s.epoch(p.slot.hold())
	w := p.epoch.writer
	if w == nil || !p.limit.alike(&w.limit) {
		return // it was reset, or two hashes met: this state is no use here
	}
	p.state.set(&p.slot.words)
	if p.limit.log != nil {
		p.state.log = t.logs[p.hash]
		p.limit.log.Adopt(&p.state.log, w.log, now)
	} else if w != p.limit.writer {
		p.limit.adopt(&p.state, &w.limit, now)
	}
}

// close writes the state of a part to its slot, if it changed, and lets go of it.
func (s *Store) close(t *shard, p *part) {
	if p.slot == nil {
		return
	}
	if p.changed {
		if p.epoch.isLog && p.limit.log == nil {
			s.dropLog(t, p.hash)
		}
		p.slot.set(&p.state.words)
		if before := p.epoch; before != p.limit.writer.epoch {
			p.epoch = p.limit.writer.epoch
			p.epoch.gain()
			s.lose(before)
		}
	}
	p.slot.release(p.epoch.id)
}

// grows reports whether the part's state needs memory: one that is new, or a log.
func (p *part) grows() bool { return p.changed && (p.slot == nil || p.limit.log != nil) }

// keep makes room for a state of an operation's parts. The operation holds no slot any
// more, as states are moved and evicted here.
func (s *Store) keep(t *shard, p *part, parts []part, now stint.Instant) {
	if !p.grows() {
		return
	}
	if slot, _ := t.table.Load().find(p.hash); slot == nil {
		if t.full() {
			s.makeRoom(t, parts, now)
		}
		e := p.limit.writer.epoch
		e.gain()
		t.table.Load().insert(p.hash, &p.state.words, e.id)
		t.used++
	}
	if p.limit.log != nil {
		s.keepLog(t, p.hash, p.state.log)
	}
}

// reset removes the state of a hash.
func (s *Store) reset(t *shard, hash uint64) {
	if slot, group := t.table.Load().find(hash); slot != nil {
		s.remove(t, slot, group, slot.hold())
	}
}

// remove drops the state of a slot in a group, which the caller holds and which is of the
// epoch with the id.
func (s *Store) remove(t *shard, slot *slot, group int, id uint32) {
	e := s.epoch(id)
	if e.isLog {
		s.dropLog(t, slot.hash.Load())
	}
	t.table.Load().delete(slot, group)
	t.used--
	s.lose(e)
}

// full reports whether the table is to be rebuilt before another insertion.
func (t *shard) full() bool { return int(t.used) >= t.most() }

// most is how many states the table is to hold at most.
func (t *shard) most() int { return most(len(t.table.Load().groups)) }

// most is how many states a table of so many groups is to hold at most.
func most(groups int) int { return groups * groupSlots * fullNum / fullDen }

// rebuild gives the shard's table so many groups, which fit what it holds. The slots of
// the old one stay held, so that nobody decides on what is no longer there.
func (s *Store) rebuild(t *shard, groups int) {
	old, table := t.table.Load(), newTable(groups)
	for group := range old.groups {
		for i := range groupSlots {
			slot := &old.groups[group][i]
			if hash := slot.hash.Load(); hash != 0 {
				id := slot.hold()
				table.insert(hash, &slot.words, id)
			}
		}
	}
	t.table.Store(table)
	t.hand = 0
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
				s.remove(t, slot, group, id)
				s.reclaimed.Add(1)
				continue // what had passed may have moved here
			}
			slot.release(id)
		}
		i++
	}
}

// makeRoom lets one more state in, of an operation with the parts: by dropping the
// worthless, by growing, or at the cap by evicting. A pass over the shard is made only
// where it may grow, so that the passes stay rare; at the cap a sample decides.
func (s *Store) makeRoom(t *shard, parts []part, now stint.Instant) {
	grown := int64(size(t.used+1)-len(t.table.Load().groups)) * groupBytes
	if s.bytes.Load()+grown > s.maxBytes && s.hasShare(t) && s.evict(t, parts, now) {
		return
	}
	s.purge(t, now)
	if int(t.used) < t.most()*3/4 {
		return // enough was worthless; leave the size as it is
	}
	s.rebuild(t, size(t.used+1))
}

// life returns when a state whose slot is held, and which is of the epoch with the id,
// equals an untouched one, and how long it was to live when it was written.
func (s *Store) life(t *shard, slot *slot, id uint32) (ends stint.Instant, life int64) {
	e := s.epoch(id)
	if e.writer == nil {
		return long, 0
	}
	var st state
	st.set(&slot.words)
	if e.isLog {
		st.log = t.logs[slot.hash.Load()]
	}
	return e.writer.life(&st)
}

// long is when a state that was reset has equalled an untouched one: always.
const long = stint.Instant(math.MinInt64 / 2)

// isWorthless reports whether a state has equalled an untouched one for longer than
// the margin, so that dropping it changes nothing.
func isWorthless(ends stint.Instant, life int64, now stint.Instant) bool {
	return ends+stint.Instant(algorithm.Margin(life)) < now
}

// logBytes is what a log takes beside its records: its entry in the shard's map.
const logBytes = 64

// keepLog puts a log in the shard's map.
func (s *Store) keepLog(t *shard, hash uint64, log algorithm.Log) {
	if t.logs == nil {
		t.logs = map[uint64]algorithm.Log{}
	}
	grown := int64(log.Records()) * algorithm.RecordBytes
	if old, known := t.logs[hash]; known {
		grown -= int64(old.Records()) * algorithm.RecordBytes
	} else {
		grown += logBytes
	}
	t.logs[hash] = log
	s.bytes.Add(grown)
}

func (s *Store) dropLog(t *shard, hash uint64) {
	log := t.logs[hash]
	s.bytes.Add(-logBytes - int64(log.Records())*algorithm.RecordBytes)
	delete(t.logs, hash)
	if len(t.logs) == 0 {
		t.logs = nil // a map does not shrink
	}
}

// sweepNow sweeps, if that is due. So that deciding writes nothing that all share,
// it is paced by time: a state becomes worthless by time alone.
func (s *Store) sweepNow(now stint.Instant) {
	// A clock that was set back makes the difference negative, which is due as well.
	if last := s.swept.Load(); uint64(int64(now)-last) >= sweepEvery {
		s.sweep(now, last)
	}
}

// sweep looks at a few groups of a shard, another one each time, and drops what is
// worthless. Of those who saw when the last sweep was, one sweeps.
func (s *Store) sweep(now stint.Instant, last int64) {
	if !s.swept.CompareAndSwap(last, int64(now)) {
		return
	}
	t := &s.shards[s.sweeps.Add(1)%shardCount]
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	for range min(sweepGroups, len(t.table.Load().groups)) {
		if int(t.hand) >= len(t.table.Load().groups) {
			t.hand = 0
			s.shrink(t)
		}
		s.reclaim(t, int(t.hand), now)
		t.hand++
	}
}

// shrink gives back the memory of a table that has emptied.
func (s *Store) shrink(t *shard) {
	if groups := size(t.used + 1); groups*4 < len(t.table.Load().groups) {
		s.rebuild(t, groups)
	}
}
