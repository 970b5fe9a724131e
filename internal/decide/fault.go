package decide

import (
	"errors"

	"github.com/stint-go/stint"
)

// IsFault reports whether an error is the operation's own, or that of the hold which it names: the store was there, and
// says the same of the operation again.
func IsFault(err error) bool {
	return errors.Is(err, stint.ErrInvalid) || errors.Is(err, stint.ErrResolved) ||
		errors.Is(err, stint.ErrOtherClaims) || errors.Is(err, stint.ErrUnknownReservation)
}

// IsUndecided reports whether an error says that the store could not decide, or was not asked for want of time.
func IsUndecided(err error) bool {
	return errors.Is(err, stint.ErrUnavailable) || errors.Is(err, stint.ErrOverloaded)
}
