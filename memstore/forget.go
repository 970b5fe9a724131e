package memstore

import (
	"context"
	"runtime"

	"github.com/stint-go/stint"
)

// forgetGroups is how many groups are gone through while a shard is locked: some
// microseconds' work.
const forgetGroups = 64

// ForgetPolicy implements [stint.Forgetter]. A part is a shard, which is locked for a
// bounded number of slots at a time. An error is the context's.
func (s *Store) ForgetPolicy(ctx context.Context, policyName string, progress func(stint.ForgetProgress)) error {
	at := stint.ForgetProgress{Total: shardCount}
	for i := range s.shards {
		w := forgetting{store: s, shard: &s.shards[i], policy: policyName, stride: forgetGroups}
		for more := true; more; {
			if err := ctx.Err(); err != nil {
				return err
			}
			more = w.step()
			runtime.Gosched() // who waits for the lock comes first
		}
		at.Done++
		at.States += w.removed
		if progress != nil {
			progress(at)
		}
	}
	return nil
}

var _ stint.Forgetter = (*Store)(nil)

// forgetting goes through a shard and removes the states of a policy.
//
// Between its steps states may move: to another table, after which all begins anew, or
// into a gap that is nearer to their home, which is to a lower group or, for those that
// were put around the end of the table, from its first groups to its last. So it goes
// through the groups around the end first, at once, and then from the last group to the
// first: what moves comes before it and never behind.
type forgetting struct {
	store   *Store
	shard   *shard
	policy  string
	stride  int    // how many groups a step goes through
	table   *table // that it goes through; nil at first
	next    int    // the group above the next one
	removed int64
}

// step goes through a few groups. It reports whether there are more.
func (w *forgetting) step() (more bool) {
	t := w.shard
	t.mu.Lock()
	defer t.mu.Unlock()
	if table := t.table.Load(); table != w.table {
		w.table, w.next = table, len(table.groups)
		w.around()
	}
	for range min(w.stride, w.next) {
		w.next--
		w.group(w.next)
	}
	return w.next > 0
}

// around goes through the groups that may hold states whose home is at the table's end:
// the first ones, up to one that is not full. A table is never full, so they are few.
func (w *forgetting) around() {
	for at := range w.table.groups {
		full := w.table.groups[at].full()
		w.group(at)
		if !full {
			return
		}
	}
}

// group removes the policy's states of a group.
func (w *forgetting) group(at int) {
	for i := 0; i < groupSlots; {
		slot := &w.table.groups[at][i]
		if slot.hash.Load() != 0 {
			id := slot.hold()
			if w.store.writer(id).policy == w.policy {
				w.store.remove(w.shard, slot, at, id)
				w.removed++
				continue // what had passed may have moved here
			}
			slot.release(id)
		}
		i++
	}
}
