package failover

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/internal/watchdog"
)

// A shard is a part of the store that fails by itself. Calls read its atomics only.
type shard struct {
	store *Store
	index int
	key   string // of probes

	down     atomic.Pointer[outage] // nil: reachable
	answered atomic.Bool            // whether it answered a call since probeIdle looked last

	mu      sync.Mutex
	probing bool      // whether a goroutine probes until the shard can be reached
	renewed bool      // whether it became unreachable again during the last probe
	asked   time.Time // when it was last asked although it was reachable
}

// An outage is why and since when a shard is unreachable.
type outage struct {
	Outage
	err error // what callers get: it wraps stint.ErrUnavailable and the cause
}

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
	sh.down.Store(&outage{Outage{sh.index, time.Now(), cause}, unavailable(cause)})
	sh.announce(false, cause)
	return true
}

// announce tells the configuration's StateChanged of a change; nobody is told if it is nil.
func (sh *shard) announce(up bool, cause error) {
	if changed := sh.store.config.StateChanged; changed != nil {
		changed(Change{sh.index, up, cause})
	}
}

// unavailable wraps a failure so that it says that the store could not decide. The deadline of a store's own context
// can't be taken for that of a caller's.
func unavailable(cause error) error {
	if errors.Is(cause, context.DeadlineExceeded) {
		cause = watchdog.Late(cause)
	}
	if errors.Is(cause, stint.ErrUnavailable) {
		return cause
	}
	return prefix.Errorf("%w: %w", stint.ErrUnavailable, cause)
}

// When probes are made: so long after the one before, or less, down to half, by chance.
const (
	firstProbe = 50 * time.Millisecond
	lastProbe  = 500 * time.Millisecond
)

// probe probes an unreachable shard until it answers.
func (sh *shard) probe() {
	for wait := firstProbe; sleep.Jittered(sh.store.life, wait) == nil; wait = min(2*wait, lastProbe) {
		sh.mu.Lock()
		sh.renewed = false
		sh.mu.Unlock()
		err := sh.ask(sh.store.life, sh.store.config.Timeout)
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
	cause := sh.down.Load().Cause
	sh.probing = false
	sh.down.Store(nil)
	sh.announce(true, cause)
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

// idleProbe is how often it is looked whether a shard was idle: so an outage is noticed, told and counted though nobody
// asks.
const idleProbe = 5 * time.Second

// probeIdle asks the shards that answered nobody since it looked last, as long as the store lives.
func (s *Store) probeIdle() {
	for sleep.Jittered(s.life, idleProbe) == nil {
		for _, sh := range s.shards {
			if !sh.answered.Swap(false) {
				sh.askOnce()
			}
		}
	}
}

// askOnce asks the shard, at most once a second. The watchdog judges the outcome.
func (sh *shard) askOnce() {
	const atMostEvery = time.Second
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := time.Now()
	if sh.probing || now.Sub(sh.asked) < atMostEvery {
		return
	}
	sh.asked = now
	sh.store.start(func() { sh.try(sh.store.life) })
}

// try asks the shard for twice the timeout at most, so that the watchdog hears of it.
func (sh *shard) try(ctx context.Context) { _ = sh.ask(ctx, 2*sh.store.config.Timeout) }

// ask takes a permit of the probes' policy, which has more than are ever taken.
func (sh *shard) ask(ctx context.Context, timeout time.Duration) error {
	s := sh.store
	s.counts.probes.Add(1)
	_, err := s.decide(ctx, stint.Op{Claim: stint.Claim{Key: sh.key, Policy: s.probing, Permits: 1}, Timeout: timeout})
	return err
}
