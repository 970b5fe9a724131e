package failover

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint"
)

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
