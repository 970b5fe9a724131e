package memstore

import (
	"runtime"
	"sync/atomic"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
)

// slot is one client's state under one limit. It holds no pointer, so the garbage
// collector does not look into tables.
//
// Its epoch is its lock. Who swaps the id for 0 holds the slot, and alone reads and
// writes its words until the id is put back. An empty slot stays 0, and so does one
// of a table that was replaced: nobody can take hold of them. Writing the hash
// needs the shard's lock as well.
type slot struct {
	hash atomic.Uint64 // 0: empty
	words
}

// words are the numbers of a state, as a slot has them. A sliding window log is in the shard's logs instead, and a
// slot of it has none.
type words struct {
	at     stint.Instant
	second int64
	third  uint32
	epoch  atomic.Uint32 // the id of the epoch that the state is of
}

// numbers and set read and write them, and not the epoch.
func (w *words) numbers() algorithm.Numbers {
	return algorithm.Numbers{At: w.at, Second: w.second, Third: int64(w.third)}
}

func (w *words) set(n algorithm.Numbers) { w.at, w.second, w.third = n.At, n.Second, uint32(n.Third) }

// tryHold takes hold of the slot if it is that of the hash, and its state is of the epoch
// with the id. A slot is held for tens of nanoseconds, so it is worth trying
// a few times, each after a longer pause. Of two cores that want one slot, the one
// that has it goes on meanwhile with what its cache holds.
func (s *slot) tryHold(hash uint64, id uint32) bool {
	for pause := 512; !s.epoch.CompareAndSwap(id, 0); pause *= 2 {
		if found := s.epoch.Load(); pause > 8192 || found != 0 && found != id {
			return false
		}
		for range pause {
		}
	}
	if s.hash.Load() != hash { // another state has moved in
		s.release(id)
		return false
	}
	return true
}

// hold takes hold of a slot that is not empty and returns the id. The shard is
// locked, so that the slot stays what it is; who else has it is about to let go.
func (s *slot) hold() (id uint32) {
	for {
		if id = s.epoch.Load(); id != 0 && s.epoch.CompareAndSwap(id, 0) {
			return id
		}
		runtime.Gosched()
	}
}

// release lets go of the slot. Its state is now of the epoch with the id.
func (s *slot) release(id uint32) { s.epoch.Store(id) }

// fill makes an empty slot that of a state.
func (s *slot) fill(hash uint64, n algorithm.Numbers, id uint32) {
	s.set(n)
	s.hash.Store(hash)
	s.release(id)
}
