package adapt

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/running"
)

// Plain is what plain limits have to know of a call. The functions are asked in this order.
type Plain[Call any] struct {
	// Cost is how many permits it takes. Default: nil, 1.
	Cost func(Call) (int64, error)
	// LimiterOf finds its limiter. Default: nil, the server's.
	LimiterOf func(Call) (*stint.Limiter, error)
	// Keeps reports whether an error of LimiterOf stays as it is. Default: nil, those that wrap stint.ErrInvalid do.
	Keeps func(error) bool
	// Key is whom it counts for.
	Key func(Call) (string, error)
	// NeedsEach says whether its answer needs the outcomes of all limits.
	NeedsEach func(*stint.Policy) bool
}

// Decide decides a call by plain limits. One that costs nothing, or has no limiter, is admitted. cost holds what it
// costs; nil: it takes.
func (p *Plain[Call]) Decide(ctx context.Context, s *Server, c Call, cost *running.Cost, e *Evaluation) (err error) {
	permits, limiter := int64(1), s.Limiter
	if p.Cost != nil {
		if permits, err = p.Cost(c); err != nil {
			return err
		}
	}
	if p.LimiterOf != nil && permits != 0 {
		if limiter, err = p.LimiterOf(c); p.Keeps == nil || !p.Keeps(err) {
			limiter, err = limiterOf(limiter, err, cost != nil)
		}
		if err != nil {
			return err
		}
	}
	key := ""
	if limiter != nil && permits != 0 {
		if key, err = p.Key(c); err != nil {
			return err
		}
	}
	if !e.begin(limiter, key, permits) {
		return nil
	}
	if policy := limiter.Policy(); p.NeedsEach(policy) || cost != nil && s.Count != nil {
		e.collect(policy.Len())
	}
	if cost != nil {
		return e.reserve(ctx, limiter, *s.Reserve, cost)
	}
	end, _ := ctx.Deadline()
	return e.take(ctx, limiter, end)
}

// begin begins a verdict by plain limits, which has no rule, and reports whether they have to be asked.
func (e *Evaluation) begin(limiter *stint.Limiter, key string, permits int64) bool {
	v := &e.Verdict
	v.Allowed, v.Claim, v.Decision, v.Each, v.Turn = true, stint.Claim{}, stint.Decision{Allowed: true}, nil, 0
	if limiter == nil || permits == 0 {
		return false
	}
	v.Claim = stint.Claim{Key: key, Policy: limiter.Policy(), Permits: permits}
	return true
}

// collect makes room for the outcomes of so many limits.
func (e *Evaluation) collect(n int) {
	e.each = slices.Grow(e.each[:0], n)[:n]
	e.Verdict.Each = e.each
}

// take takes what is claimed. A turn of a leaky bucket that comes after end, if that is not the zero time, is denied.
func (e *Evaluation) take(ctx context.Context, limiter *stint.Limiter, end time.Time) error {
	v := &e.Verdict
	return e.note(limiter.Ask(ctx, v.Claim.Key, stint.Query{N: v.Claim.Permits, Before: end, Each: v.Each}))
}

// reserve holds what is claimed. Where answers are counted, the wait of one that is denied by what requests under way
// hold is corrected.
func (e *Evaluation) reserve(ctx context.Context, limiter *stint.Limiter, hold stint.Hold, cost *running.Cost) error {
	claim := &e.Verdict.Claim
	hold.Each = e.Verdict.Each
	by, d, err := limiter.Reserve(ctx, claim.Key, claim.Permits, hold)
	cost.Holds(by, d.At, hold.TTL)
	if err == nil && cost.Count != nil && !d.Allowed && !d.Degraded && !d.Full {
		running.AwaitEnds(claim, hold.Each, func() ([]stint.Hold, error) { return limiter.Holds(ctx, claim.Key) })
		source := d.Source
		d = decide.Combine(hold.Each, nil, d.At)
		d.Source = source
	}
	return e.note(d, err)
}

// wait waits for what is claimed, and for turns, at most to the context's deadline: what comes later is denied.
func (e *Evaluation) wait(ctx context.Context, limiter *stint.Limiter) error {
	d, err := limiter.WaitN(ctx, e.Verdict.Claim.Key, e.Verdict.Claim.Permits)
	switch {
	case errors.Is(err, stint.ErrNever):
		err = nil
	case errors.Is(err, stint.ErrDeadline):
		d.Delay = max(d.Delay, d.RetryAfter)
	default:
		d.Delay = 0 // it was waited for
	}
	return e.note(d, err)
}

// note makes a limiter's answer the verdict. A limiter's ErrDeadline is a denial here: the
// turn would come too late.
func (e *Evaluation) note(d stint.Decision, err error) error {
	v := &e.Verdict
	if errors.Is(err, stint.ErrDeadline) {
		v.Turn, d.Allowed, d.RetryAfter, err = d.Delay, false, d.Delay, nil
	}
	v.Decision, v.Allowed = d, d.Allowed
	return err
}
