package memstore

import (
	"runtime"
	"sync/atomic"

	"github.com/stint-go/stint"
)

// writing is what a writer is made for: a limit's parameters, and its policy's name, by
// which the states of a policy are reset.
type writing struct {
	parameters stint.Limit // without the name
	policy     string
}

// writer is how the states of an epoch are read: a limit as the plan that was the first to
// have it had it. It is there as long as a plan has it, which may write, or a slot is of its
// epoch. A plan is gone when nothing can reach its limits any more, which the garbage
// collector tells. After that the slots of the epoch only become fewer; the last one to go
// lets go of the writer, and another one gets the epoch's id.
type writer struct {
	limit
	writing  writing
	id       atomic.Uint32 // of its epoch: marks the slots
	epoch    *epoch        // that it writes in; changes while all shards are locked
	orphaned atomic.Bool   // whether plans is 0
	plans    int           // limits of plans with the writer; the store is locked
}

// epoch is the states that a writer's limits have written since the last reset: the slots
// with an id. A reset ends the epoch if it has slots. What these hold is then worth nothing:
// it is not found, and goes as what is worthless goes. The last slot to go lets go of the
// epoch.
type epoch struct {
	id     uint32
	isLog  bool    // whether the states have logs
	writer *writer // nil: the epoch is over; changes while all shards are locked
	slots  atomic.Int64
}

const (
	// writerBytes is about what a writer takes, with its epoch, beside its policy's name.
	writerBytes = 512
	// epochBytes is about what an epoch takes that is over.
	epochBytes = 64
)

func (w *writing) bytes() int64 { return writerBytes + int64(len(w.policy)) }

// register gives the limit the writer of its parameters and its policy.
func (s *Store) register(parameters stint.Limit, l *limit) {
	parameters.Name, parameters.Lease = "", 0
	key := writing{parameters, l.policy}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.known[key]
	if w == nil {
		w = &writer{limit: *l, writing: key}
		s.begin(w)
		s.known[key] = w
		s.bytes.Add(key.bytes())
	}
	w.plans++
	w.orphaned.Store(false)
	l.writer = w
}

// begin gives the writer a new epoch, with an id that no other has. Nobody reads what was in
// its place: no slot has the id. The store is locked.
func (s *Store) begin(w *writer) {
	e := &epoch{isLog: w.log != nil, writer: w}
	epochs := *s.epochs.Load()
	if last := len(s.free) - 1; last >= 0 {
		e.id, s.free = s.free[last], s.free[:last]
		epochs[e.id-1] = e
	} else {
		epochs = append(epochs, e)
		e.id = uint32(len(epochs))
		s.epochs.Store(&epochs)
	}
	w.epoch = e
	w.id.Store(e.id)
}

// releaseAfter has the plan's writers released once nobody can decide by it any more: who
// does holds one of its limits.
func (s *Store) releaseAfter(p *plan) {
	writers := make([]*writer, len(p.limits))
	for i := range p.limits {
		writers[i] = p.limits[i].writer
	}
	runtime.AddCleanup(&p.limits[0], s.release, writers)
}

// release takes back what register gave the limits of a plan that is gone.
func (s *Store) release(writers []*writer) {
	for _, w := range writers {
		s.mu.Lock()
		if w.plans--; w.plans == 0 {
			w.orphaned.Store(true)
			s.discard(w)
		}
		s.mu.Unlock()
	}
}

// discard lets go of a writer of which there are neither plans nor slots. The store is
// locked.
func (s *Store) discard(w *writer) {
	if w.plans > 0 || w.epoch.slots.Load() > 0 || s.known[w.writing] != w {
		return
	}
	s.forget(w)
	s.leave(w.epoch)
}

// forget removes a writer, and keeps its epoch. The store is locked.
func (s *Store) forget(w *writer) {
	delete(s.known, w.writing)
	s.bytes.Add(-w.writing.bytes())
}

// leave lets go of an epoch that has no slots. The store is locked.
func (s *Store) leave(e *epoch) {
	(*s.epochs.Load())[e.id-1] = nil
	s.free = append(s.free, e.id)
}

// gain counts a slot that is about to be of the epoch.
func (e *epoch) gain() { e.slots.Add(1) }

// lose counts off a slot that left the epoch. Its shard is locked. If this was the last slot and
// the plans are gone, the writer is forgotten here; if plans remain, the last of them forgets it.
func (s *Store) lose(e *epoch) {
	left, w := e.slots.Add(-1), e.writer
	switch {
	case w == nil:
		s.past.Add(-1)
		if left == 0 {
			s.mu.Lock()
			s.leave(e)
			s.bytes.Add(-epochBytes)
			s.mu.Unlock()
		}
	case left == 0 && w.orphaned.Load():
		s.mu.Lock()
		s.discard(w)
		s.mu.Unlock()
	}
}
