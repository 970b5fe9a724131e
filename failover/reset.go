package failover

import (
	"context"
	"fmt"

	"github.com/stint-go/stint"
)

// ResetPolicy implements [stint.Resetter], if the store does, and the local one, if there is
// one; else the error wraps stint.ErrInvalid. This process's shares are reset last, so that they stay
// spent if the store fails. Those of other processes stay spent.
//
// No answer is made up: while any part of the store is unreachable the error wraps
// stint.ErrUnavailable, and nothing was reset. Config.Timeout bounds the store's part of it.
// If that takes longer, or fails, the error wraps stint.ErrUnavailable, and the store is
// probed; it may have been reset nevertheless.
func (s *Store) ResetPolicy(ctx context.Context, policyName string) error {
	return s.reset(ctx, func(ctx context.Context, r stint.Resetter) error { return r.ResetPolicy(ctx, policyName) })
}

// ResetAll implements [stint.Resetter], as [Store.ResetPolicy] does.
func (s *Store) ResetAll(ctx context.Context) error {
	return s.reset(ctx, func(ctx context.Context, r stint.Resetter) error { return r.ResetAll(ctx) })
}

// reset resets the store, within the deadline of a call, and then the local one.
func (s *Store) reset(ctx context.Context, reset func(context.Context, stint.Resetter) error) error {
	inner, err := resetter("store", s.config.Store)
	if err != nil {
		return err
	}
	if outages := s.Down(); outages != nil {
		return unavailable(outages[0].Cause)
	}
	var local stint.Resetter
	if s.config.Local != nil {
		if local, err = resetter("local store", s.config.Local); err != nil {
			return err
		}
	}
	bounded, own := s.bound(ctx, s.config.Timeout)
	err = reset(bounded, inner)
	own.release()
	if err != nil {
		if from := originOf(ctx, own, err); from == invalidOp || from == callerLeft {
			return err
		}
		s.counts.failure(err)
		s.Probe()
		return unavailable(err)
	}
	if local == nil {
		return nil
	}
	return reset(context.WithoutCancel(ctx), local)
}

// resetter is a store as one that can reset policies.
func resetter(param string, store stint.Store) (stint.Resetter, error) {
	r, ok := store.(stint.Resetter)
	if !ok {
		return nil, stint.Invalid(param, fmt.Sprintf("%T", store), "a stint.Resetter")
	}
	return r, nil
}
