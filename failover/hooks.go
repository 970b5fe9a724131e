package failover

import "time"

// A State says whether the store, or a shard of it, is asked. The zero value is Up.
type State uint8

// The states.
const (
	// Up is asked.
	Up State = iota
	// Away is not asked but for probes; modes decide instead.
	Away
)

// String is the state in lower case.
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Away:
		return "away"
	default:
		return "unknown"
	}
}

// Hooks are called as a store goes away and comes back. Every field may be nil.
type Hooks struct {
	// StateChanged is called once for each change of the state of a shard, in order for
	// each. It runs in the goroutine of the caller or probe that brought the change about,
	// so it must not block and must not call the store. It must be safe for concurrent use.
	StateChanged func(Change)
}

// A Change of a shard's state.
type Change struct {
	// Shard is the part of the store, 0 when it has but one.
	Shard    int
	From, To State
	// Cause is the failure that took the store away; of a change to Up it is what had
	// taken it away before.
	Cause error
}

// An Outage is a shard that is away.
type Outage struct {
	Shard int
	Since time.Time
	Cause error
}
