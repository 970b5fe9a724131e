package memstore

import (
	"context"

	"github.com/stint-go/stint"
)

var _ stint.Resetter = (*Store)(nil)

// ResetPolicy implements [stint.Resetter]: it ends the epochs of the policy's states. That
// takes some microseconds, and up to 80 ns for each limit of any policy that is known; only
// decisions on clients that are known already go on meanwhile. An error is the context's, and then
// nothing was reset.
func (s *Store) ResetPolicy(ctx context.Context, policyName string) error {
	return s.end(ctx, func(w *writer) bool { return w.policy == policyName })
}

// ResetAll implements [stint.Resetter], as [Store.ResetPolicy] does. It takes up to half a
// microsecond for each limit.
func (s *Store) ResetAll(ctx context.Context) error {
	return s.end(ctx, func(*writer) bool { return true })
}

// end ends the epochs of some writers. All shards are locked meanwhile, so that an operation
// meets none of them ended, or all. One that needs no shard's lock has found a slot by the
// id of an epoch: it decides as what was there, before the end, or is told that the id has
// changed.
func (s *Store) end(ctx context.Context, which func(*writer) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range s.shards {
		s.shards[i].mu.Lock()
	}
	s.mu.Lock()
	for _, w := range s.known {
		if which(w) {
			s.renew(w)
		}
	}
	s.mu.Unlock()
	for i := range s.shards {
		s.shards[i].mu.Unlock()
	}
	return nil
}

// renew ends the epoch of a writer, if it has states, and begins another one, if any plan
// may write in it. The store and all shards are locked.
func (s *Store) renew(w *writer) {
	e := w.epoch
	slots := e.slots.Load()
	if slots == 0 {
		return // an epoch of no states is a new one
	}
	e.writer = nil
	s.past.Add(slots)
	s.bytes.Add(epochBytes)
	if w.plans == 0 {
		s.forget(w)
	} else {
		s.begin(w)
	}
}
