package failover

import (
	"errors"
	"time"

	"github.com/stint-go/stint"
)

// When probes are made: so long after the one before, half as much more or less.
const (
	firstProbe = 50 * time.Millisecond
	lastProbe  = 500 * time.Millisecond
)

// probe probes the shard until it answers, first after about the given time. There is
// one for a shard at a time. A probe at once is out of suspicion: it waits for a tenth
// less, so that who asks another shard at that moment knows when he comes to this one.
func (sh *shard) probe(wait time.Duration) {
	for wait == 0 || sh.store.pause(sh.store.jitter(wait)) {
		timeout := sh.store.config.Timeout
		if wait == 0 {
			timeout -= timeout / 10
		}
		mark := sh.heard.Load()
		err := sh.ask(timeout)
		if sh.store.life.Err() != nil || sh.answered(mark, err) {
			return
		}
		wait = min(max(firstProbe, 2*wait), lastProbe)
	}
}

// Probe asks every part of the store, in the background, whether it is there. One that
// is not goes away, before a caller has to find out. A part that is away, or was asked
// within the last second, is not asked.
func (s *Store) Probe() {
	for _, sh := range s.shards {
		sh.suspect(sh.heard.Load())
	}
}

// jitter is a duration of half to one and a half times d.
func (s *Store) jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(s.config.float()*float64(d))
}

// ask takes a permit of the probes' policy, which has more than are ever taken. A store that
// calls that invalid is there: one that is asked over a service has the service's policies
// alone, this one not among them.
func (sh *shard) ask(timeout time.Duration) error {
	s := sh.store
	s.counts.probes.Add(1)
	ctx := withTimeout(s.life, s.base, timeout)
	defer ctx.release()
	_, err := s.inner.Decide(ctx, stint.Op{Claim: stint.Claim{Key: sh.key, Policy: s.probing, Permits: 1}})
	if errors.Is(err, stint.ErrInvalid) && !errors.Is(err, stint.ErrUnavailable) {
		return nil
	}
	return err
}

// answered notes what a probe came to that was sent when so much had been heard. It
// reports whether the shard needs no further ones.
func (sh *shard) answered(mark uint64, err error) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	down := sh.down.Load()
	switch {
	case err == nil:
		sh.probing, sh.inARow = false, 0
		sh.back = sh.heard.Add(1)
		if down != nil {
			sh.breaker.Close()
			sh.down.Store(nil)
			sh.announce(Away, Up, down.cause)
			sh.store.locals.comeBack()
		}
	case down == nil && sh.heard.Load() != mark: // others were answered: it is not silent
		sh.probing = false
		return true
	case down == nil: // suspected, and with reason
		sh.breaker.Open()
		sh.goAway(err)
	}
	return err == nil
}
