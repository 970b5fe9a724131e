package memstore

import (
	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/keyhash"
)

// hash identifies a key under a limit. Its upper bits choose the shard and are of
// the key alone, so that all limits of one key are in one shard.
func (s *Store) hash(key string, l *limit) uint64 {
	return l.stateHash(s.keyHash(key))
}

func (s *Store) keyHash(key string) uint64 { return keyhash.String(s.seed, key) }

// stateHash is hash, of a key whose hash is known. It is never 0, which an empty slot has.
func (l *limit) stateHash(keyHash uint64) uint64 { return max(1, keyHash^l.tag) }

func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>(64-shardBits)] }

// epoch is the epoch with the id, which a slot that is held has.
func (s *Store) epoch(id uint32) *epoch { return (*s.epochs.Load())[id-1] }

// A place is where a state of an operation is.
type place struct {
	limit *limit
	key   string
	hash  uint64
	// slot is held while the operation is decided; nil: there is no state yet.
	slot  *slot
	epoch *epoch // of the slot's state
}

// hold holds the slot of a state, if there is one. The shard is locked.
func (s *Store) hold(t *shard, p *place) {
	if p.slot, _ = t.table.Load().find(p.hash); p.slot != nil {
		p.epoch = s.epoch(p.slot.hold())
	}
}

// load reads a state whose slot is held, as the limit reads it.
func (s *Store) load(t *shard, p *place, st *decide.State, now stint.Instant) {
	if p.slot == nil {
		return
	}
	version := p.epoch.version
	if version == nil && p.epoch.isHeld {
		s.dropHolding(t, p.hash, p.epoch.ended)
	}
	if version == nil || version.Algorithm() != p.limit.Algorithm() {
		return // it was reset, or two hashes met: this state is no use here
	}
	st.Numbers = p.slot.numbers()
	if p.limit.HasLog() {
		st.Log = t.logs[p.hash]
	}
	if p.epoch.isHeld {
		st.Holding = t.held[p.hash]
		st.Held = st.Holding.Permits()
	}
	if version != p.limit.version {
		st.Foreign = true
		p.limit.Adopt(&st.State, &version.Machine)
	}
	if st.Holding != nil {
		st.ExpireDue(&p.limit.Machine, &version.Machine, now)
	}
	p.limit.Read(&st.State, now)
}

// save writes a state to its slot, if it changed, and lets go of the slot.
func (s *Store) save(t *shard, p *place, st *decide.State) {
	if p.slot == nil {
		return
	}
	if st.Changed {
		if p.epoch.isLog && !p.limit.HasLog() {
			s.dropLog(t, p.hash)
		}
		if p.epoch.isHeld || st.Holding != nil {
			s.saveHolding(t, p, st)
		}
		p.slot.set(st.Numbers)
		if before, after := p.epoch, s.epochOf(p.limit.version, st.Holding != nil); before != after {
			p.epoch = after
			p.epoch.addSlot()
			s.removeSlot(before)
		}
	}
	p.slot.release(p.epoch.id)
}

// needsMemory reports whether the state may need more memory: a new one, or a log.
func (p *place) needsMemory(st *decide.State) bool {
	return st.Changed && (p.slot == nil || p.limit.HasLog())
}

// insertNew inserts a state that has no slot yet, and keeps a log. The operation holds no
// slot any more, as states are moved and evicted here, but none of its own.
func (s *Store) insertNew(t *shard, p *place, st *decide.State, own []place, now stint.Instant) {
	if !p.needsMemory(st) {
		return
	}
	if slot, _ := t.table.Load().find(p.hash); slot == nil {
		if t.full() {
			s.makeRoom(t, own, now)
		}
		if st.Holding != nil {
			s.saveHolding(t, p, st)
		}
		e := s.epochOf(p.limit.version, st.Holding != nil)
		e.addSlot()
		t.table.Load().insert(p.hash, st.Numbers, e.id)
		t.used++
	}
	if p.limit.HasLog() {
		s.keepLog(t, p.hash, st.Log.Kept())
	}
}

// reset removes the state of a hash.
func (s *Store) reset(t *shard, hash uint64, now stint.Instant) {
	if slot, group := t.table.Load().find(hash); slot != nil {
		s.remove(t, slot, group, slot.hold(), now)
	}
}

// remove drops the state of a slot in a group, which the caller holds and which is of the
// epoch with the id.
func (s *Store) remove(t *shard, slot *slot, group int, id uint32, now stint.Instant) {
	e := s.epoch(id)
	if e.isLog {
		s.dropLog(t, slot.hash.Load())
	}
	if e.isHeld {
		if e.version == nil {
			now = e.ended
		}
		s.dropHolding(t, slot.hash.Load(), now)
	}
	t.table.Load().delete(slot, group)
	t.used--
	s.removeSlot(e)
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

// dropLog takes a log and its memory off the books.
func (s *Store) dropLog(t *shard, hash uint64) {
	log := t.logs[hash]
	s.bytes.Add(-logBytes - int64(log.Records())*algorithm.RecordBytes)
	delete(t.logs, hash)
	if len(t.logs) == 0 {
		t.logs = nil // a map does not shrink
	}
}
