package failover

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/watchdog"
)

// A shard is a part of the store that fails by itself. Calls read its atomics only.
type shard struct {
	store    *Store
	index    int
	key      string             // of probes
	watchdog *watchdog.Watchdog // nil: the store watches itself

	down    atomic.Pointer[outage] // nil: reachable
	failing atomic.Bool            // whether the last call failed

	mu      sync.Mutex
	probing bool      // whether a goroutine probes until the shard can be reached
	renewed bool      // whether it became unreachable again during the last probe
	asked   time.Time // when it was last asked although it was reachable
}

// An outage is why and since when a shard is unreachable.
type outage struct {
	since time.Time
	cause error
	err   error // what callers get: it wraps stint.ErrUnavailable and the cause
}

// newShard makes a shard. A store that does not watch itself is watched here.
func newShard(store *Store, index int, key string) *shard {
	sh := &shard{store: store, index: index, key: key}
	if _, watched := store.inner.(Watched); !watched {
		sh.watchdog = watchdog.New(watchdog.Config{
			Timeout: store.config.Timeout, Unreachable: sh.unreachable, Try: sh.try,
		})
	}
	return sh
}

// calls are the calls of a watchdog that a store's call consists of, by shard; those of shards
// that watch themselves are nil.
type calls []*watchdog.Call

// begin notes that the store is called; nil if it watches itself.
func (sh *shard) begin() *watchdog.Call {
	if sh.watchdog == nil {
		return nil
	}
	call, _ := sh.store.calls.Get().(*watchdog.Call)
	sh.watchdog.Begin(call)
	return call
}

// An ending is how a call ended, for the watchdog.
type ending uint8

const (
	neutral   ending = iota // the store was not needed
	answered                // it answered
	refused                 // it failed
	abandoned               // nobody waited for it any longer
)

// end notes how a call ended.
func (sh *shard) end(call *watchdog.Call, how ending, cause error) {
	if call == nil {
		return
	}
	switch how {
	case answered:
		sh.watchdog.Answered(call)
	case refused:
		sh.watchdog.Refused(call, cause)
	case abandoned:
		sh.watchdog.Abandoned(call)
	case neutral:
		sh.watchdog.Forget(call)
	}
	sh.store.calls.Put(call)
}

// awake reports whether this process was awake for at least half of a timeout since a call began.
func (sh *shard) awake(call *watchdog.Call, timeout time.Duration) bool {
	return call == nil || 2*sh.watchdog.Age(call) >= timeout
}

// succeeded notes an answer of the store.
func (sh *shard) succeeded() {
	if sh.failing.Load() && sh.down.Load() == nil {
		sh.failing.Store(false)
		sh.store.locals.comeBack()
	}
}

// well reports whether the shard can be reached and the last call of it did not fail.
func (sh *shard) well() bool { return sh.down.Load() == nil && !sh.failing.Load() }

// unreachable notes that the shard is unreachable. The others are asked: if they are
// unreachable too, their callers should not have to find out one after the other.
func (sh *shard) unreachable(cause error) {
	if !sh.goDown(cause) {
		return
	}
	for _, other := range sh.store.shards {
		if other != sh {
			other.askOnce()
		}
	}
}

// goDown has the modes decide, and the shard probed. It reports whether that is news.
func (sh *shard) goDown(cause error) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.down.Load() != nil {
		sh.renewed = true
		return false
	}
	if !sh.probing {
		if !sh.store.start(sh.probe) {
			return false // closed: no probe would end it
		}
		sh.probing = true
	}
	sh.down.Store(&outage{since: sh.store.config.now(), cause: cause, err: unavailable(cause)})
	sh.announce(Up, Unreachable, cause)
	return true
}

func (sh *shard) announce(from, to State, cause error) {
	if changed := sh.store.config.Hooks.StateChanged; changed != nil {
		changed(Change{Shard: sh.index, From: from, To: to, Cause: cause})
	}
}

// unavailable wraps a failure so that it says that the store could not decide.
func unavailable(cause error) error {
	if errors.Is(cause, stint.ErrUnavailable) {
		return cause
	}
	return fmt.Errorf("%w: %w", stint.ErrUnavailable, cause)
}
