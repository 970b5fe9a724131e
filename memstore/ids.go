package memstore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
)

// idShards is how many parts the ids have.
const idShards = 64

// idShard is some of the ids, in two generations: what is written moves to the newer one, and the
// older one is dropped as a whole once everything in it is forgotten. So nobody looks for what is
// to be forgotten. A hold is live or remembered in exactly one generation; find looks in both.
type idShard struct {
	mu        sync.Mutex
	cur, prev ids
	// turn is from when on a write makes cur the older one.
	turn stint.Instant
	_    [64]byte
}

type ids struct {
	holds map[string]*hold
	// forgotten is from when on all of them are.
	forgotten stint.Instant
	bytes     int64
	of        map[*holder]int64 // the same by holder; no entry is 0
	// How many stayed when ends were last forgotten before their time, and when that was.
	live   int
	purged stint.Instant
	// The same of what was forgotten at its time.
	left   int
	looked stint.Instant
}

// A holder is a policy, whose ids have a share of the memory for ids at most: so whoever reserves
// without end by one policy leaves room for the others.
type holder struct {
	bytes    atomic.Int64 // of its ids
	versions int          // of its limits; the store is locked
}

// holderShare is how many times as much memory as is free for ids those of one holder may have. One
// alone may have 3/4 of it, two 3/7 each, and what is free is never less than a third of what one has.
const holderShare = 3

// find finds a hold, or what is remembered of it.
func (s *idShard) find(id string) *hold {
	if h := s.cur.holds[id]; h != nil {
		return h
	}
	return s.prev.holds[id]
}

// put keeps a hold, in place of what was found under its ID, which may be itself; nil: nothing.
func (s *Store) put(ids *idShard, old, h *hold, now stint.Instant) {
	forgotten := h.Forgotten()
	if now >= ids.turn && now >= ids.prev.forgotten {
		s.addIDBytes(-ids.prev.bytes)
		ids.prev.discount()
		ids.prev, ids.cur, ids.turn = ids.cur, newIDs(), forgotten
	} else {
		s.forget(&ids.cur, now)
	}
	if ids.cur.holds == nil {
		ids.cur = newIDs()
	}
	before := ids.cur.bytes + ids.prev.bytes
	switch {
	case old == nil:
		ids.cur.add(h)
	case old == h && ids.cur.holds[h.ID] == h:
		ids.cur.recount(h)
	default:
		ids.prev.remove(h.ID)
		ids.cur.remove(h.ID)
		ids.cur.add(h)
	}
	ids.cur.forgotten = max(ids.cur.forgotten, forgotten)
	s.addIDBytes(ids.cur.bytes + ids.prev.bytes - before)
	s.idsFull(ids, h.holder, now)
}

// forget takes out of a generation what is forgotten, when there are twice as many as it left the last time. So a few
// holds that are long, as those of a queue may be, don't have the others remembered as long.
func (s *Store) forget(i *ids, now stint.Instant) {
	const fewest, pause = 16, time.Minute // a generation of short holds alone is over soon
	if len(i.holds) < 2*i.left+fewest || now < i.looked.Add(pause) {
		return
	}
	before := i.bytes
	for id, h := range i.holds {
		if now > h.Forgotten() {
			i.remove(id)
		}
	}
	i.left, i.looked = len(i.holds), now
	s.addIDBytes(i.bytes - before)
}

// idsFull reports whether the ids have half of the memory, or those of a holder its share of that, so
// that no more are taken up, after it has tried to forget ends: everybody's, or the holder's.
func (s *Store) idsFull(ids *idShard, of *holder, now stint.Instant) bool {
	free := s.maxBytes/2 - s.idBytes.Load()
	if of.bytes.Load() <= holderShare*free {
		return false
	}
	whose := of
	if free < 0 {
		whose = nil
	}
	s.purgeEnds(&ids.prev, whose, now)
	s.purgeEnds(&ids.cur, whose, now)
	return of.bytes.Load() > holderShare*(s.maxBytes/2-s.idBytes.Load())
}

// newIDs makes a generation without ids.
func newIDs() ids { return ids{holds: map[string]*hold{}, of: map[*holder]int64{}} }

// add keeps an id, and counts its bytes as they are now.
func (i *ids) add(h *hold) {
	h.counted = h.bytes()
	i.holds[h.ID] = h
	i.count(h.holder, h.counted)
}

// recount counts the bytes of an id that is kept as they are now.
func (i *ids) recount(h *hold) {
	before := h.counted
	h.counted = h.bytes()
	i.count(h.holder, h.counted-before)
}

// count counts bytes of a holder's ids.
func (i *ids) count(of *holder, n int64) {
	i.bytes += n
	of.bytes.Add(n)
	if i.of[of] += n; i.of[of] == 0 {
		delete(i.of, of)
	}
}

// discount takes the ids, which are dropped as a whole, off their holders.
func (i *ids) discount() {
	for of, n := range i.of {
		of.bytes.Add(-n)
	}
}

// remove takes an id out.
func (i *ids) remove(id string) {
	h := i.holds[id]
	if h == nil {
		return
	}
	delete(i.holds, id)
	i.count(h.holder, -h.counted)
}

// addIDBytes counts bytes of ids, which are bytes of the store, too.
func (s *Store) addIDBytes(n int64) {
	s.bytes.Add(n)
	s.idBytes.Add(n)
}

// purgeEnds forgets the ends of a generation before their time, or, unless it is nil, those of a holder, so that ids
// leave at least half of the memory to states, and the holder's leave room to others'. What is live stays. It counts
// them as evicted. It waits until there are as many more as stayed the last time, or a second, so that a put stays
// cheap.
func (s *Store) purgeEnds(i *ids, of *holder, now stint.Instant) {
	const fewest, pause = 16, time.Second
	if len(i.holds) < 2*i.live+fewest && now < i.purged.Add(pause) {
		return
	}
	live := newIDs()
	live.forgotten = i.forgotten
	for _, h := range i.holds {
		if end, _ := h.Ended(now); end == decide.Live || of != nil && of != h.holder {
			live.add(h)
		} else {
			s.evictions.Add(1)
		}
	}
	live.live, live.purged = len(live.holds), now
	live.left, live.looked = i.left, i.looked
	s.addIDBytes(live.bytes - i.bytes)
	i.discount()
	*i = live
}
