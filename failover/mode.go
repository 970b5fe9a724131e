package failover

import (
	"time"

	"github.com/stint-go/stint"
)

// A Mode says what is done with a decision that the store can't make. The zero value
// is Open.
type Mode uint8

// The modes.
const (
	// Open admits.
	Open Mode = iota
	// Closed refuses to decide: an error that wraps stint.ErrUnavailable.
	Closed
	// Local decides by a store in the process, with this process's share of the limits.
	Local
)

var modeNames = [...]string{"open", "closed", "local"}

// String is the mode's name in the configuration: open, closed or local.
func (m Mode) String() string {
	if int(m) >= len(modeNames) {
		return "unknown"
	}
	return modeNames[m]
}

// ParseMode reads open, closed or local.
func ParseMode(name string) (Mode, error) {
	for m, n := range modeNames {
		if n == name {
			return Mode(m), nil
		}
	}
	return Open, stint.Invalid("on_store_failure", name, "open, closed or local")
}

// An Overload says what is done with a decision that this process is too busy to have
// made in time, while the store can be reached. The zero value is Reject.
type Overload uint8

// What is done under overload.
const (
	// Reject returns an error that wraps stint.ErrOverloaded, whatever the mode.
	Reject Overload = iota
	// Admit has the mode decide, as if the store were unreachable. A client that keeps the process
	// busy is then not limited.
	Admit
)

// String is the name in the configuration: reject or admit.
func (o Overload) String() string {
	if o == Admit {
		return "admit"
	}
	return "reject"
}

// PolicyOptions are what holds for one policy instead of what holds for all. The zero value
// admits, with the store's timeout.
type PolicyOptions struct {
	// Mode is what is done while the store can't decide.
	Mode Mode
	// Timeout bounds each call of the store. Default: 0, which is Config.Timeout.
	Timeout time.Duration
}
