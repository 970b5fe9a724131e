package stint

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/sleep"
)

// ErrLost ends the context that [Reservation.KeepAlive] returns, as its cause: the hold has expired
// or was reset, and its permits went to others.
var ErrLost = errors.New("stint: the hold is lost")

// KeepAlive renews the hold, three times in each TTL, until the context ends or stop is called, and
// returns a context for the work: that ends when the context does, and when the hold is lost, with
// [ErrLost] as its cause. It is lost when the store says so, and when a TTL has passed by this
// process's clock since the last renewal that succeeded was sent: from then on others may have its
// permits. What a failure policy admits in the store's place counts as a renewal.
//
// A goroutine renews it meanwhile; observers are not told. It does not end the hold. Call it once for a hold.
func (r *Reservation) KeepAlive(ctx context.Context) (work context.Context, stop context.CancelFunc) {
	work, cancel := context.WithCancelCause(ctx)
	if r == nil {
		cancel(errNotHeld)
		return work, func() {}
	}
	go func() { cancel(r.keep(work)) }()
	return work, func() { cancel(context.Canceled) }
}

// keep renews the hold until the work's context ends or the hold is lost, and says which. What fails is tried again
// soon.
func (r *Reservation) keep(work context.Context) error {
	due := r.certainty().Add(-2 * bounds.HoldTTL(r.hold.TTL) / 3)
	for {
		if err := sleep.For(work, time.Until(due)); err != nil {
			return context.Cause(work)
		}
		sent := time.Now()
		held, err := r.renew(work)
		switch {
		case err != nil:
			return err
		case held:
			due = sent.Add(bounds.HoldTTL(r.hold.TTL) / 3)
			continue
		}
		now, certain := time.Now(), r.certainty()
		if !now.Before(certain) {
			return ErrLost
		}
		due = now.Add(min(bounds.HoldTTL(r.hold.TTL)/12, certain.Sub(now)))
	}
}

// renew reserves once more what is held, in the time in which it is held for certain, and reports whether that
// succeeded. The error is that the hold is lost: a store that denies to renew a hold does not know it.
func (r *Reservation) renew(work context.Context) (held bool, err error) {
	r.mu.Lock()
	claims, permits, certain := r.claims, r.permits, r.certain
	r.mu.Unlock()
	sent := time.Now()
	until := sent.Add(bounds.HoldTTL(r.hold.TTL) / 2) // then nothing may be heard of it, but of the next one
	if until.After(certain) {
		until = certain
	}
	ctx, cancel := context.WithDeadline(work, until)
	defer cancel()
	call := &holdCall{hold: HoldOp{Hold: r.hold}}
	d, err := r.store.Decide(ctx, claims.on(VerbReserve, &call.hold, &call.extra))
	err = r.grown(claims, permits, &call.hold, &d, err, sent)
	if errors.Is(err, ErrLost) || errors.Is(err, ErrResolved) || err == nil && !d.Allowed && !d.Degraded {
		return false, ErrLost
	}
	return err == nil && d.Allowed, nil
}
