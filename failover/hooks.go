package failover

import "time"

// A State says whether the store, or a shard of it, is asked. The zero value is Up.
type State uint8

// The states.
const (
	// Up is asked.
	Up State = iota
	// Unreachable is not asked but for probes; modes decide instead.
	Unreachable
)

// String is the state in lower case.
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Unreachable:
		return "unreachable"
	default:
		return "unknown"
	}
}

// Hooks are called as a store becomes unreachable and can be reached again. Every field may be nil.
type Hooks struct {
	// StateChanged is called once for each change of the state of a shard, in order for
	// each. It runs in the goroutine that noticed the change,
	// so it must not block and must not call the store. It must be safe for concurrent use.
	StateChanged func(Change)
}

// A Change of a shard's state.
type Change struct {
	// Shard is the part of the store, 0 when it has but one.
	Shard    int
	From, To State
	// Cause is why the store is unreachable; of a change to Up, why it was before.
	Cause error
}

// An Outage is a shard that is unreachable.
type Outage struct {
	Shard int
	Since time.Time
	Cause error
}
