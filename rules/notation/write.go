package notation

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// write brings a rule into the form that is written.
func write(rule rules.Rule) (writtenRule, error) {
	missing, missingFound := nameOf(rule.Missing, missings)
	exceed, exceedFound := nameOf(rule.OnExceed, excesses)
	failure, failureFound := nameOf(rule.OnStoreFailure, failures)
	switch {
	case !missingFound && rule.Missing != rules.MissingUnset:
		return writtenRule{}, stint.Invalid("missing", uint8(rule.Missing), nameList(missings))
	case !exceedFound:
		return writtenRule{}, stint.Invalid("on_exceed", uint8(rule.OnExceed), nameList(excesses))
	case !failureFound && rule.OnStoreFailure != "":
		return writtenRule{}, stint.Invalid("on_store_failure", string(rule.OnStoreFailure), nameList(failures))
	case rule.OnExceed == rules.Reject:
		exceed = ""
	}
	limits, err := writeLimits("limits", rule.Limits, rule.Costs)
	if err != nil {
		return writtenRule{}, err
	}
	w := writtenRule{
		ID: rule.ID, Name: rule.Name, Set: rule.Set, Priority: rule.Priority, Labels: rule.Labels, Match: writeMatch(rule.Match), Scope: writeScope(rule.Scope),
		Missing: missing, Cost: writeCost(rule.Cost), Limits: limits, Unlimited: rule.Unlimited, Banned: rule.Banned, OnExceed: exceed,
		MaxWait: writeDuration(rule.MaxWait), MaxWaiters: rule.MaxWaiters, OnStoreFailure: failure, Timeout: writeDuration(rule.Timeout),
	}
	if rule.Disabled {
		w.Enabled = new(bool)
	}
	for i, o := range rule.Overrides {
		override, err := writeOverride(o)
		if err != nil {
			return writtenRule{}, fmt.Errorf("overrides[%d].%w", i, err)
		}
		w.Overrides = append(w.Overrides, override)
	}
	return w, nil
}

func writeOverride(o rules.Override) (writtenOverride, error) {
	limits, err := writeLimits("limits", o.Limits, o.Costs)
	return writtenOverride{Key: o.Key, Limits: limits, Unlimited: o.Unlimited, Banned: o.Banned}, err
}

// nameOf finds the name of a choice.
func nameOf[T comparable](value T, choices []named[T]) (string, bool) {
	for _, c := range choices {
		if c.value == value {
			return c.name, true
		}
	}
	return "", false
}

// writeMatch writes a single path and a single host by names of their own, and nothing if all requests match.
func writeMatch(m rules.Match) *writtenMatch {
	w := writtenMatch{Methods: m.Methods, Paths: m.Paths, Except: m.Except, Hosts: m.Hosts, Headers: m.Headers}
	if len(m.Methods)+len(m.Paths)+len(m.Except)+len(m.Hosts)+len(m.Headers) == 0 {
		return nil
	}
	if len(m.Paths) == 1 {
		w.Path, w.Paths = m.Paths[0], nil
	}
	if len(m.Hosts) == 1 {
		w.Host, w.Hosts = m.Hosts[0], nil
	}
	return &w
}

// writeScope writes one scope as itself, and several as a list.
func writeScope(scope []string) any {
	switch len(scope) {
	case 0:
		return nil
	case 1:
		return scope[0]
	default:
		return scope
	}
}

// writeCost writes a number as itself.
func writeCost(cost rules.Cost) any {
	switch {
	case cost == rules.Cost{}:
		return nil
	case cost.Header == "" && cost.Attribute == "":
		return cost.Permits
	default:
		return writtenCost{Header: cost.Header, Attribute: cost.Attribute, Default: cost.Permits}
	}
}

// writeDuration leaves 0 out.
func writeDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return stint.FormatDuration(d)
}

func writeLimits(path string, limits []stint.Limit, costs []rules.Cost) ([]writtenLimit, error) {
	var written []writtenLimit
	for i, limit := range limits {
		if err := limit.Validate(); err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", path, i, err)
		}
		w := writeLimit(limit)
		if i < len(costs) {
			w.Cost = writeCost(costs[i])
		}
		written = append(written, w)
	}
	return written, nil
}

// writeLimit writes a sound limit by the names that its algorithm's parameters have.
func writeLimit(l stint.Limit) writtenLimit {
	w := writtenLimit{
		Algorithm: strings.ToLower(l.Algorithm.String()), Name: l.Name, Window: writeDuration(l.Window), TimeZone: l.TimeZone,
		MinInterval: writeDuration(l.MinInterval), CountDenied: l.CountDenied,
	}
	switch l.Algorithm {
	case stint.AlgorithmTokenBucket:
		w.Capacity, w.Refill = l.Capacity, l.Rate.String()
	case stint.AlgorithmLeakyBucket:
		w.Capacity, w.Leak = l.Capacity, l.Rate.String()
	default:
		w.Limit = l.Capacity
	}
	if l.Calendar != stint.CalendarNone {
		w.Calendar = l.Calendar.String()
	}
	if l.MaxDebt != 0 {
		debt := max(0, l.MaxDebt) // stint.NoDebt is written as 0
		w.MaxDebt = &debt
	}
	switch l.Lease {
	case 0:
	case stint.LeaseAuto:
		w.Lease = "auto"
	default:
		w.Lease = l.Lease
	}
	return w
}
