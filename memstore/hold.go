package memstore

import (
	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/keyhash"
)

// hold is a reservation, and after its end what is remembered of it, with what the store has to know. Its shard of ids
// is locked while it is used.
type hold struct {
	decide.Hold
	holder *holder
	hashes []uint64  // of the states, in the order of the claims and their limits
	hash   [1]uint64 // of hashes, while there is one
	// counted is the bytes that it was counted with.
	counted int64
}

// holdBytes is about what a hold takes, beside its id and its parts; endBytes what is remembered of a part.
const holdBytes, endBytes = 240, 16

// bytes is about what the hold takes: after its end, without its parts.
func (h *hold) bytes() int64 {
	each := int64(decide.HeldBytes)
	if !h.IsLive() {
		each = endBytes
	}
	return holdBytes + int64(len(h.ID)) + each*int64(len(h.hashes))
}

// decideHold carries out a Reserve, a Commit, a Cancel or a Drop: with the id locked, and the shards of all its states.
func (s *Store) decideHold(op *stint.Op) (stint.Decision, error) {
	told := op.Hold()
	ids := &s.ids[keyhash.String(s.seed, told.ID)%idShards]
	ids.mu.Lock()
	defer ids.mu.Unlock()
	o, err := s.begin(op)
	if err != nil {
		return stint.Decision{}, err
	}
	defer s.operations.Put(o)
	s.lock(o)
	s.loadAll(o)
	old := ids.find(told.ID)
	h := old
	if h != nil && o.Now > h.Forgotten() {
		h = nil
	}
	o.Hold, o.Known, o.Fresh, o.Order, o.Full, o.MaxHolds = told, nil, nil, nil, false, s.maxHolds
	if h != nil {
		o.Known = &h.Hold
		o.mine = o.hashes(o.mine[:0])
		o.Order, o.Same = h.Order(o.mine, h.hashes, o.Ways)
	} else {
		if o.spare == nil {
			o.spare = new(hold)
		}
		o.Fresh = &o.spare.Hold
	}
	if h == nil && op.Verb == stint.VerbReserve && s.idsFull(ids, o.holder(), o.Now) {
		o.Full = true
		s.refused.Add(1)
	}
	d, err := o.Decide()
	s.saveAll(o)
	if err == nil && o.Known != nil {
		if h == nil {
			h, o.spare = o.spare, nil
			h.holder, h.hashes = o.holder(), o.hashes(h.hash[:0])
		}
		s.put(ids, old, h, o.Now)
	}
	s.unlock(o)
	s.finish(o.places, o.States, o.Now)
	if op.Verb != stint.VerbReserve {
		s.wake(o.places)
	}
	if op.Each != nil && err == nil {
		copy(op.Each, o.Outs)
	}
	return d, err
}

// hashes appends those of the states of an operation's limits to a list.
func (o *operation) hashes(list []uint64) []uint64 {
	for i := range o.Parts {
		list = append(list, o.places[o.Parts[i].State].hash)
	}
	return list
}

// holder is the policy that has the fewest bytes of ids: that of one client's own rule, where another
// rule is everybody's.
func (o *operation) holder() *holder {
	fewest := o.places[0].limit.version.holder
	for i := range o.places[1:] {
		if other := o.places[i+1].limit.version.holder; other.bytes.Load() < fewest.bytes.Load() {
			fewest = other
		}
	}
	return fewest
}
