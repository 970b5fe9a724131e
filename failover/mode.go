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

// PolicyOptions are what holds for one policy instead of what holds for all. The zero value
// admits, with the store's timeout.
type PolicyOptions struct {
	// Mode is what is done while the store can't decide.
	Mode Mode
	// Timeout bounds each call of the store. Default: 0, which is Config.Timeout.
	Timeout time.Duration
}
