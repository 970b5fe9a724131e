package stint

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/prefix"
)

// A Policy is several limits decided together: all of them admit, or none
// consumes anything. It is immutable and safe for concurrent use; make it with
// [NewPolicy] once and keep it.
type Policy struct {
	name       string
	limits     []Limit
	leaky      bool  // whether any limit is a leaky bucket
	concurrent bool  // whether any limit is of concurrency
	denials    bool  // whether any limit counts denials
	notWay     error // why it can't be decided as one of several ways; nil: it can

	prepared atomic.Pointer[preparation]
}

// preparation is what one store has derived from a policy; a linked list, since
// a policy meets one store nearly always and two at times.
type preparation struct {
	owner *byte // its address alone says who it is
	value any
	next  *preparation
}

// NewPolicy makes a policy of one or more limits, or reports everything that is
// wrong with them. State belongs to (policy name, limit name, algorithm, key): two
// policies of one name share the state of limits with one name and algorithm, though
// these differ in all else. So policies on one store need names, or their limits do
// ([Limit.Named]), unless they are to count their clients together; a program with one policy
// needs none.
func NewPolicy(name string, limits ...Limit) (*Policy, error) {
	var faults faults
	faults.name("policy name", name)
	if len(limits) == 0 || len(limits) > bounds.MaxLimits {
		faults.add("limits", len(limits), fmt.Sprintf("1 to %d limits", bounds.MaxLimits))
	}
	p := &Policy{name: name, limits: slices.Clone(limits)}
	for i, limit := range limits {
		if err := limit.Validate(); err != nil {
			if len(limits) > 1 {
				err = prefix.Errorf("limit %d: %w", i, err)
			}
			faults = append(faults, err)
			continue
		}
		p.leaky = p.leaky || limit.Algorithm == AlgorithmLeakyBucket
		p.denials = p.denials || limit.Denials
		p.concurrent = p.concurrent || limit.Algorithm == AlgorithmConcurrency
		for _, other := range limits[:i] {
			if other.Name == limit.Name && other.Algorithm == limit.Algorithm {
				faults.add(
					fmt.Sprintf("limit %d: name", i), limit.Name,
					"a name that no other limit of the same algorithm in the policy has, such as name: burst",
				)
			}
		}
	}
	for i, limit := range limits {
		if p.denials && limit.Lease != 0 {
			faults.add(fmt.Sprintf("limit %d: lease", i), limit.Lease, "none beside a limit that counts denials")
		}
	}
	if err := prefix.Join(faults...); err != nil {
		return nil, err
	}
	p.notWay = p.canBeWay()
	return p, nil
}

// Name is the policy's name, "" for most.
func (p *Policy) Name() string { return p.name }

// Len is the number of limits.
func (p *Policy) Len() int { return len(p.limits) }

// Limit returns limit i, counted from 0.
func (p *Policy) Limit(i int) Limit { return p.limits[i] }

// Limits returns the limits in order, as a copy.
func (p *Policy) Limits() []Limit { return slices.Clone(p.limits) }

// NeedsReserve reports whether only a Reserve can take of the policy, as one of its limits is of concurrency.
func (p *Policy) NeedsReserve() bool { return p.concurrent }

// canHold reports why permits of the policy can't be held.
func (p *Policy) canHold() error {
	for _, l := range p.limits {
		if err := l.CanHold(); err != nil {
			return err
		}
	}
	return nil
}

// Prepared returns what the store called owner has derived from the policy, calling prepare the first time. It is for
// stores: what they compute once per policy is found without a lookup and lives no longer than the policy. An owner is
// the address of a byte that is its own, such as one of its fields. When two goroutines prepare at once, one of the
// values is kept and both get it.
func (p *Policy) Prepared(owner *byte, prepare func() any) any {
	for at := p.prepared.Load(); at != nil; at = at.next {
		if at.owner == owner {
			return at.value
		}
	}
	return p.keep(&preparation{owner: owner, value: prepare()})
}

// keep adds a preparation, and returns its value, or that of another one of the same owner.
func (p *Policy) keep(mine *preparation) any {
	for {
		first := p.prepared.Load()
		for at := first; at != nil; at = at.next {
			if at.owner == mine.owner {
				return at.value
			}
		}
		if mine.next = first; p.prepared.CompareAndSwap(first, mine) {
			return mine.value
		}
	}
}

// overlaps reports whether the two policies name a state in common under one key.
func (p *Policy) overlaps(q *Policy) bool {
	if p == q {
		return true
	}
	if p.name != q.name {
		return false
	}
	for i := range p.limits {
		for j := range q.limits {
			if a, b := &p.limits[i], &q.limits[j]; a.Name == b.Name && a.Algorithm == b.Algorithm {
				return true
			}
		}
	}
	return false
}

// canBeWay reports why the policy can't be decided as one of several ways.
func (p *Policy) canBeWay() error {
	for _, l := range p.limits {
		switch {
		case l.CountDenied:
			return Invalid("CountDenied", true,
				"a limit that counts no denied requests, since a way may deny and another admit")
		case l.Denials:
			return Invalid("Denials", true,
				"a limit that counts no denials, since a way may deny and another admit")
		case l.Algorithm == AlgorithmLeakyBucket:
			return Invalid("algorithm", l.Algorithm, "one without a queue, since of several ways one is taken")
		case l.Lease != 0:
			return Invalid("lease", l.Lease, "a limit without a lease, since the ways are tried together")
		}
	}
	return nil
}
