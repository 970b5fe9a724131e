package failover

import (
	"context"

	"github.com/stint-go/stint"
)

// ResetAll implements [stint.Store]. This process's shares are reset last, so that they stay
// spent if the store fails. Those of other processes stay spent.
//
// No answer is made up: while any part of the store is unreachable the error wraps
// stint.ErrUnavailable, and nothing was reset. Config.Timeout bounds the store's part of it.
// If that takes longer, or fails, the error wraps stint.ErrUnavailable, and the store is
// probed; it may have been reset nevertheless.
func (s *Store) ResetAll(ctx context.Context, scope stint.Scope) error {
	if outages := s.Down(); outages != nil {
		return unavailable(outages[0].Cause)
	}
	bounded, cancel := context.WithTimeout(ctx, s.config.Timeout)
	err := s.wrapped.ResetAll(bounded, scope)
	cancel()
	if err != nil {
		if from := originOf(ctx, err); from == invalidOp || from == callerLeft {
			return err
		}
		s.counts.failure(err)
		s.Probe()
		return unavailable(err)
	}
	if s.config.Local == nil {
		return nil
	}
	return s.config.Local.ResetAll(context.WithoutCancel(ctx), scope)
}
