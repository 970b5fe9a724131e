package oracle

import (
	"context"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// A Model answers operations: an [Oracle], or one that a test makes wrong.
type Model interface {
	Decide(op stint.Op, now stint.Instant) Answer
	ResetAll(scope stint.Scope, now stint.Instant)
}

// A Store answers as a model does: slowly, without bounds, and never dropping a state.
type Store struct {
	Model Model
	Now   func() stint.Instant

	mu sync.Mutex
}

// Decide implements [stint.Store].
func (s *Store) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if err := ctx.Err(); err != nil {
		return stint.Decision{}, err
	}
	if err := op.Validate(); err != nil {
		return stint.Decision{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.Model.Decide(op, s.Now())
	if a.Err != nil {
		return stint.Decision{}, a.Err
	}
	a.WriteTo(op)
	return a.Decision, nil
}

// Take implements [stint.Store].
func (s *Store) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return s.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

// DecideAll implements [stint.Store].
func (s *Store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	for i, op := range ops {
		results[i].Decision, results[i].Err = s.Decide(ctx, op)
	}
}

// ResetAll implements [stint.Store].
func (s *Store) ResetAll(ctx context.Context, scope stint.Scope) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil {
		s.Model.ResetAll(scope, s.Now())
	}
	return ctx.Err()
}

// Watch implements [stint.Store].
func (*Store) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }
