package failover

import (
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

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
		if limit.Capacity < p.capacity && (!limit.Denials || policy.Len() == 1) {
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
