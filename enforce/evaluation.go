package enforce

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint"
)

// DecidePlain decides a client's request by plain limits in the place of rules: the verdict has no
// Rule, and Each only if it is asked for. At a cost of 0 the request is admitted and no limit is
// asked. A turn of a leaky bucket that comes after end, if that is not the zero time, is denied.
// Errors are [stint.Limiter.AllowN]'s.
func (v *Verdict) DecidePlain(
	ctx context.Context,
	limiter *stint.Limiter,
	key string,
	cost int64,
	each bool,
	end time.Time,
) error {
	if !v.claimPlain(limiter, key, cost, each) {
		return nil
	}
	return v.notePlain(limiter.Ask(ctx, key, stint.Query{N: cost, Before: end, Each: v.Each}))
}

// ReservePlain is DecidePlain for a request that holds its permits until its cost is known, by a running
// cost. Errors are [stint.Limiter.Reserve]'s.
func (v *Verdict) ReservePlain(
	ctx context.Context,
	limiter *stint.Limiter,
	key string,
	cost int64,
	each bool,
	hold stint.Hold,
	running *RunningCost,
) (err error) {
	if !v.claimPlain(limiter, key, cost, each) {
		return nil
	}
	var d stint.Decision
	hold.Each = v.Each
	running.hold, d, err = limiter.Reserve(ctx, key, cost, hold)
	if running.note(hold, d.At); err == nil && running.count != nil && each {
		d = v.awaitEndsPlain(ctx, limiter, d)
	}
	return v.notePlain(d, err)
}

// WaitPlain is DecidePlain for a caller that waits for permits and turns, at most to the context's deadline: what
// comes later is denied. Errors are [stint.Limiter.WaitN]'s.
func (v *Verdict) WaitPlain(ctx context.Context, limiter *stint.Limiter, key string, cost int64) error {
	if !v.claimPlain(limiter, key, cost, false) {
		return nil
	}
	d, err := limiter.WaitN(ctx, key, cost)
	switch {
	case errors.Is(err, stint.ErrNever):
		err = nil
	case errors.Is(err, stint.ErrDeadline):
		d.Delay = max(d.Delay, d.RetryAfter)
	default:
		d.Delay = 0 // it was waited for
	}
	return v.notePlain(d, err)
}

// claimPlain begins a verdict by plain limits, and reports whether they have to be asked.
func (v *Verdict) claimPlain(limiter *stint.Limiter, key string, cost int64, each bool) bool {
	v.reset()
	if cost == 0 {
		return false
	}
	v.Claim = stint.Claim{Key: key, Policy: limiter.Policy(), Permits: cost}
	if each {
		v.Each = v.outcomes(v.Claim.Policy.Len())
	}
	return true
}

// notePlain makes a limiter's answer the verdict. A limiter's ErrDeadline is a denial here: the
// turn would come too late.
func (v *Verdict) notePlain(d stint.Decision, err error) error {
	if errors.Is(err, stint.ErrDeadline) {
		v.Turn, d.Allowed, d.RetryAfter, err = d.Delay, false, d.Delay, nil
	}
	v.Decision, v.Allowed = d, d.Allowed
	return err
}
