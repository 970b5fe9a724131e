package rulestore

import (
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/rules"
)

// A Draft is the rules during an edit. It is not safe for concurrent use.
type Draft struct {
	from  Revision
	rules []rules.Rule // by ID
	// restores says that the rules were in force before, so that their mistakes are no faults.
	restores bool
}

// ID is the ID of the revision that the draft began with.
func (d *Draft) ID() ID { return d.from.ID }

// Rule returns a copy of a rule of the draft.
func (d *Draft) Rule(id string) (rules.Rule, bool) {
	at, found := find(d.rules, id)
	if !found {
		return rules.Rule{}, false
	}
	return d.rules[at].Clone(), true
}

// Put adds a rule, or replaces the one with its ID.
func (d *Draft) Put(rule rules.Rule) {
	at, found := find(d.rules, rule.ID)
	if !found {
		d.rules = slices.Insert(d.rules, at, rules.Rule{})
	}
	d.rules[at] = rule.Clone()
}

// Delete removes a rule. It reports whether there was one.
func (d *Draft) Delete(id string) bool {
	at, found := find(d.rules, id)
	if found {
		d.rules = slices.Delete(d.rules, at, at+1)
	}
	return found
}

// Replace replaces all rules by a list. Of rules with the same ID the last counts.
func (d *Draft) Replace(list []rules.Rule) {
	d.rules = make([]rules.Rule, len(list))
	for i := range list {
		d.rules[len(list)-1-i] = list[i].Clone()
	}
	slices.SortStableFunc(d.rules, byID)
	d.rules = slices.CompactFunc(d.rules, func(a, b rules.Rule) bool { return a.ID == b.ID })
}

// Rules are all rules of the draft, by ID. They must not be changed.
func (d *Draft) Rules() []rules.Rule { return slices.Clone(d.rules) }

// Changes are the changes of the draft so far, by ID.
func (d *Draft) Changes() []rulediff.Change { return rulediff.Diff(d.from.Rules, d.rules) }

// Rule returns the rule of an ID, false if there is none. It must not be changed.
func (r *Revision) Rule(id string) (rules.Rule, bool) {
	if at, found := find(r.Rules, id); found {
		return r.Rules[at], true
	}
	return rules.Rule{}, false
}

func find(list []rules.Rule, id string) (at int, found bool) {
	return slices.BinarySearchFunc(list, id, func(rule rules.Rule, id string) int { return strings.Compare(rule.ID, id) })
}

func byID(a, b rules.Rule) int { return strings.Compare(a.ID, b.ID) }
