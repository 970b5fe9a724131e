package rls

import (
	"fmt"
	"math"
	"sync"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// maxOverrides is how many limits that requests brought are kept ready for each domain; then all
// are forgotten.
const maxOverrides = 10_000

// kept is what domains of one name have in common. It is safe for concurrent use.
type kept struct {
	mu        sync.Mutex
	overrides map[override]*limit // that requests brought
	// counters are the policies that count for the reference accounting, by the limits that they have.
	counters map[stint.Limit]*stint.Policy
}

// counterOf is the policy that counts in a window.
func (k *kept) counterOf(domain string, counted stint.Limit) (*stint.Policy, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.counters[counted]; known != nil {
		return known, nil
	}
	named := counted
	named.Name = "counted by " + named.Name
	if counted.Calendar != 0 {
		named.Name += " of the calendar " + counted.TimeZone
	}
	policy, err := stint.NewPolicy(policyName(domain), named)
	if err == nil {
		if len(k.counters) >= maxOverrides { // requests choose the multiplier, so there may be millions of windows
			clear(k.counters)
		}
		k.counters[counted] = policy
	}
	return policy, err
}

// An override is what a request may say of a limit.
type override struct {
	requests   uint32
	unit       domains.Unit
	multiplier uint32 // 0 for none
	accounting domains.Accounting
}

// override is the limit that a descriptor brings.
func (d *domain) override(
	given *common.RateLimitDescriptor_RateLimitOverride,
	accounting domains.Accounting,
) (*limit, error) {
	if given.Unit < 0 || given.Unit > math.MaxUint8 || !domains.Unit(given.Unit).Known() { // before it is made a byte
		return nil, stint.Invalid("limit.unit", given.Unit, "SECOND, MINUTE, HOUR, DAY, MONTH or YEAR")
	}
	key := override{given.RequestsPerUnit, domains.Unit(given.Unit), 0, accounting}
	if given.UnitMultiplier != nil {
		if key.multiplier = given.UnitMultiplier.Value; key.multiplier == 0 {
			return nil, stint.Invalid("limit.unit_multiplier", 0, "1 or more")
		}
	}
	if known := d.kept.override(key); known != nil {
		return known, nil
	}
	l := &limit{
		RateLimit: domains.RateLimit{RequestsPerUnit: key.requests, Unit: key.unit, Accounting: accounting},
		id:        d.name + ".override", rule: PolicyPrefix + d.name + ".override", domain: d.name,
	}
	// In the atomic accounting a limit has states of its own.
	if err := d.prepare(l, int64(max(key.multiplier, 1)), fmt.Sprintf(" of %d", key.requests)); err != nil {
		return nil, err
	}
	l.current.UnitMultiplier = given.UnitMultiplier
	l.brought = key
	return d.kept.add(key, l), nil
}

func (k *kept) override(key override) *limit {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.overrides[key]
}

// add keeps a limit ready, unless another request has brought it meanwhile: that one is returned
// then.
func (k *kept) add(key override, l *limit) *limit {
	k.mu.Lock()
	defer k.mu.Unlock()
	if known := k.overrides[key]; known != nil {
		return known
	}
	if len(k.overrides) >= maxOverrides {
		clear(k.overrides)
	}
	k.overrides[key] = l
	return l
}

// sameState reports whether two limits have one state under one key. Of a limit that requests bring there are two when
// those that are kept ready were forgotten between two descriptors of a request.
func (l *limit) sameState(o *limit) bool {
	return l == o || l.brought == o.brought && l.brought.unit != domains.UnitUnknown
}
