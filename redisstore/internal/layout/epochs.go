package layout

import "sync"

// AllPolicies is the field of the settings with the epoch of all policies.
const AllPolicies = "all"

// EpochField is the field of the settings with the epoch of a policy.
func EpochField(policy string) string { return ":" + policy }

// Epochs are those of policies as a process knows them of one server, by the fields of the settings. Each is the
// larger of the epoch of all policies and the policy's own. The zero value knows none. It is safe for concurrent use.
type Epochs struct {
	mu  sync.RWMutex
	all int64
	of  map[string]int64
}

// Get returns a policy's epoch.
func (e *Epochs) Get(field string) int64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return max(e.all, e.of[field])
}

// Raise notes an epoch. It reports whether that is news.
func (e *Epochs) Raise(field string, epoch int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case epoch <= max(e.all, e.of[field]):
		return false
	case field == AllPolicies:
		e.all, e.of = epoch, nil
	case e.of == nil:
		e.of = map[string]int64{field: epoch}
	default:
		e.of[field] = epoch
	}
	return true
}
