package failover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint"
)

// ForgetPolicy implements [stint.Forgetter], if the store does, and the local one, if
// there is one; else the error wraps stint.ErrInvalid. What was spent locally of the
// policy, and not charged yet, is forgotten last: if the store fails, it is still charged.
// Until then nothing is charged, of other policies neither.
//
// No answer is made up: while any part of the store is away the error wraps
// stint.ErrUnavailable, and nothing was forgotten. The whole takes as long as it takes;
// Config.Timeout bounds each of its steps. One that takes longer ends it, with an error
// that wraps stint.ErrUnavailable, and has the store probed.
func (s *Store) ForgetPolicy(ctx context.Context, policyName string, progress func(stint.ForgetProgress)) error {
	inner, err := forgetter("store", s.inner)
	if err != nil {
		return err
	}
	for _, sh := range s.shards {
		if down := sh.down.Load(); down != nil {
			return down.err
		}
	}
	var local stint.Forgetter
	if s.config.Local != nil {
		if local, err = forgetter("local store", s.config.Local); err != nil {
			return err
		}
		resume, err := s.locals.hold(ctx)
		if err != nil {
			return err
		}
		defer resume()
	}
	err = s.forgetBounded(ctx, inner, policyName, progress)
	if err == nil && local != nil {
		if err := local.ForgetPolicy(ctx, policyName, nil); err != nil {
			return err
		}
		return local.ForgetPolicy(ctx, accountName(policyName), nil)
	}
	if err == nil || errors.Is(err, stint.ErrInvalid) || ctx.Err() != nil {
		return err
	}
	s.counts.failure(err)
	s.Probe()
	return unavailable(err)
}

// forgetter is a store as one that can forget a policy.
func forgetter(param string, store stint.Store) (stint.Forgetter, error) {
	f, ok := store.(stint.Forgetter)
	if !ok {
		return nil, stint.Invalid(param, fmt.Sprintf("%T", store), "a store that can forget a policy")
	}
	return f, nil
}

// forgetBounded has a store forget a policy, and ends that when a step takes too long.
func (s *Store) forgetBounded(ctx context.Context, inner stint.Forgetter, policyName string, progress func(stint.ForgetProgress)) error {
	bounded, end := context.WithCancelCause(ctx)
	defer end(nil)
	late := time.AfterFunc(s.config.Timeout, func() { end(context.DeadlineExceeded) })
	defer late.Stop()
	err := inner.ForgetPolicy(bounded, policyName, func(p stint.ForgetProgress) {
		late.Stop()
		if progress != nil {
			progress(p)
		}
		late.Reset(s.config.Timeout)
	})
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(bounded), context.DeadlineExceeded) {
		return fmt.Errorf("a step of forgetting took more than %s: %w", s.config.Timeout, context.DeadlineExceeded)
	}
	return err
}

// hold waits for the batch of charges that is under way, and lets no other begin until
// resume is called.
func (l *locals) hold(ctx context.Context) (resume func(), err error) {
	select {
	case l.batch <- struct{}{}:
		return func() { <-l.batch }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
