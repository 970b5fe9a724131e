package failover

import (
	"context"
	"fmt"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

// ResetPolicy implements [stint.Resetter], if the store does, and the local one, if there is
// one; else the error wraps stint.ErrInvalid. Permits of the policy that were spent locally, and not
// charged yet, are reset last: if the store fails, they are still charged. Until then nothing is
// charged, of other policies neither.
//
// No answer is made up: while any part of the store is unreachable the error wraps
// stint.ErrUnavailable, and nothing was reset. Config.Timeout bounds the store's part of it.
// If that takes longer, or fails, the error wraps stint.ErrUnavailable, and the store is
// probed; it may have been reset nevertheless. What other processes have spent locally, and not
// charged yet, they still charge.
func (s *Store) ResetPolicy(ctx context.Context, policyName string) error {
	account := accountName(policyName)
	return s.reset(ctx,
		func(ctx context.Context, r stint.Resetter) error { return r.ResetPolicy(ctx, policyName) },
		func(ctx context.Context, r stint.Resetter) error {
			return prefix.Join(r.ResetPolicy(ctx, policyName), r.ResetPolicy(ctx, account))
		})
}

// ResetAll implements [stint.Resetter], as [Store.ResetPolicy] does.
func (s *Store) ResetAll(ctx context.Context) error {
	all := func(ctx context.Context, r stint.Resetter) error { return r.ResetAll(ctx) }
	return s.reset(ctx, all, all)
}

// reset resets the store, within the deadline of a call, and then the local one.
func (s *Store) reset(ctx context.Context, store, local func(context.Context, stint.Resetter) error) error {
	inner, err := resetter("store", s.config.Store)
	if err != nil {
		return err
	}
	if outages := s.Down(); outages != nil {
		return unavailable(outages[0].Cause)
	}
	var locally stint.Resetter
	if s.config.Local != nil {
		if locally, err = resetter("local store", s.config.Local); err != nil {
			return err
		}
		resume, err := s.pending.hold(ctx)
		if err != nil {
			return err
		}
		defer resume()
	}
	bounded, own := s.bound(ctx, s.config.Timeout)
	err = store(bounded, inner)
	own.release()
	if err != nil {
		if from := originOf(ctx, own, err); from == invalidOp || from == callerLeft {
			return err
		}
		s.counts.failure(err)
		s.Probe()
		return unavailable(err)
	}
	if locally == nil {
		return nil
	}
	// A local decision is counted in the share and in the account, or in neither.
	s.pending.deciding.Lock()
	defer s.pending.deciding.Unlock()
	return local(context.WithoutCancel(ctx), locally)
}

// resetter is a store as one that can reset policies.
func resetter(param string, store stint.Store) (stint.Resetter, error) {
	r, ok := store.(stint.Resetter)
	if !ok {
		return nil, stint.Invalid(param, fmt.Sprintf("%T", store), "a stint.Resetter")
	}
	return r, nil
}

// hold waits for the batch of charges that is under way, and lets no other begin until
// resume is called.
func (l *pendingCharges) hold(ctx context.Context) (resume func(), err error) {
	select {
	case l.batch <- struct{}{}:
		return func() { <-l.batch }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
