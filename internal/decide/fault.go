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
