package memstore

import (
	"cmp"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/decide"
)

// What is held of a state stands beside its slot, in the shard's map, as a log does; the slot's epoch says that there
// is something.

// saveHolding makes what load found out come true: what was due has expired, and what was reset is not held any more.
func (s *Store) saveHolding(t *shard, p *place, st *decide.State) {
	if known := t.held[p.hash]; known != nil && known != st.Holding {
		s.dropHolding(t, p.hash, longAgo) // of another limit, whose hash is the same
	}
	h := st.Holding
	switch {
	case h == nil:
	case !st.Settle():
		s.dropHolding(t, p.hash, longAgo)
	case t.held == nil:
		t.held = map[uint64]*decide.Holding{}
		fallthrough
	default:
		t.held[p.hash] = h
	}
}

// fewHeld is of how many states a map of a shard may have been that is kept once nothing is held.
const fewHeld = 8

// dropHolding lets go of what was held of a state that is no more since an instant. What had expired by then has; the
// rest is gone.
func (s *Store) dropHolding(t *shard, hash uint64, at stint.Instant) {
	h := t.held[hash]
	if h == nil {
		return
	}
	h.Release(at)
	t.mostHeld = max(t.mostHeld, len(t.held))
	if delete(t.held, hash); len(t.held) == 0 && t.mostHeld > fewHeld {
		t.held, t.mostHeld = nil, 0 // a map does not shrink
	}
}

// Wake tells when permits come back, see [stint.Store]: of holds that end, and of resets.
func (s *Store) Wake(key string, policy *stint.Policy, wake func()) (stop func()) {
	plan := s.plan(policy)
	if plan.fault != nil {
		return func() {} // nothing is decided
	}
	hashes := make([]uint64, len(plan.limits))
	for i := range hashes {
		hashes[i] = s.hash(key, &plan.limits[i])
	}
	return s.waiters.Add(hashes, wake)
}

// wake tells those who wait for one of the states.
func (s *Store) wake(places []place) {
	for i := range places {
		s.waiters.Wake(places[i].hash)
	}
}

// list carries out a List.
func (s *Store) list(op *stint.Op) (stint.Decision, error) {
	o, err := s.begin(op)
	if err != nil {
		return stint.Decision{}, err
	}
	defer s.operations.Put(o)
	s.lock(o)
	defer s.unlock(o)
	s.loadAll(o)
	var list []stint.Hold
	for i := range o.places {
		list = o.States[i].List(list, i, len(o.places), bounds.MaxListed)
		s.save(s.shard(o.places[i].hash), &o.places[i], &o.States[i])
	}
	slices.SortStableFunc(list, func(a, b stint.Hold) int { return cmp.Compare(a.ExpiresAt, b.ExpiresAt) })
	*op.Extra.Live = list
	return stint.Decision{Allowed: true, At: o.Now}, nil
}
