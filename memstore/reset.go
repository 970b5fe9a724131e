package memstore

import (
	"context"
	"time"

	"github.com/stint-go/stint"
)

// ResetAll implements [stint.Store]: it ends the epochs of the policies' states. That takes some
// microseconds, and up to 80 ns for each limit of any policy that is known, or half a microsecond if all
// are reset; only decisions on clients that are known already go on meanwhile. An error is the context's,
// or that of a store that decides nothing, and then nothing was reset.
func (s *Store) ResetAll(ctx context.Context, scope stint.Scope) error {
	return s.endEpochs(ctx, func(w *limitVersion) bool { return scope.All || w.policy == scope.Policy })
}

// endEpochs ends the epochs of some versions. All shards are locked meanwhile, so that an
// operation finds all of them ended, or none. One that needs no shard's lock has found a slot
// by the id of an epoch: it is decided before the end, or notices that the id has changed.
func (s *Store) endEpochs(ctx context.Context, which func(*limitVersion) bool) error {
	if s.versions == nil {
		return s.unfit()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range s.shards {
		s.shards[i].mu.Lock()
	}
	now := s.decidedTogether(nil)
	s.mu.Lock()
	for _, version := range s.versions {
		if which(version) {
			s.endEpoch(version, now)
		}
	}
	s.mu.Unlock()
	for i := range s.shards {
		s.shards[i].mu.Unlock()
	}
	s.waiters.WakeAll()
	return nil
}

// endEpoch ends the epochs of a version that have states, and begins others, if any plan
// may write in them. The store and all shards are locked.
func (s *Store) endEpoch(version *limitVersion, now stint.Instant) {
	if version.slots() == 0 {
		return // an epoch of no states is a new one
	}
	ended := []*epoch{version.epoch}
	if version.held != nil {
		ended = append(ended, version.held)
	}
	for _, e := range ended {
		slots := e.slots.Load()
		if slots == 0 {
			s.freeEpoch(e)
			continue
		}
		e.version, e.ended = nil, now
		s.staleSlots.Add(slots)
		s.bytes.Add(epochBytes)
	}
	version.held = nil
	if version.plans == 0 {
		s.forgetVersion(version)
	} else {
		version.epoch = s.beginEpoch(version, false)
		version.id.Store(version.epoch.id)
	}
}

// Watch implements [stint.Store]. State in the process is never unreachable.
func (s *Store) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{Count: 1} }
