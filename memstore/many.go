package memstore

import (
	"runtime"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

// part is one limit's part in an operation.
type part struct {
	limit   *limit
	hash    uint64
	permits int64
	slot    *slot  // held while the operation is decided; nil: there is no state yet
	epoch   *epoch // of the slot's state
	state   state
	changed bool
}

// roomy is how many limits an operation may have before deciding it allocates.
const roomy = 8

// decideMany carries out an operation on several limits, atomically: the shards of
// all its keys are locked, in order, until it is done.
func (s *Store) decideMany(op *stint.Op, now stint.Instant) stint.Decision {
	var (
		partsBuffer [roomy]part
		outsBuffer  [roomy]stint.Outcome
		locksBuffer [roomy]uint64
	)
	parts := s.gather(&op.Claim, partsBuffer[:0])
	for i := range op.And {
		parts = s.gather(&op.And[i], parts)
	}
	outs := outsBuffer[:]
	if len(parts) > roomy {
		outs = make([]stint.Outcome, len(parts))
	}
	outs = outs[:len(parts)]

	locks := locksBuffer[:0]
	for i := range parts {
		locks = append(locks, parts[i].hash>>(64-shardBits))
	}
	slices.Sort(locks)
	locks = slices.Compact(locks)
	for _, i := range locks {
		s.shards[i].mu.Lock()
	}
	if op.Verb == stint.Reset {
		s.resetAll(parts, outs)
	} else {
		s.applyAll(op, parts, outs, now)
	}
	for _, i := range locks {
		s.shards[i].mu.Unlock()
	}
	grows := false
	for i := range parts {
		runtime.KeepAlive(parts[i].limit) // until the slot is counted
		grows = grows || parts[i].grows()
	}
	if grows && s.over() {
		s.fit(parts, now)
	}
	s.sweepNow(now)
	if op.Each != nil {
		copy(op.Each, outs)
	}
	return stint.Combine(outs, now)
}

func (s *Store) gather(claim *stint.Claim, parts []part) []part {
	plan := s.plan(claim.Policy)
	for i := range plan.limits {
		l := &plan.limits[i]
		hash := s.hash(claim.Key, l)
		for taken(parts, hash) {
			hash++ // a part waits for its slot, and must not wait for another part
		}
		parts = append(parts, part{limit: l, hash: hash, permits: claim.Permits})
	}
	return parts
}

// taken reports whether a part has the hash.
func taken(parts []part, hash uint64) bool {
	for i := range parts {
		if parts[i].hash == hash {
			return true
		}
	}
	return false
}

func (s *Store) resetAll(parts []part, outs []stint.Outcome) {
	for i := range parts {
		s.reset(s.shard(parts[i].hash), parts[i].hash)
		parts[i].limit.fresh(&outs[i])
	}
}

// applyAll decides first what all limits say to it, then carries it out on all. All
// slots are held until then; who sees one part done, and looks for another that was
// not there, waits for the shard's lock.
func (s *Store) applyAll(op *stint.Op, parts []part, outs []stint.Outcome, now stint.Instant) {
	action := algorithm.ActionOf(op.Verb)
	look := action
	if action == algorithm.Take {
		look = algorithm.Peek
	}
	allowed := true
	for i := range parts {
		p := &parts[i]
		s.open(s.shard(p.hash), p, now)
		p.changed = p.limit.apply(look, &p.state, now, p.permits, &outs[i])
		allowed = allowed && outs[i].Allowed
	}
	for i := range parts {
		p := &parts[i]
		switch {
		case allowed && action == algorithm.Take:
			p.changed = p.limit.apply(algorithm.Take, &p.state, now, p.permits, &outs[i])
		case op.Verb == stint.Take && !allowed && p.limit.countDenied:
			p.changed = p.limit.apply(algorithm.Deny, &p.state, now, p.permits, &outs[i])
		}
		if op.Each != nil {
			outs[i].GrowsAfter = p.limit.grows(&p.state, now)
		}
		s.close(s.shard(p.hash), p)
	}
	for i := range parts {
		s.keep(s.shard(parts[i].hash), &parts[i], parts, now)
	}
}
