package failover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/stint-go/stint"
)

// When failures other than silence take the store away.
const (
	mostInARow  = 3
	failureRate = 50 // percent
	leastCalls  = 20
	rateWindow  = 10 * time.Second
)

// A shard is a part of the store that fails by itself, with its breaker. Callers read
// its atomics only; the breaker hears of failures, and of successes as long as the last
// failure is no older than its window.
type shard struct {
	store *Store
	index int
	key   string // of probes

	down     atomic.Pointer[outage] // nil: up
	heard    atomic.Uint64          // answers of the store, and returns of it
	failed   atomic.Uint64          // heard at the last failure, and one; 0 if there was none
	troubled atomic.Bool            // whether the breaker wants to hear of successes

	mu        sync.Mutex // never taken by calls while all is well
	breaker   circuitbreaker.CircuitBreaker[any]
	back      uint64    // heard when the shard came back; calls sent before are old news
	inARow    int       // failures since something was heard
	lately    time.Time // of the last failure
	suspected time.Time // when a probe was last made out of suspicion
	probing   bool      // whether a goroutine probes
}

// An outage is why and since when a shard is away.
type outage struct {
	since time.Time
	cause error
	err   error // what callers get: it wraps stint.ErrUnavailable and the cause
}

func newShard(store *Store, index int, key string) *shard {
	const never = 365 * 24 * time.Hour // a probe closes the breaker, not time
	return &shard{
		store: store, index: index, key: key,
		breaker: circuitbreaker.NewBuilder[any]().
			WithFailureRateThreshold(float64(failureRate)/100, leastCalls, rateWindow).
			WithDelay(never).
			Build(),
	}
}

// succeeded notes an answer of the store.
func (sh *shard) succeeded() {
	sh.heard.Add(1)
	if sh.troubled.Load() {
		sh.recovers()
	}
}

func (sh *shard) recovers() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.down.Load() != nil {
		return // a call that was sent before; a probe decides
	}
	sh.store.locals.comeBack()
	sh.breaker.RecordSuccess()
	if sh.store.config.now().Sub(sh.lately) > rateWindow {
		sh.troubled.Store(false)
	}
}

// well reports whether the shard is up and the last that was heard of it no failure.
func (sh *shard) well() bool { return sh.down.Load() == nil && sh.heard.Load() >= sh.failed.Load() }

// fails notes a failure of a call that was sent when so much had been heard. When that
// takes the shard away the others are suspected, so that nobody has to wait for each of
// them in turn when all are dead.
func (sh *shard) fails(mark uint64, cause error) {
	if !sh.goes(mark, cause) {
		return
	}
	for _, other := range sh.store.shards {
		if other != sh {
			other.suspect(other.heard.Load())
		}
	}
}

// goes notes a failure, and reports whether it takes the shard away.
func (sh *shard) goes(mark uint64, cause error) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.down.Load() != nil || mark < sh.back {
		return false
	}
	heard := sh.heard.Load()
	if heard+1 != sh.failed.Swap(heard+1) {
		sh.inARow = 0
	}
	sh.inARow++
	sh.lately = sh.store.config.now()
	sh.troubled.Store(true)
	sh.breaker.RecordFailure()
	silent := heard == mark && errors.Is(cause, context.DeadlineExceeded)
	if silent || sh.inARow >= mostInARow {
		sh.breaker.Open()
	}
	if sh.breaker.IsOpen() {
		sh.goAway(cause)
	}
	return sh.down.Load() != nil
}

// goAway takes the shard away. It is locked.
func (sh *shard) goAway(cause error) {
	if !sh.probing {
		if !sh.store.start(func() { sh.probe(firstProbe) }) {
			sh.breaker.Close()
			return // closed: nobody would bring it back
		}
		sh.probing = true
	}
	sh.down.Store(&outage{since: sh.store.config.now(), cause: cause, err: unavailable(cause)})
	sh.announce(Up, Away, cause)
}

// suspect has the shard probed at once, unless something is heard of it: a caller has
// waited in vain for as long as it could, or another shard has gone away.
func (sh *shard) suspect(mark uint64) {
	const atMostEvery = time.Second
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.store.config.now()
	if sh.probing || mark < sh.back || sh.heard.Load() != mark || now.Sub(sh.suspected) < atMostEvery {
		return
	}
	sh.suspected = now
	sh.probing = sh.store.start(func() { sh.probe(0) })
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
