package stint

import (
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/internal/bounds"
)

// A Hold says how permits are reserved, and of one that is listed what it has. Every field has a default.
type Hold struct {
	// ID identifies the hold in the whole store: 1 to 128 printable characters of ASCII. Whoever asks the
	// limiter makes it, never the client that is limited: one id for a thousand requests would be charged once.
	ID string
	// TTL is for how long the permits are held if nobody renews, commits or cancels, by the store's clock, in whole
	// microseconds; with a leaky bucket from the request's turn on. 1s to 1h. Default: 0, 1m.
	TTL time.Duration
	// OnExpiry is what becomes of what is held when it expires: ChargeOnExpiry charges it, as for money, but for places,
	// which are free then, too. Default: ReleaseOnExpiry, it goes back.
	OnExpiry Expiry
	// Each, if not nil, receives what each limit said to a Reserve of a [Limiter], in the order of the policy's limits,
	// and must be at least as long. It is not for stores, which have [Op.Each]. Default: nil.
	Each []Outcome

	// What follows is said, not asked for.

	// ExpiresAt is when it expires, by the store's clock, of a hold that [Limiter.Holds] lists or a store has reserved.
	ExpiresAt Instant
	// Permits are what a hold that is listed has of each limit of the policy; 0 of one that it has nothing of, or under
	// which as many holds expire before it as a List tells of.
	Permits []int64
}

// An Expiry is what an expiry does with what a hold has. The zero value is ReleaseOnExpiry.
type Expiry bool

// What an expiry can do.
const (
	ReleaseOnExpiry Expiry = false
	ChargeOnExpiry  Expiry = true
)

// latestExpiry is the greatest integer of a number in Redis's scripts, in the year 2255.
const latestExpiry = Instant(1 << 53)

// A HoldOp is the hold of a Reserve, Commit or Cancel, and what the store says of it.
type HoldOp struct {
	// Hold is how permits are reserved. A Reserve sets its ExpiresAt. With a Commit that is what the last Reserve said,
	// and TTL its TTL, so that a store that has lost the hold can tell that it did not forget it: the Commit is charged
	// until twice the TTL, and at least a minute, after it. 0 to 1<<53. Default: 0, not known.
	Hold
	// Via is, with a Commit, the number of the way of the first group that the last Reserve was told ([Decision.Via]): a
	// store that has lost the hold charges that. Default: 0, the first. Of further groups it charges the first way.
	Via uint8

	// What follows is set by the store.

	// Replayed says that the hold was there already (Reserve), or had ended in the same way (Commit, Cancel).
	Replayed bool
	// Lost says of a denied Reserve that the hold has expired, or was reset: nothing is held any more.
	Lost bool
	// Late says that a Commit came after the hold had expired, or was lost with the store's last second.
	Late bool
	// Reset says that some of what was held was reset before it expired, so that nothing of that comes back or is charged.
	Reset bool
	// Full says of a denied Reserve that the client has as many holds as the store allows, or that the store, of a bounded
	// memory, has no room for one more.
	Full bool
}

var (
	// ErrResolved marks a Reserve, Commit or Cancel of a hold that has ended in another way. [ResolvedError] says how.
	ErrResolved = errors.New("stint: the hold has ended")
	// ErrUnknownReservation marks a Commit or Cancel of an id that the store does not know, and can't
	// charge: it never was, or its end was long ago.
	ErrUnknownReservation = errors.New("stint: the reservation is not known")
	// ErrOtherClaims marks an operation on a hold, live or expired, that names other limits or keys than it was reserved
	// for; their order does not matter. Of one that was committed or cancelled it is ErrResolved.
	ErrOtherClaims = errors.New("stint: the hold has other claims")
)

// A ResolvedError says how and when a hold ended. errors.Is(err, [ErrResolved]) holds.
type ResolvedError struct {
	ID string
	// End is "committed", "cancelled" or "expired".
	End string
	At  Instant
}

// Error reads `stint: the hold "r-17" was committed at 2026-01-02T15:04:05.000000Z`, or expired.
func (e *ResolvedError) Error() string {
	if e.End == "expired" {
		return fmt.Sprintf("stint: the hold %q expired at %v", e.ID, e.At)
	}
	return fmt.Sprintf("stint: the hold %q was %s at %v", e.ID, e.End, e.At)
}

// Is reports whether target is [ErrResolved].
func (e *ResolvedError) Is(target error) bool { return target == ErrResolved }

// validateHold reports what is wrong with the operation's hold.
func (op *Op) validateHold() error {
	h := op.Hold()
	switch {
	case op.Verb <= VerbSettle:
		return Invalid("hold", "a hold", "none with "+op.Verb.String())
	case h == nil:
		return Invalid("hold", "nil", "a hold with an id")
	case !bounds.IsHoldID(h.ID):
		return Invalid("id", h.ID, bounds.HoldIDs)
	case h.TTL != 0 && !bounds.IsHoldTTL(h.TTL):
		return Invalid("ttl", h.TTL, bounds.HoldTTLs)
	case h.ExpiresAt < 0 || h.ExpiresAt > latestExpiry:
		return Invalid("expiresAt", int64(h.ExpiresAt),
			fmt.Sprintf("0 to %d microseconds since the Unix epoch, as the Reserve said", latestExpiry))
	case h.Via > 0 && int(h.Via) >= op.firstWays():
		return Invalid("via", h.Via, "the number of a way of the first group, as the Reserve said")
	}
	return nil
}
