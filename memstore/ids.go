package memstore

import (
	"sync"

	"github.com/stint-go/stint"
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
	// How many were live when ends were last forgotten before their time, and when that was.
	live   int
	purged stint.Instant
}

// find finds a hold, or what is remembered of it.
func (s *idShard) find(id string) *hold {
	if h := s.cur.holds[id]; h != nil {
		return h
	}
	return s.prev.holds[id]
}

// put keeps a hold.
func (s *Store) put(ids *idShard, h *hold, now stint.Instant) {
	forgotten := h.forgotten()
	if now >= ids.turn && now >= ids.prev.forgotten {
		s.addIDBytes(-ids.prev.bytes)
		ids.prev, ids.cur, ids.turn = ids.cur, newIDs(), forgotten
	}
	if ids.cur.holds == nil {
		ids.cur = newIDs()
	}
	before := ids.cur.bytes + ids.prev.bytes
	ids.prev.remove(h.id)
	ids.cur.remove(h.id)
	ids.cur.add(h)
	ids.cur.forgotten = max(ids.cur.forgotten, forgotten)
	s.addIDBytes(ids.cur.bytes + ids.prev.bytes - before)
	s.idsFull(ids, now)
}

// idsFull reports whether the ids have half of the memory, so that no more are taken up, after it
// has tried to forget ends.
func (s *Store) idsFull(ids *idShard, now stint.Instant) bool {
	if s.idBytes.Load() <= s.maxBytes/2 {
		return false
	}
	s.purgeEnds(&ids.prev, now)
	s.purgeEnds(&ids.cur, now)
	return s.idBytes.Load() > s.maxBytes/2
}

// newIDs makes a generation without ids.
func newIDs() ids { return ids{holds: map[string]*hold{}} }

// add keeps an id, and counts its bytes as they are now.
func (i *ids) add(h *hold) {
	h.counted = h.bytes()
	i.holds[h.id] = h
	i.bytes += h.counted
}

// remove takes an id out.
func (i *ids) remove(id string) {
	h := i.holds[id]
	if h == nil {
		return
	}
	delete(i.holds, id)
	i.bytes -= h.counted
}

// addIDBytes counts bytes of ids, which are bytes of the store, too.
func (s *Store) addIDBytes(n int64) {
	s.bytes.Add(n)
	s.idBytes.Add(n)
}

// purgeEnds forgets the ends of a generation before their time, so that ids leave at least half of the memory to
// states. What is live stays. It counts them as evicted. It waits until there are as many more as were live
// at the last time, or a second, so that a put stays cheap.
func (s *Store) purgeEnds(i *ids, now stint.Instant) {
	const fewest = 16
	if len(i.holds) < 2*i.live+fewest && now < i.purged.Add(fullWait) {
		return
	}
	live := newIDs()
	live.forgotten = i.forgotten
	for _, h := range i.holds {
		if end, _ := h.ended(now); end == stint.HoldLive {
			live.add(h)
		} else {
			s.evictions.Add(1)
		}
	}
	live.live, live.purged = len(live.holds), now
	s.addIDBytes(live.bytes - i.bytes)
	*i = live
}
