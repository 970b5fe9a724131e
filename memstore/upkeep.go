package memstore

import (
	"hash/maphash"
	"math"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

const (
	// sweepEvery decisions in a shard, sweepSlots slots of some shard are looked at.
	sweepEvery, sweepSlots = 128, 32
	// sample is how many states an eviction chooses from.
	sample = 8
)

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

// load reads the state at a place, as l reads it.
func (s *Store) load(t *shard, at int, l *limit, now stint.Instant) (st state, found bool) {
	st.words = t.slots[at].words
	writer := l
	if st.limit != l.id {
		if writer = s.writer(st.limit); !l.alike(writer) {
			s.remove(t, at) // two hashes met, and this state is no use to l
			return state{}, false
		}
	}
	if l.log != nil {
		st.log = t.logs[t.slots[at].hash]
		l.log.Adopt(&st.log, writer.log, now)
	} else if writer != l {
		l.adopt(&st, writer, now)
	}
	return st, true
}

// store writes a state that may be new to the table, or whose log may have grown.
func (s *Store) store(t *shard, hash uint64, l *limit, st *state, now stint.Instant) {
	at, found := t.find(hash)
	if !found && t.full() {
		s.makeRoom(t, now)
		at, _ = t.find(hash)
	}
	st.limit = l.id
	if l.log != nil {
		s.keepLog(t, hash, st.log)
	}
	if found {
		t.slots[at].words = st.words
	} else {
		for !t.insert(at, slot{hash, st.words}) {
			s.rebuild(t, t.used/8+tail)
			at, _ = t.find(hash)
		}
	}
	if l.log != nil && s.bytes.Load() > s.maxBytes {
		s.evictLogs(t, hash, now)
	}
}

// writer is the limit with the id.
func (s *Store) writer(id uint32) *limit { return (*s.writers.Load())[id] }

// worthless reports whether the state at a place has equalled an untouched one for
// longer than the margin, so that dropping it changes nothing.
func (s *Store) worthless(t *shard, at int, now stint.Instant) bool {
	ends, life := s.life(t, at)
	return ends+stint.Instant(algorithm.Margin(life)) < now
}

func (s *Store) life(t *shard, at int) (ends stint.Instant, life int64) {
	st := state{words: t.slots[at].words}
	l := s.writer(st.limit)
	if l.log != nil {
		st.log = t.logs[t.slots[at].hash]
	}
	return l.life(&st)
}

// remove drops the state at a place.
func (s *Store) remove(t *shard, at int) {
	if s.writer(t.slots[at].limit).log != nil {
		s.dropLog(t, t.slots[at].hash)
	}
	t.delete(at)
}

// evict drops, of a few states sampled, the one nearest to untouched. One that was
// worthless already is reclaimed and not counted as evicted.
func (s *Store) evict(t *shard, now stint.Instant) {
	if t.used == 0 {
		return
	}
	nearest, least := -1, stint.Instant(math.MaxInt64)
	at := int(t.hand)
	for seen := 0; seen < sample && seen < int(t.used); at++ {
		if at >= len(t.slots) {
			at = 0
		}
		if t.slots[at].hash == 0 {
			continue
		}
		seen++
		if ends, _ := s.life(t, at); ends < least {
			nearest, least = at, ends
		}
	}
	t.hand = uint32(at)
	s.drop(t, nearest, now)
}

// drop removes a state for want of memory, and counts it.
func (s *Store) drop(t *shard, at int, now stint.Instant) {
	if s.worthless(t, at, now) {
		s.reclaimed.Add(1)
	} else {
		s.evictions.Add(1)
	}
	s.remove(t, at)
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

// evictLogs drops logs of a shard, nearest to untouched of a sample first, until
// memory is below the cap; the one of the given hash, just written, goes last.
func (s *Store) evictLogs(t *shard, hash uint64, now stint.Instant) {
	for s.bytes.Load() > s.maxBytes && len(t.logs) > 0 {
		victim, least, seen := hash, stint.Instant(math.MaxInt64), 0
		for other := range t.logs {
			if other == hash {
				continue
			}
			at, _ := t.find(other)
			if ends, _ := s.life(t, at); ends < least {
				victim, least = other, ends
			}
			if seen++; seen == sample {
				break
			}
		}
		at, _ := t.find(victim)
		s.drop(t, at, now)
	}
}

// due counts a decision and reports whether a sweep is due. The shard is locked.
func (t *shard) due() bool {
	t.turns++
	return t.turns%sweepEvery == 0
}

// sweepNext looks at a few slots of a shard, another one each time, and drops what
// is worthless.
func (s *Store) sweepNext(now stint.Instant) {
	t := &s.shards[s.sweeps.Add(1)%shardCount]
	if !t.mu.TryLock() {
		return
	}
	defer t.mu.Unlock()
	at := int(t.hand)
	for range min(sweepSlots, len(t.slots)) {
		if at >= len(t.slots) {
			at = 0
			s.shrink(t)
		}
		if t.slots[at].hash != 0 && s.worthless(t, at, now) {
			s.remove(t, at)
			s.reclaimed.Add(1)
			continue
		}
		at++
	}
	t.hand = uint32(at)
}

// shrink gives back the memory of a table that has emptied.
func (s *Store) shrink(t *shard) {
	if size(t.used+1)*4 < len(t.slots) {
		s.rebuild(t, 1)
	}
}
