package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/watchdog"
)

// Decide implements [stint.Store].
func (s *Store) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	timeout, err := s.timeout(&op)
	if err != nil {
		return stint.Decision{}, err
	}
	if s.sharded != nil && op.And != nil {
		return s.decideAcross(ctx, timeout, op)
	}
	sh := s.shard(op.Key)
	if down := sh.down.Load(); down != nil {
		return s.fallback(ctx, op, down.err)
	}
	bounded, own := s.bound(ctx, timeout)
	call := sh.begin()
	d, err := s.inner.Decide(bounded, op)
	if own != nil {
		own.release()
	}
	if err == nil {
		sh.decided(call, &d)
		return d, nil
	}
	return s.failed(ctx, sh, call, own, op, err)
}

// decided notes a decision.
func (sh *shard) decided(call *watchdog.Call, d *stint.Decision) {
	if d.Source != stint.SourceStore {
		sh.end(call, neutral, nil)
		return
	}
	sh.end(call, answered, nil)
	sh.succeeded()
}

// failed answers an operation that the store returned an error for.
func (s *Store) failed(ctx context.Context, sh *shard, call *watchdog.Call, own *deadline, op stint.Op, err error) (stint.Decision, error) {
	v, err := sh.judge(ctx, own, call, err)
	sh.end(call, v.ending(own, err), err)
	if v == failing {
		sh.failing.Store(true)
	}
	return s.answer(ctx, v, op, err)
}

// answer answers an operation in the store's place, by the verdict on its error.
func (s *Store) answer(ctx context.Context, v verdict, op stint.Op, err error) (stint.Decision, error) {
	switch v {
	case invalid:
		return stint.Decision{}, err
	case gone:
		clear(op.Each)
		return stint.Decision{}, err
	case busy:
		if down := s.downFor(&op); down != nil {
			return s.fallback(ctx, op, down.err)
		}
		s.counts.overloaded.Add(1)
		if s.config.OnOverload == Admit && (op.Verb == stint.Take || op.Verb == stint.Try) {
			// A caller that is turned away before its call comes with a context that has ended.
			return s.fallback(context.WithoutCancel(ctx), op, err)
		}
		clear(op.Each)
		return stint.Decision{}, err
	case failing:
	}
	s.counts.failure(err)
	return s.fallback(ctx, op, err)
}

// bound bounds a call in time. The deadline is nil when the caller's own comes first.
func (s *Store) bound(ctx context.Context, timeout time.Duration) (context.Context, *deadline) {
	if d := withTimeout(ctx, s.base, timeout); d != nil {
		return d, d
	}
	return ctx, nil
}

// A verdict says whose fault a call's error is.
type verdict uint8

const (
	failing verdict = iota // the store's
	busy                   // this process's, or the service's that was asked
	invalid                // the operation's
	gone                   // the caller's, whose context has ended
)

// judge says whose fault an error is. own is nil when the caller's deadline was the
// earlier one.
func judge(ctx context.Context, own *deadline, err error) verdict {
	ended := ctx.Err()
	switch {
	case errors.Is(err, stint.ErrInvalid):
		return invalid
	case ended != nil && errors.Is(context.Cause(ctx), stint.ErrOverloaded):
		return busy
	case ended != nil, own == nil && errors.Is(err, context.DeadlineExceeded):
		return gone
	case errors.Is(err, stint.ErrOverloaded):
		return busy
	default:
		return failing
	}
}

// judge says whose fault the error of a call is that has not ended for the watchdog, and what callers are to
// be told: a deadline that passed while this process did not get the time to hear the store is its own.
func (sh *shard) judge(ctx context.Context, own *deadline, call *watchdog.Call, err error) (verdict, error) {
	v := judge(ctx, own, err)
	if v == failing && late(own, err) && !sh.awake(call, own.timeout) {
		return busy, overloaded(err)
	}
	return v, err
}

// ending is what a watchdog is to hear of a call with this verdict.
func (v verdict) ending(own *deadline, err error) ending {
	switch v {
	case invalid:
		return neutral
	case busy:
		if late(own, err) {
			return abandoned
		}
		return answered
	case gone:
		return abandoned
	case failing:
	}
	if late(own, err) {
		return abandoned
	}
	return refused
}

// late reports whether a call ended because of failover's own deadline.
func late(own *deadline, err error) bool {
	return own != nil && errors.Is(err, context.DeadlineExceeded)
}

// overloaded says that this process was too busy to hear the store.
func overloaded(err error) error {
	return fmt.Errorf("%w: the process had no time to read the store's answer: %w", stint.ErrOverloaded, err)
}

// decideAcross decides an operation over several keys of a store with several shards.
func (s *Store) decideAcross(ctx context.Context, timeout time.Duration, op stint.Op) (stint.Decision, error) {
	if down := s.downFor(&op); down != nil {
		return s.fallback(ctx, op, down.err)
	}
	shards := s.involved(&op)
	bounded, own := s.bound(ctx, timeout)
	under := begin(shards)
	d, err := s.inner.Decide(bounded, op)
	if own != nil {
		own.release()
	}
	if err == nil {
		for i, sh := range shards {
			sh.decided(under[i], &d)
		}
		return d, nil
	}
	v, err := shards[0].judge(ctx, own, under[0], err)
	for i, sh := range shards {
		sh.end(under[i], v.ending(own, err), err)
	}
	return s.answer(ctx, v, op, err)
}

// begin notes that the store is called for several shards.
func begin(shards []*shard) calls {
	under := make(calls, len(shards))
	for i, sh := range shards {
		under[i] = sh.begin()
	}
	return under
}

// involved are the shards of an operation, each once.
func (s *Store) involved(op *stint.Op) []*shard {
	shards := append(make([]*shard, 0, 4), s.shard(op.Key))
	for i := range op.And {
		if sh := s.shard(op.And[i].Key); !slices.Contains(shards, sh) {
			shards = append(shards, sh)
		}
	}
	return shards
}

// A taker takes permits of one policy by the inner store's shorter way.
type taker struct {
	store   *Store
	policy  *stint.Policy
	inner   stint.Taker
	timeout time.Duration
}

// Bind implements [stint.Binder].
func (s *Store) Bind(policy *stint.Policy) stint.Taker {
	op := stint.Op{Claim: stint.Claim{Policy: policy}}
	timeout, fault := s.timeout(&op)
	binder, ok := s.inner.(stint.Binder)
	if !ok || fault != nil {
		return byOp{s, policy}
	}
	return &taker{store: s, policy: policy, inner: binder.Bind(policy), timeout: timeout}
}

// Take implements [stint.Taker].
func (t *taker) Take(ctx context.Context, key string, n int64) (stint.Decision, error) {
	s := t.store
	sh := s.shard(key)
	if down := sh.down.Load(); down != nil {
		return s.fallback(ctx, t.op(key, n), down.err)
	}
	bounded, own := s.bound(ctx, t.timeout)
	call := sh.begin()
	d, err := t.inner.Take(bounded, key, n)
	if own != nil {
		own.release()
	}
	if err == nil {
		sh.decided(call, &d)
		return d, nil
	}
	return s.failed(ctx, sh, call, own, t.op(key, n), err)
}

func (t *taker) op(key string, n int64) stint.Op {
	return stint.Op{Claim: stint.Claim{Key: key, Policy: t.policy, Permits: n}}
}

// byOp is a taker that makes an operation.
type byOp struct {
	store  *Store
	policy *stint.Policy
}

// Take implements [stint.Taker].
func (t byOp) Take(ctx context.Context, key string, n int64) (stint.Decision, error) {
	return t.store.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: t.policy, Permits: n}})
}
