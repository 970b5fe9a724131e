package failover

import (
	"context"
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

// When probes are made: so long after the one before, half as much more or less.
const (
	firstProbe = 50 * time.Millisecond
	lastProbe  = 500 * time.Millisecond
)

// probe probes an unreachable shard until it answers.
func (sh *shard) probe() {
	for wait := firstProbe; sh.store.pause(sh.store.jitter(wait)); wait = min(2*wait, lastProbe) {
		sh.mu.Lock()
		sh.renewed = false
		sh.mu.Unlock()
		bounded := withTimeout(sh.store.life, sh.store.base, sh.store.config.Timeout)
		err := sh.ask(bounded)
		bounded.release()
		if err == nil && sh.goUp() {
			return
		}
	}
}

// goUp has the store decide again. It reports false when the shard became unreachable
// once more meanwhile.
func (sh *shard) goUp() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.renewed {
		return false
	}
	cause := sh.down.Load().cause
	sh.probing = false
	sh.failing.Store(false)
	sh.down.Store(nil)
	sh.announce(Unreachable, Up, cause)
	sh.store.locals.comeBack()
	return true
}

// Probe asks every part of the store that counts as reachable, in the background, whether
// it is there, so that a part that is not is found unreachable before a caller has to wait for
// it. A part that was asked within the last second is not asked.
func (s *Store) Probe() {
	for _, sh := range s.shards {
		sh.askOnce()
	}
}

// askOnce asks the shard, at most once a second. What comes of it is the watchdog's to judge.
func (sh *shard) askOnce() {
	const atMostEvery = time.Second
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.store.config.now()
	if sh.probing || now.Sub(sh.asked) < atMostEvery {
		return
	}
	sh.asked = now
	sh.store.start(func() { sh.try(sh.store.life) })
}

// try asks the shard for twice the timeout at most.
func (sh *shard) try(ctx context.Context) {
	bounded := withTimeout(ctx, sh.store.base, 2*sh.store.config.Timeout)
	defer bounded.release()
	_ = sh.ask(bounded) // the watchdog has heard of it
}

// jitter is a duration of half to one and a half times d.
func (s *Store) jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(s.config.float()*float64(d))
}

// ask takes a permit of the probes' policy, which has more than are ever taken. A store that
// calls that invalid is there: one that is asked over a service has the service's policies
// alone, this one not among them.
func (sh *shard) ask(ctx context.Context) error {
	s := sh.store
	s.counts.probes.Add(1)
	call := sh.begin()
	_, err := s.inner.Decide(ctx, stint.Op{Claim: stint.Claim{Key: sh.key, Policy: s.probing, Permits: 1}})
	if errors.Is(err, stint.ErrInvalid) && !errors.Is(err, stint.ErrUnavailable) {
		err = nil
	}
	how := answered
	switch {
	case err == nil, errors.Is(err, stint.ErrOverloaded) && ctx.Err() == nil:
	case ctx.Err() != nil:
		how = abandoned
	default:
		how = refused
	}
	sh.end(call, how, err)
	return err
}
