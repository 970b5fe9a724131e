package memstore

import (
	"fmt"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/keyhash"
)

// plan is a policy as this store decides it; it is kept with the policy.
type plan struct {
	limits []limit
	// short is what Take decides by itself: the one limit, whose state is in a slot. nil: there is
	// more to it.
	short *limit
	// countDenied is whether any limit counts denied requests.
	countDenied bool
	// fault is why the store can't decide it; nil: it can.
	fault error
}

// limit is one limit, ready to decide.
type limit struct {
	algorithm.Machine
	version *limitVersion
	policy  string // the name of its policy
	// tag tells apart the states of one key. It is 0 in the bits that choose the shard, so that all
	// states of a key are in one shard.
	tag uint64
}

// plan returns the policy's plan.
func (s *Store) plan(policy *stint.Policy) *plan {
	return policy.Prepared(&s.owner, func() any { return s.prepare(policy) }).(*plan)
}

// prepare makes a policy's plan, and registers the versions of its limits.
func (s *Store) prepare(policy *stint.Policy) *plan {
	p := &plan{limits: make([]limit, policy.Len())}
	if s.versions == nil {
		p.fault = s.unfit()
		return p
	}
	for i := range p.limits {
		limit := policy.Limit(i)
		l := &p.limits[i]
		l.Machine, l.policy = algorithm.NewMachine(limit), policy.Name()
		p.countDenied = p.countDenied || limit.CountDenied
		// Lengths keep distinct names distinct when they are joined.
		identity := fmt.Sprintf("%d %d %s%s", limit.Algorithm, len(limit.Name), limit.Name, policy.Name())
		l.tag = keyhash.String(s.seed, identity) >> shardBits
		s.register(limit, l)
	}
	if l := &p.limits[0]; len(p.limits) == 1 && !l.HasLog() && !l.HasPlaces() {
		p.short = l
	}
	s.releaseVersionsAfter(p)
	return p
}

// permits is how many permits the limit is asked for by a verb with so many of them; of a Reserve or a Commit it
// depends on what is held.
func (l *limit) permits(verb stint.Verb, n int64) int64 {
	switch {
	case verb > stint.VerbSettle:
		return n
	case verb != stint.VerbSettle:
		return l.Takes(n)
	case l.Settles():
		return n
	}
	return 0
}
