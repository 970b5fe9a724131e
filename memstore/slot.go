package memstore

import (
	"runtime"
	"sync/atomic"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
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

// words is the state of a fixed-size algorithm. A sliding window log is in the shard's logs
// instead. What they are, by algorithm:
//
//	               a        b                   c
//	buckets        Due      Last                Frac
//	fixed window   Start    End                 Count
//	counter        Start    Previous, Current   -
type words struct {
	a, b  uint64
	c     uint32
	epoch atomic.Uint32 // of a slot: the id of the epoch that the state is of
}

// set copies the state, and not the epoch.
func (w *words) set(from *words) { w.a, w.b, w.c = from.a, from.b, from.c }

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
func (s *slot) fill(hash uint64, w *words, id uint32) {
	s.set(w)
	s.hash.Store(hash)
	s.release(id)
}

// state is a state at work: read from a slot, changed, written back.
type state struct {
	words
	log     algorithm.Log
	held    int64 // permits
	changed *changed
}

// tokens is the state of a token bucket, with what is held of it.
func (st *state) tokens() algorithm.BucketState {
	b := st.bucket()
	b.Held = st.held
	return b
}

// bucket, window and counter are the words as an algorithm's state, and the setters below write
// them back. What is held stands elsewhere.
//
// bucket and setBucket read and write a bucket's state: when what it holds is due, as microseconds
// and a fraction, and its last change. The other pairs do the same for a window and for a counter,
// whose two counts share a word.
func (w *words) bucket() algorithm.BucketState {
	return algorithm.BucketState{Due: stint.Instant(w.a), Frac: int64(w.c), Last: stint.Instant(w.b)}
}

func (w *words) setBucket(b *algorithm.BucketState) {
	w.a, w.b, w.c = uint64(b.Due), uint64(b.Last), uint32(b.Frac)
}

func (w *words) window() algorithm.WindowState {
	return algorithm.WindowState{Start: stint.Instant(w.a), End: stint.Instant(w.b), Count: int64(w.c)}
}

func (w *words) setWindow(s *algorithm.WindowState) {
	w.a, w.b, w.c = uint64(s.Start), uint64(s.End), uint32(s.Count)
}

func (w *words) counter() algorithm.CounterState {
	return algorithm.CounterState{Start: stint.Instant(w.a), Previous: int64(w.b >> 32), Current: int64(w.b & (1<<32 - 1))}
}

func (w *words) setCounter(c *algorithm.CounterState) {
	w.a, w.b = uint64(c.Start), uint64(c.Previous)<<32|uint64(c.Current)
}
