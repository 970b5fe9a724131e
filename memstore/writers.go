package memstore

import (
	"runtime"
	"sync/atomic"

	"github.com/stint-go/stint"
)

// writing is what has an id: a limit's parameters, and its policy's name, by which the
// states of a policy are found.
type writing struct {
	parameters stint.Limit // without the name
	policy     string
}

// writer is how slots with an id are read: a limit as the plan that was the first to have
// it had it. It is there as long as a plan has the id, which may write it, or a slot has it.
// A plan is gone when nothing can reach its limits any more, which the garbage collector
// tells. After that the slots with the id only become fewer; the last one to go lets go of
// the writer, and another one gets its id.
type writer struct {
	limit
	writing  writing
	slots    atomic.Int64 // with the id
	orphaned atomic.Bool  // whether plans is 0
	plans    int          // limits of plans with the id; the store is locked
}

// writerBytes is about what a writer takes beside its policy's name.
const writerBytes = 512

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
		w.writer = w
		w.id = s.place(w)
		s.known[key] = w
		s.bytes.Add(key.bytes())
	}
	w.plans++
	w.orphaned.Store(false)
	l.id, l.writer = w.id, w
}

// place gives the writer an id that no other has. Nobody reads what was in its place: no
// slot has the id. The store is locked.
func (s *Store) place(w *writer) (id uint32) {
	writers := *s.writers.Load()
	if last := len(s.free) - 1; last >= 0 {
		id, s.free = s.free[last], s.free[:last]
		writers[id-1] = w
		return id
	}
	writers = append(writers, w)
	s.writers.Store(&writers)
	return uint32(len(writers))
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
	if w.plans > 0 || w.slots.Load() > 0 || s.known[w.writing] != w {
		return
	}
	delete(s.known, w.writing)
	(*s.writers.Load())[w.id-1] = nil
	s.free = append(s.free, w.id)
	s.bytes.Add(-w.writing.bytes())
}

// gain counts a slot that is about to have the writer's id.
func (w *writer) gain() { w.slots.Add(1) }

// lose counts a slot off that has the writer's id no more. Either this finds that the plans
// are gone, or who lets the last of them go finds that the slots are.
func (s *Store) lose(w *writer) {
	if w.slots.Add(-1) == 0 && w.orphaned.Load() {
		s.mu.Lock()
		s.discard(w)
		s.mu.Unlock()
	}
}
