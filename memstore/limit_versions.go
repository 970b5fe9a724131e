package memstore

import (
	"runtime"
	"sync/atomic"

	"github.com/stint-go/stint"
)

// versionKey is what a limit version is made for: a limit's parameters, and its policy's
// name, by which the states of a policy are reset.
type versionKey struct {
	parameters stint.Limit
	policy     string
}

// siblings are how many versions there are of one limit. While there are several, a token bucket is kept for longer
// than it takes to fill.
type siblings struct{ versions atomic.Int64 }

// limitVersion is a limit with certain parameters: the one that wrote the states of its
// epoch, and by which they are read. It exists as long as a plan has it, which may write, or
// a slot is of its epoch. A plan is gone when nothing can reach its limits any more, which the
// garbage collector tells. After that the slots of the epoch only become fewer. The last one
// to go drops the version, and another version gets the epoch's id.
type limitVersion struct {
	limit
	key      versionKey
	holder   *holder // its policy
	siblings *siblings
	id       atomic.Uint32 // of its epoch: marks the slots
	epoch    *epoch        // in which it writes; changes while all shards are locked
	held     *epoch        // the same, for states of which something is held; nil: there was none
	orphaned atomic.Bool   // whether plans is 0
	plans    int           // limits of plans with the version; the store is locked
}

// epoch is the states that a limit version has written since the last reset: the slots with
// an id. A reset ends the epoch if it has slots. Their states are then worthless: they are not
// found, and are reclaimed. The last slot to go frees the epoch.
type epoch struct {
	id      uint32
	isLog   bool          // whether the states have logs
	isHeld  bool          // whether something is held of them; such a slot is not found without its shard's lock
	version *limitVersion // nil: the epoch is over; changes while all shards are locked
	ended   stint.Instant // when it was over
	slots   atomic.Int64
}

const (
	// versionBytes is about what a version takes, with its epoch, beside its policy's name.
	versionBytes = 512
	// epochBytes is about what an epoch takes that is over.
	epochBytes = 64
)

func (k *versionKey) bytes() int64 { return versionBytes + int64(len(k.policy)+len(k.parameters.Name)) }

// register gives the limit the version of its parameters and its policy.
func (s *Store) register(parameters stint.Limit, l *limit) {
	parameters.Lease, parameters.Cost = 0, 0
	key := versionKey{parameters, l.policy}
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.versions[key]
	if version == nil {
		version = &limitVersion{limit: *l, key: key}
		version.epoch = s.beginEpoch(version, false)
		version.id.Store(version.epoch.id)
		s.versions[key] = version
		if version.holder = s.holders[key.policy]; version.holder == nil {
			version.holder = &holder{}
			s.holders[key.policy] = version.holder
		}
		version.holder.versions++
		s.bytes.Add(key.bytes())
		if s.siblings[l.tag] == nil {
			s.siblings[l.tag] = &siblings{}
		}
		version.siblings = s.siblings[l.tag]
		version.siblings.versions.Add(1)
	}
	version.plans++
	version.orphaned.Store(false)
	l.version = version
}

// beginEpoch gives the version a new epoch, with an id that no other has. Nobody reads what
// was in its place: no slot has the id. The store is locked.
func (s *Store) beginEpoch(version *limitVersion, isHeld bool) *epoch {
	e := &epoch{isLog: version.HasLog(), isHeld: isHeld, version: version}
	epochs := *s.epochs.Load()
	if last := len(s.freeIDs) - 1; last >= 0 {
		e.id, s.freeIDs = s.freeIDs[last], s.freeIDs[:last]
		epochs[e.id-1] = e
	} else {
		epochs = append(epochs, e)
		e.id = uint32(len(epochs))
		s.epochs.Store(&epochs)
	}
	return e
}

// epochOf is the epoch in which a version writes a state. A shard is locked, so that it stays that.
func (s *Store) epochOf(version *limitVersion, isHeld bool) *epoch {
	if !isHeld {
		return version.epoch
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if version.held == nil {
		version.held = s.beginEpoch(version, true)
	}
	return version.held
}

// slots is how many slots are of the version's epochs.
func (v *limitVersion) slots() int64 {
	slots := v.epoch.slots.Load()
	if v.held != nil {
		slots += v.held.slots.Load()
	}
	return slots
}

// releaseVersionsAfter releases the plan's versions once nobody can decide by it any more:
// an operation under way holds one of its limits.
func (s *Store) releaseVersionsAfter(p *plan) {
	versions := make([]*limitVersion, len(p.limits))
	for i := range p.limits {
		versions[i] = p.limits[i].version
	}
	runtime.AddCleanup(&p.limits[0], s.releaseVersions, versions)
}

// releaseVersions takes back what register gave the limits of a plan that is gone.
func (s *Store) releaseVersions(versions []*limitVersion) {
	for _, version := range versions {
		s.mu.Lock()
		if version.plans--; version.plans == 0 {
			version.orphaned.Store(true)
			s.discardVersion(version)
		}
		s.mu.Unlock()
	}
}

// discardVersion drops a version that has neither plans nor slots. The store is locked.
func (s *Store) discardVersion(version *limitVersion) {
	if version.plans > 0 || version.slots() > 0 || s.versions[version.key] != version {
		return
	}
	s.forgetVersion(version)
	s.freeEpoch(version.epoch)
	if version.held != nil {
		s.freeEpoch(version.held)
	}
}

// forgetVersion drops a version, and keeps its epoch. The store is locked.
func (s *Store) forgetVersion(version *limitVersion) {
	delete(s.versions, version.key)
	if version.holder.versions--; version.holder.versions == 0 {
		delete(s.holders, version.key.policy)
	}
	s.bytes.Add(-version.key.bytes())
	if version.siblings.versions.Add(-1) == 0 {
		delete(s.siblings, version.tag)
	}
}

// freeEpoch drops an epoch that has no slots. The store is locked.
func (s *Store) freeEpoch(e *epoch) {
	(*s.epochs.Load())[e.id-1] = nil
	s.freeIDs = append(s.freeIDs, e.id)
}

// addSlot counts a slot that is about to be of the epoch.
func (e *epoch) addSlot() { e.slots.Add(1) }

// removeSlot counts off a slot that left the epoch. Its shard is locked. If this was the last slot
// and the plans are gone, the version is dropped here; if plans remain, the last of them drops it.
func (s *Store) removeSlot(e *epoch) {
	left, version := e.slots.Add(-1), e.version
	switch {
	case version == nil:
		s.staleSlots.Add(-1)
		if left == 0 {
			s.mu.Lock()
			s.freeEpoch(e)
			s.bytes.Add(-epochBytes)
			s.mu.Unlock()
		}
	case left == 0 && version.orphaned.Load():
		s.mu.Lock()
		s.discardVersion(version)
		s.mu.Unlock()
	}
}
