package failover

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stint-go/stint"
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
		return s.instead(ctx, op, down.err)
	}
	mark := sh.heard.Load()
	bounded, own := s.bound(ctx, timeout)
	d, err := s.inner.Decide(bounded, op)
	if own != nil {
		own.release()
	}
	if err == nil {
		if d.Source == stint.SourceStore {
			sh.succeeded()
		}
		return d, nil
	}
	return s.failed(ctx, sh, mark, own, op, err)
}

// failed answers an operation that the store returned an error for, which was sent when
// so much had been heard of its shard.
func (s *Store) failed(ctx context.Context, sh *shard, mark uint64, own *deadline, op stint.Op, err error) (stint.Decision, error) {
	if v := judge(ctx, own, err); v != failing {
		return s.passOn(sh, mark, v, &op, err)
	}
	s.counts.failure(err)
	sh.fails(mark, err)
	return s.instead(ctx, op, err)
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
	invalid                // the operation's
	gone                   // the caller's, which has gone
	hasty                  // the caller's, whose deadline came first
)

// judge says whose fault an error is. own is nil when the caller's deadline was the
// earlier one.
func judge(ctx context.Context, own *deadline, err error) verdict {
	switch ended := ctx.Err(); {
	case errors.Is(err, stint.ErrInvalid):
		return invalid
	case own == nil && errors.Is(err, context.DeadlineExceeded), errors.Is(ended, context.DeadlineExceeded):
		return hasty
	case ended != nil:
		return gone
	default:
		return failing
	}
}

// passOn returns an error that is not the store's.
func (s *Store) passOn(sh *shard, mark uint64, v verdict, op *stint.Op, err error) (stint.Decision, error) {
	if v != invalid {
		clear(op.Each)
	}
	if v == hasty {
		sh.suspect(mark)
	}
	return stint.Decision{}, err
}

// decideAcross decides an operation over several keys of a store with several shards.
func (s *Store) decideAcross(ctx context.Context, timeout time.Duration, op stint.Op) (stint.Decision, error) {
	shards := s.involved(&op)
	for _, sh := range shards {
		if down := sh.down.Load(); down != nil {
			return s.instead(ctx, op, down.err)
		}
	}
	marks := make([]uint64, len(shards))
	for i, sh := range shards {
		marks[i] = sh.heard.Load()
	}
	bounded, own := s.bound(ctx, timeout)
	d, err := s.inner.Decide(bounded, op)
	if own != nil {
		own.release()
	}
	if err == nil {
		if d.Source == stint.SourceStore {
			for _, sh := range shards {
				sh.succeeded()
			}
		}
		return d, nil
	}
	v := judge(ctx, own, err)
	if v != failing {
		return s.passOn(shards[0], marks[0], v, &op, err)
	}
	s.counts.failure(err)
	blame(shards, marks, err)
	return s.instead(ctx, op, err)
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

// blame notes a failure of a call over several shards: of those that were not heard
// of since the call was sent, or else of all of them.
func blame(shards []*shard, marks []uint64, cause error) {
	quiet := false
	for i, sh := range shards {
		quiet = quiet || sh.heard.Load() == marks[i]
	}
	for i, sh := range shards {
		if !quiet || sh.heard.Load() == marks[i] {
			sh.fails(marks[i], cause)
		}
	}
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
		return s.instead(ctx, t.op(key, n), down.err)
	}
	mark := sh.heard.Load()
	bounded, own := s.bound(ctx, t.timeout)
	d, err := t.inner.Take(bounded, key, n)
	if own != nil {
		own.release()
	}
	if err == nil {
		if d.Source == stint.SourceStore {
			sh.succeeded()
		}
		return d, nil
	}
	return s.failed(ctx, sh, mark, own, t.op(key, n), err)
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
