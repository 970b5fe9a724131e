package stint

import "context"

// CommitHeld is Commit where nobody knows better what it cost: each limit keeps what it holds, also where limits hold
// different numbers.
func (r *Reservation) CommitHeld(ctx context.Context) (End, error) {
	r.mu.Lock()
	claims, expiresAt := r.claims, r.expiresAt
	r.mu.Unlock()
	h := HoldOp{Hold: r.hold, ExpiresAt: expiresAt}
	d, err := r.reserver.carry(ctx, opOf(Commit, claims, &h))
	if err != nil {
		return End{}, err
	}
	return End{Applied: d.Applied, Replayed: h.Replayed, Late: h.Late, Reset: h.Reset, At: d.At}, nil
}
