package rules

import (
	"maps"
	"slices"
)

// Clone is the rule with slices and maps of its own.
func (r *Rule) Clone() Rule {
	c := *r
	c.Labels = maps.Clone(r.Labels)
	c.Match.Methods = slices.Clone(r.Match.Methods)
	c.Match.Paths, c.Match.Except = slices.Clone(r.Match.Paths), slices.Clone(r.Match.Except)
	c.Match.Hosts = slices.Clone(r.Match.Hosts)
	c.Match.Headers = maps.Clone(r.Match.Headers)
	c.Scope = slices.Clone(r.Scope)
	c.Limits, c.Costs = slices.Clone(r.Limits), slices.Clone(r.Costs)
	c.Overrides = slices.Clone(r.Overrides)
	for i := range c.Overrides {
		o := &c.Overrides[i]
		o.Limits, o.Costs = slices.Clone(o.Limits), slices.Clone(o.Costs)
	}
	return c
}

// Equal reports whether the rules say the same. A list without elements is like none, since what
// reads rules makes either of the other.
func (r *Rule) Equal(o *Rule) bool {
	return r.ID == o.ID && r.Name == o.Name && r.Set == o.Set && r.Disabled == o.Disabled && r.Priority == o.Priority &&
		maps.Equal(r.Labels, o.Labels) && r.Match.same(&o.Match) &&
		slices.Equal(r.Scope, o.Scope) && r.Missing == o.Missing && r.Cost == o.Cost &&
		slices.Equal(r.Limits, o.Limits) && slices.Equal(r.Costs, o.Costs) && r.Unlimited == o.Unlimited && r.Banned == o.Banned &&
		r.OnExceed == o.OnExceed && r.MaxWait == o.MaxWait && r.MaxWaiters == o.MaxWaiters &&
		r.OnStoreFailure == o.OnStoreFailure && r.Timeout == o.Timeout &&
		slices.EqualFunc(r.Overrides, o.Overrides, func(a, b Override) bool {
			return a.Key == b.Key && a.Unlimited == b.Unlimited && a.Banned == b.Banned && slices.Equal(a.Limits, b.Limits) && slices.Equal(a.Costs, b.Costs)
		})
}

func (m *Match) same(o *Match) bool {
	return slices.Equal(m.Methods, o.Methods) && slices.Equal(m.Paths, o.Paths) && slices.Equal(m.Except, o.Except) &&
		slices.Equal(m.Hosts, o.Hosts) && maps.Equal(m.Headers, o.Headers)
}
