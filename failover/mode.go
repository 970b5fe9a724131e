package failover

import (
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
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

// A plan is what holds for a policy while the store is unreachable. It is kept with the
// policy.
type plan struct {
	policy   *stint.Policy
	mode     Mode
	timeout  time.Duration
	fault    error                 // what is wrong with the policy's options, if anything
	capacity int64                 // the least of the limits'
	least    int16                 // the limit that has it
	life     time.Duration         // the longest for which a permit counts
	share    atomic.Pointer[share] // the one last used
}

// plan returns the policy's plan.
func (s *Store) plan(policy *stint.Policy) *plan {
	return policy.Prepared(s, func() any { return s.newPlan(policy) }).(*plan)
}

// newPlan prepares what a policy's answers need when the store is away: the mode, the timeout, the
// limit with the least capacity, whose figures such an answer has, and for how long a state can
// matter.
func (s *Store) newPlan(policy *stint.Policy) *plan {
	p := &plan{policy: policy, mode: s.config.Mode, timeout: s.config.Timeout, capacity: bounds.MaxPermits + 1}
	for i := range policy.Len() {
		limit := policy.Limit(i)
		if limit.Capacity < p.capacity {
			p.capacity, p.least = limit.Capacity, int16(i)
		}
		p.life = max(p.life, longestLife(limit))
	}
	if s.config.ForPolicy == nil {
		return p
	}
	options, ok := s.config.ForPolicy(policy)
	if !ok {
		return p
	}
	p.mode = options.Mode
	if options.Timeout != 0 {
		p.timeout = options.Timeout
	}
	switch {
	case options.Mode > Local:
		p.fault = stint.Invalid("ForPolicy: Mode", uint8(options.Mode), "open, closed or local")
	case options.Mode == Local && s.config.Local == nil:
		p.fault = stint.Invalid("ForPolicy: Mode", options.Mode, "open or closed, as there is no local store")
	case options.Mode == Local && !s.counted:
		p.fault = stint.Invalid("ForPolicy: Mode", options.Mode, "open or closed, as nobody counts the processes")
	case options.Timeout < 0:
		p.fault = stint.Invalid("ForPolicy: Timeout", options.Timeout, "0 or more")
	}
	return p
}

// timeout is the least of those of the operation's policies. The error is what is
// wrong with a policy's options.
func (s *Store) timeout(op *stint.Op) (time.Duration, error) {
	if s.config.ForPolicy == nil {
		return s.config.Timeout, nil
	}
	timeout, first := s.config.Timeout, true
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		if claim.Policy == nil {
			continue // which is refused
		}
		p := s.plan(claim.Policy)
		if p.fault != nil {
			return timeout, p.fault
		}
		if first || p.timeout < timeout {
			timeout, first = p.timeout, false
		}
	}
	return timeout, nil
}
